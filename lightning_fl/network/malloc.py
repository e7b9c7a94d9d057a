"""Memory that a round gives back and the next one takes again.

By default glibc returns what is freed to the system, and asks anew for every large tensor.  To touch its fresh pages
takes about as long as to compute a small convolution: rounds of LeNet lose a quarter to a third of their time.
"""

import ctypes
import os
import platform
from collections.abc import Mapping

# Where somebody has said what glibc keeps.
_CHOICES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"}
# Numbers of the settings in malloc.h: freed bytes to keep, and from how many bytes on a tensor has pages of its own.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGE = 2**31 - 1, 2**25  # the most that it takes


def keep_freed(environment: Mapping[str, str] = os.environ) -> bool:
    """Let this process keep up to 2 GiB that it frees, of tensors up to 32 MiB each; glibc only.

    Returns:
        Whether it does now; not where the environment says something else, or the C library is another.
    """
    if platform.libc_ver()[0] != "glibc" or _CHOICES & environment.keys():
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_MMAP_THRESHOLD, _LARGE) and library.mallopt(_TRIM_THRESHOLD, _KEPT))
