"""A table small enough to think through, and its runs' folders without the runs."""

import json
from pathlib import Path

from tests import saved

SMALL = {
    "title": "A small table",
    "source": "Nobody",
    "base": "data=mnist_5k trainer.max_steps=3 trainer.val_check_interval=2 model.hidden=[8] trainer.accelerator=cpu",
    "reference": ["Average"],
    "chance": "10.0",
    "seeds": "2",
    "rows": {"Average": "aggregator=average", "BOBA": "aggregator=boba"},
    "columns": {
        "Acc": "adversary=none",
        "MRD": {"overrides": "adversary=none", "value": "mrd"},
        "IPM": "adversary=ipm",
        "LIE": "adversary=lie",
        "Wst": {"worst": ["IPM", "LIE"]},
    },
    "published": {
        "Average": ["92.5 (0.1)", "-", "9.8 (0.0)", "92.4 (0.1)", "9.8"],
        "BOBA": ["92.5 (0.1)", "1.3 (1.7)", "91.6 (0.2)", "92.5 (0.2)", "91.5"],
    },
    "doubtful": [{"rows": ["BOBA"], "columns": ["Wst"], "reason": "a reason"}],
    "claims": [
        {
            "text": "BOBA is best",
            "left": {"rows": ["BOBA"], "columns": ["Wst"]},
            "relation": ">=",
            "right": {"rows": "others"},
        },
    ],
}


OWN = """
title: My comparison
seeds: 3
interval: true
rows: [aggregator=krum, aggregator=boba aggregator.f=3]
columns: {IPM: adversary=ipm, LIE: adversary=lie, worst: {worst: all}}
"""


def finish(folder: Path, evaluations, status="completed", recall=None):
    """Write what train.py leaves of a run with these (round, percent)."""
    saved.run(folder, metrics=None, weights=None)
    with (folder / "metrics.csv").open("w") as file:
        names = [f"aggregator/{name}" for name in ("fits", "explained", "loss_ratio")]
        file.write(f"round,loss,seconds/aggregator,{','.join(names)},accuracy\n1,2.0,0.001,6,0.96,1.4,\n")
        file.writelines(f"{number},0.5,0.003,2,1.0,1.0,{accuracy / 100}\n" for number, accuracy in evaluations)
    last = {"accuracy": evaluations[-1][1] / 100 if evaluations else None, "recall": recall or [0.5, 0.25]}
    summary = saved.SUMMARY | {"status": status, "rounds": 12, "last_evaluation": last, "seconds": 100.0}
    summary["byzantine_share"] = 0.2
    (folder / "summary.json").write_text(json.dumps(summary))


def everything(value=90.0):
    return {(row, column, seed): value for row in SMALL["rows"] for column in ("Acc", "IPM", "LIE") for seed in (0, 1)}
