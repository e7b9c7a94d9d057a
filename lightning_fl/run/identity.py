"""What a run's result depends on: the one list by which runs are named, found again, resumed and compared.

A name survives new versions of the package: it is a hash of the settings that count and of `RESULTS`.

* Null and empty values are left out, so adding a setting whose null means what the code did before changes no name.
  Where null is not what a class does without the setting, `UNSAID` has what it does, which is written out.
* A setting that is added with another value for what the code did before goes into `ADDED`; it is left out of runs that
  have that value.
* `REVISED` has the version in which a class last changed its numbers: only the names of runs that use it change, and
  their cells of scripts/tables/measured are measured again.
* Of a class that is not installed, such as a rule of your own, the file that its ``_target_`` names counts: edited, it
  makes another run.
* Of a file that a setting names, such as ``partition.path``, the content counts, not the place.
* `RESULTS` is raised when a change to the code changes the numbers of all runs.  Every name changes with it.

Settings come in four forms: `counted`, without what changes no result; `essential`, of those what is named, which makes
the name (`identity`); `alike`, of these all but the reference, to find runs with equal settings; and `comparable`,
`counted` ones of several runs made alike, to show in which they differ.
"""

import hashlib
import json
import os
from collections.abc import Hashable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from sysconfig import get_paths
from typing import Any

from omegaconf import DictConfig, OmegaConf

Config = dict[str, Any]

RESULTS = "0.1.0"  # the version in which all numbers last changed

# By class, the version in which its own numbers last changed, if that was after `RESULTS`.
REVISED = {
    "lightning_fl.adversary.adaptive.Adaptive": "0.2.0",  # more lines, and what opt_ipm and opt_alie try
    "lightning_fl.aggregator.arc.Arc": "0.2.0",  # before NNM: clipped rows equally far from a row of zeros share places
    "lightning_fl.aggregator.clipped_clustering.ClippedClustering": "0.2.0",  # rows of zeros join the largest cluster
    "lightning_fl.aggregator.correntropy.Correntropy": "0.2.0",  # half of the weight is no majority, however rounded
    "lightning_fl.aggregator.rejection.AverageRejection": "0.2.0",  # ties are drawn, not decided by row order
}

# By the class that takes it, or the package of such classes ("": of no group), each setting added since, with the value
# that means what the code did before.
ADDED: dict[str, Config] = {
    "lightning_fl.adversary": {"from_round": 0, "every": 1},
    **{
        f"lightning_fl.adversary.{attack}": {"momentum": "own"}
        for attack in [
            *["badnets.Badnets", "bit_flip.BitFlip", "dba.Dba", "edge_case.EdgeCase", "label_flip.LabelFlip"],
            *["label_flip.LabelFlipPair", "label_flip.LabelFlipRandom", "model_replacement.ModelReplacement"],
            "neurotoxin.Neurotoxin",
        ]
    },
    **{
        f"lightning_fl.client.{client}": {"momentum": 0.0, "momentum_reset": True, "weight_decay": 0.0}
        for client in ["fedprox.FedProx", "local_sgd.LocalSgd", "momentum.Momentum"]
    },
    "lightning_fl.adversary.lie.Lie": {"drawn": False, "sign": "plus"},
    "lightning_fl.adversary.sign_flip.SignFlip": {"in_turn": False},
    "lightning_fl.aggregator.krum.Krum": {"neighbours": "n-f-2"},
    "lightning_fl.aggregator.krum.MultiKrum": {"neighbours": "n-f-2"},
    "lightning_fl.data": {"client_scores": False},
    **{
        f"lightning_fl.data.{table}": {"vocabulary": 20000, "length": 70, "tokens": "words"}
        for table in ["csv.Csv", "huggingface.HuggingFace"]
    },
    "lightning_fl.federation.Federation": {"sampling": "groups"},
    "lightning_fl.model.lenet.Lenet": {"padding": 0},
    "lightning_fl.model.torchvision.Torchvision": {"stem": "imagenet", "norm": "group"},
    "pytorch_lightning.Trainer": {"precision": "32-true"},
}

