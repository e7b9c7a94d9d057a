"""How memory comes from the system: in pages of 2 MiB where they fit.

Every round makes its matrices anew.  In pages of 4 KiB a process of two spends a twentieth of a round of
experiment=boba_mnist on fetching them, which neither of the two can share.
"""

import os
from collections.abc import MutableMapping


def take_huge_pages(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let torch ask Linux for huge pages, unless the environment says something else.

    It must come before torch's first large tensor.  Where the system grants none, nothing changes.
    """
    environment.setdefault("THP_MEM_ALLOC_ENABLE", "1")
