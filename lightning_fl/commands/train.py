"""Train one federation and measure what survives.

python scripts/train.py +aggregator=boba                     BOBA against IPM on embedded MNIST images
python scripts/train.py +aggregator=boba adversary=mimic     another attack
python scripts/train.py experiment=boba_mnist                a setting of a paper
python scripts/train.py -m +aggregator=average,boba          several runs
python scripts/train.py --help                               every group and setting
"""

import logging
import os
import sys
import warnings
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lightning_fl.run.config import CONF, check_choices, settle, spelled
from lightning_fl.run.explain import explained


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def run(config: DictConfig) -> None:
    """Train what the command line asks for."""
    with explained():
        # Not earlier: a name that is not there is told before torch is imported.
        from lightning_fl.run.check import check
        from lightning_fl.run.reference import reference_recall
        from lightning_fl.run.train import train

        check(config, HydraConfig.get().runtime.choices)
        summary = train(settle(config), Path(config.run_dir), reference_recall(config))
        if summary["status"] == "interrupted":
            raise KeyboardInterrupt  # ends the other runs of -m, too


def main() -> None:
    """Run the command line."""
    arguments = spelled(sys.argv[1:])  # Hydra takes flags only before the rest
    sys.argv[1:] = sorted(arguments, key=lambda argument: argument not in {"-m", "--multirun"})
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # lets errors come through, to be explained here
    with explained():
        check_choices(arguments)
        run()