# By class or package, what a class takes for a setting that is not there, where null means something else.
UNSAID: dict[str, Config] = {
    **{
        f"lightning_fl.adversary.{attack}": {"target": 0}
        for attack in ["badnets.Badnets", "dba.Dba", "model_replacement.ModelReplacement", "neurotoxin.Neurotoxin"]
    },
    "lightning_fl.adversary.label_flip.LabelFlipPair": {"source": 2},
    "lightning_fl.client.frpg.Frpg": {"batch_size": 15},
    "lightning_fl.client.local_optimizer.LocalOptimizer": {"learning_rate": 0.001},
    "lightning_fl.client.rsa.Rsa": {"batch_size": 15},
    "lightning_fl.data": {"server_samples": 20},
    "lightning_fl.data.ag_news.AgNews": {"server_samples": 30},
    "lightning_fl.data.leaf.Leaf": {"server_samples": 0},
    "lightning_fl.data.newsgroups.Newsgroups": {"server_samples": 30},
}

# What does not count: where a run is kept and how it is shown; how it is watched; what computes it.
PLACES = {"run_name", "run_group", "method_name", "run_dir", "data_dir", "reference_dir", "updates_dir", "logger"}
PLACES |= {"data.root", "data.corruption_cache", "trainer.enable_progress_bar"}
_WATCHING = {"ckpt_path", "checkpoint_every", "trainer.log_every_n_steps", "trainer.enable_model_summary"}
_WATCHING |= {"callbacks.model_checkpoint", "callbacks.learning_rate_monitor", "trainer.profiler"}
_COMPUTING = {f"trainer.{key}" for key in ("accelerator", "devices", "num_nodes", "strategy")}
_BESIDE = PLACES | _WATCHING | _COMPUTING

# How the name of a setting ends that is a file for certain, even if its value looks like any word.
_OF_FILES = {"path", "file", "csv"}

_BY_ROOT = "lightning_fl.data.torchvision.Torchvision"
# Null and absent mean the same there; no aggregator is plain averaging, no loss cross-entropy or the model's own.
_NOTHING = ("aggregator", "adversary", "loss", "schedule")
_AVERAGE = {"_target_": "lightning_fl.aggregator.average.Average"}

# Parts of the package itself, and those of whatever it runs with, wherever they are installed.
_OURS = ("lightning_fl", "torch", "pytorch_lightning")
_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = Path(get_paths()["stdlib"]).resolve()


def identity(config: DictConfig) -> str:
    """Name a run by what its result depends on: its `essential` settings, resolved; see `name_of`."""
    settings: Any = OmegaConf.to_container(config)
    # Replaced before resolving: other settings interpolate these, and a logger's may need what only one machine has.
    settings |= {"data_dir": "", "run_dir": "", "run_name": "", "logger": None}
    if not settings.get("adversary"):
        settings["federation"]["n_byzantine"] = 0
    resolved: Any = OmegaConf.to_container(OmegaConf.create(settings), resolve=True)
    return name_of(essential(resolved))


