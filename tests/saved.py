"""Folders of runs as train.py leaves them, by hand."""

import csv
import json

from omegaconf import OmegaConf

CONFIG = {
    "seed": 0,
    "f": 1,
    "data_dir": "data",
    "run_dir": "runs/x",
    "reference": None,
    "federation": {
        "_target_": "lightning_fl.federation.Federation",
        "n_clients": 3,
        "n_byzantine": 2,
        "byzantine": "supplement",
        "seed": 0,
    },
    "trainer": {"_target_": "pytorch_lightning.Trainer", "max_steps": 4, "enable_progress_bar": False},
    "data": {"_target_": "lightning_fl.data.mnist_5k.Mnist5k", "root": "data", "seed": 0, "partition_seed": 0},
    "model": {"_target_": "lightning_fl.model.mlp.Mlp", "hidden": [8]},
    "aggregator": {"_target_": "lightning_fl.aggregator.boba.Boba", "f": 1, "p_min": -0.5},
    "adversary": {"_target_": "lightning_fl.adversary.ipm.Ipm", "factor": 10.0},
}
METRICS = [
    {"round": 1, "loss": 0.7, "weight/honest": 1.0, "weight/byzantine": 0.0},
    {"round": 2, "loss": 0.6, "weight/honest": 0.5, "weight/byzantine": 0.5}
    | {"accuracy": 0.75, "recall/0": 1.0, "recall/1": 0.5},
]
WEIGHTS = [{"round": t, "0": 0.2, "1": 0.3, "2": 0.25, "3": 0.125, "4": 0.125} for t in (1, 2)]
RESULTS = {
    "accuracy": 0.75,
    "recall": [1.0, 0.5],
    "mrd": 0.25,
    "attack": None,
    "validation_accuracy": None,
    "client_accuracy": None,
}
SUMMARY = {
    "schema": 1,
    "version": "0.1.0+gabc",
    "status": "completed",
    "reason": None,
    "rounds": 2,
    **RESULTS,
    "first_evaluation": {"accuracy": 0.5, "recall": [0.0, 1.0]},
    "last_evaluation": {"round": 2, **RESULTS},
    "mean_weight": {"honest": 0.75, "byzantine": 0.25},
    "detection": {"true_alarms": 1.0, "false_alarms": 0.25, "auc": 0.875},
    "robustness": {"mean": 0.5, "max": 2.0, "infinite_rounds": 0, "bound": 12.0},
    "communication": {"floats_up": 1000, "floats_down": 2000, "sample_gradients": 30},
    "seconds": 1.25,
    "byzantine_share": 0.4,
    "n_classes": 2,
    "byzantine_clients": [3, 4],
    "reference_recall": [0.9, 0.75],
    "confusion": [[4, 0], [2, 2]],
    "guarantee": None,
    "privacy": None,
    "classes": None,
    "provenance": dict.fromkeys(["command", "date", "versions", "processor"]),
}
DIVERGED = {"status": "diverged", "reason": "round 3: <the> loss is nan", **dict.fromkeys(RESULTS)}


def changed(config, **changes):
    """A configuration with settings replaced, by their dotted names with __ for a dot."""
    copy = OmegaConf.create(config)
    for name, value in changes.items():
        OmegaConf.update(copy, name.replace("__", "."), value, merge=False)
    return OmegaConf.to_container(copy)


def run(folder, config=CONFIG, metrics=METRICS, weights=WEIGHTS, summary=SUMMARY):
    """Write a run's files; None leaves one out."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    for name, rows in [("metrics", metrics), ("weights", weights)]:
        if rows:
            with (folder / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
                writer.writeheader()
                writer.writerows(rows)
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder
