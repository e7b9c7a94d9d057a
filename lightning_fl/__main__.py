"""The command ``lightning-fl``.

lightning-fl init FOLDER                     begin a project of your own, with sweeps and a notebook
lightning-fl train +aggregator=boba          train one federation, or with -m several
lightning-fl sweep my_sweep.yaml             run a sweep file of Weights & Biases on this machine
lightning-fl reproduce boba_2_mnist          measure a table of a paper
lightning-fl compare FOLDER FOLDER           compare any number of runs, over seeds
lightning-fl tournament --quick              let rules compete under every attack and label skew
lightning-fl submit my_rule                  send a rule of your own, or an attack on one, to the standing
lightning-fl worst my_rule.py:MyRule         what Byzantine clients could do to a rule, whoever wrote it
lightning-fl audit FOLDER                    whom each rule would have trusted, from the rounds that a run has kept
lightning-fl advise sites.csv                what robust rules would cost and save for your own sites
lightning-fl plot RUN RUN                    draw runs, or partition: who holds which classes
lightning-fl list aggregator                 what can be chosen, a sentence on each
lightning-fl skills .claude/skills           for coding assistants: to add a rule, run a table, read a standing
lightning-fl check-device                    what the accelerator of a new machine computes, beside its CPU

lightning-fl COMMAND --help explains each of them.
"""

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run the command line."""
    known = sorted(path.stem.replace("_", "-") for path in Path(__file__).with_name("commands").glob("[a-z]*.py"))
    command, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if command in ("-h", "--help"):
        print((__doc__ or "").strip())
    elif command == "--version":
        print(import_module("lightning_fl").__version__)
    elif command not in known:
        hint = f" did you mean {' '.join(['lightning-fl train', *sys.argv[1:]])}?" if "=" in command else ""
        print(f"Error: there is no command {command};{hint} valid: {', '.join(known)}.", file=sys.stderr)
        sys.exit(2)
    else:
        sys.argv = [f"lightning-fl {command}", *rest]
        run(command)


def run(command: str) -> None:
    """Run one command on ``sys.argv``; Ctrl-C while its modules are imported is quiet, too."""
    try:
        import_module(f"lightning_fl.commands.{command.replace('-', '_')}").main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