def name_of(settings: Config) -> str:
    """Hash what a result depends on, and `RESULTS`, to 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps([RESULTS, settings], sort_keys=True).encode()).hexdigest()[:16]


def counted(config: Config) -> Config:
    """Leave out the settings that do not change a result; ``n_byzantine`` is 0 without an attack."""
    found: Config = {}
    for group, value in config.items():
        if isinstance(value, dict):
            # A data set of another project, and some of torchvision's, choose their data by root.
            kind = str(value.get("_target_"))
            ours = group != "data" or (kind.startswith("lightning_fl.") and kind != _BY_ROOT)
            value = {key: inner for key, inner in value.items() if not (ours and f"{group}.{key}" in _BESIDE)}
            if group == "federation" and not config.get("adversary"):
                value["n_byzantine"] = 0
        if group not in _BESIDE:
            found[group] = value
    return found


def essential(config: Config) -> Config:
    """Leave out of `counted` null and empty values, and `ADDED` settings that mean what the code did before.

    Parts that were `REVISED` say so.
    """
    found: Config = said(counted(config))
    return found


def said(node: Any, key: str = "") -> Any:
    """Replace files by what they hold in settings or a part of them, and leave out what means nothing."""
    if isinstance(node, str):
        return _content(node, key)
    if isinstance(node, list):
        return [said(value, key) for value in node]
    if not isinstance(node, dict):
        return node
    kind = str(node.get("_target_", ""))
    node, added = _of(UNSAID, kind) | node, _of(ADDED, kind)
    kept = {key: said(value, key) for key, value in node.items() if not (key in added and value == added[key])}
    if kind in REVISED:
        kept["_revised_"] = REVISED[kind]
    if (source := own_source(kind)) is not None:
        kept["_code_"] = _digest(source)
    return {key: value for key, value in kept.items() if value not in (None, {}, [], "")}


def _of(settings: dict[str, Config], kind: str) -> Config:
    return settings.get(kind.rsplit(".", 2)[0], {}) | settings.get(kind, {})


def _content(text: str, key: str) -> str:
    """Replace the name of a file by a hash of what it holds; other words stay, even where a file has the same name."""
    if os.sep not in text and "." not in text and key.rpartition("_")[2] not in _OF_FILES:
        return text
    path = Path(text)
    try:
        if path.is_file():
            known = path.stat()
            return f"sha256:{_known_digest(path.absolute(), known.st_mtime_ns, known.st_size)}"
    except OSError:  # who reads it says so in better words
        pass
    return text


@cache  # a file of word vectors is large, and a table asks for it in every cell
def _known_digest(path: Path, changed: int, size: int) -> str:
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def own_source(target: str) -> Path | None:
    """Find the file of a class or function that may be edited; None if it is ours, installed or not there."""
    if target.partition(".")[0] in {"", *_OURS}:
        return None
    found, parts = None, target.split(".")[:-1]
    for depth in range(1, len(parts) + 1):
        try:
            inner = find_spec(".".join(parts[:depth]))
        except (ImportError, ValueError):  # composing says so in better words
            break
        found = inner or found
        if not (inner and inner.submodule_search_locations):  # a module; what follows is a class and its function
            break
    if not (found and found.has_location and found.origin):
        return None
    source = Path(found.origin).resolve()
    return None if source.is_relative_to(_STANDARD) or not _INSTALLED.isdisjoint(source.parts) else source


def overridden(override: str) -> str:
    """Name the setting that an override sets, adds or removes.

    >>> [overridden(override) for override in ["seed=1", "+f=2", "~callbacks"]]
    ['seed', 'f', 'callbacks']
    """
    return override.lstrip("+~").partition("=")[0]


def beside(override: str) -> bool:
    """Whether an override changes no result, whatever the run: where it is kept, how it is watched, what computes it.

    >>> [beside(override) for override in ["logger.wandb.project=x", "trainer.devices=2", "method=raga"]]
    [True, True, False]
    """
    name = overridden(override)
    return not name.startswith("data.") and not _BESIDE.isdisjoint({name, name.partition(".")[0]})


def alike(config: Config) -> Hashable:
    """Give what is equal for two runs if only the reference of max-recall-drop and what is not `essential` differ.

    A whole number is equal to itself with a point, and no aggregator to plain averaging, which a name tells apart.
    """
    return _frozen(essential({**config, **_chosen(config), "reference": None}))


def _chosen(config: Config) -> Config:
    """Give the groups of `_NOTHING`, empty where nothing is chosen or what that means."""
    parts = {group: config.get(group) or {} for group in _NOTHING}
    return {group: {} if part == _AVERAGE else part for group, part in parts.items()}


def _frozen(node: Any) -> Hashable:
    if isinstance(node, dict):
        return frozenset((key, _frozen(value)) for key, value in node.items())
    return tuple(map(_frozen, node)) if isinstance(node, list) else node


def _filled(node: Any, kind: str | None = None) -> Any:
    """Give each part the `ADDED` settings that it lacks."""
    if not isinstance(node, dict):
        return node
    added = _of(ADDED, str(node.get("_target_")) if kind is None else kind)
    return {key: _filled(value) for key, value in (added | node).items()}


def comparable(configs: Sequence[Config]) -> list[Config]:
    """List the settings that tell runs apart: those that are `counted`, except the reference of max-recall-drop.

    Without an attack there is no number of attackers; seeds that follow the run's seed in all runs that have them are
    replaced by a word; a run that is older than an `ADDED` setting has it.
    """

    def seeds(config: Config) -> dict[tuple[str, str], bool]:
        own, groups = config.get("seed"), [(group, z) for group, z in config.items() if isinstance(z, dict)]
        return {(group, key): v == own for group, inner in groups for key, v in inner.items() if key.endswith("seed")}

    found = list(map(seeds, configs))
    following = {place for places in found for place in places if all(other.get(place, True) for other in found)}

    def kept(config: Config) -> Config:
        left = counted(_filled(config | _chosen(config), ""))
        left.pop("reference", None)
        if not config.get("adversary"):
            (left.get("federation") or {}).pop("n_byzantine", None)
        for group, key in following:
            if isinstance(part := left.get(group), dict) and key in part:
                part[key] = "seed"
        return left

    return [kept(config) for config in configs]
