"""List what can be chosen, your own configurations included.

lightning-fl list                  every group, and how many choices it has
lightning-fl list aggregator       its choices, each with the first sentence of its file

lightning-fl train aggregator=boba --help prints the file: every setting with its range.
"""

import sys

from lightning_fl.commands import parser_of
from lightning_fl.run.config import GROUPS, choices, choose, file_of, sentence, take_own
from lightning_fl.run.explain import explained


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("group", nargs="?", metavar="GROUP", help="such as aggregator; without: every group")
    with explained():
        group = parser.parse_args(take_own(sys.argv[1:])).group
        if group is None:
            rows = [(name, f"{len(choices(name))}: {', '.join(choices(name))}") for name in GROUPS]
        else:
            names = choices(choose(group, GROUPS, "group"))
            rows = [(name, sentence(file_of(group, name))) for name in names]
        width = max(len(name) for name, _ in rows)
        print("\n".join(f"{name:<{width}}  {said}".rstrip() for name, said in rows))
