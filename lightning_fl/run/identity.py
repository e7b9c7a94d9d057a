"""What a run's result depends on."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lightning_fl import __version__

Config = dict[str, Any]

# What says where a run lies and how it is shown; then what says how it is watched.
PLACES = {"run_name", "run_dir", "data_dir", "reference_dir", "logger", "data.root", "data.corruption_cache"}
PLACES |= {"trainer.enable_progress_bar"}
_WATCHING = {"reference", "ckpt_path", "checkpoint_every"}
_COMPUTING = {"_target_", "max_steps"}  # of trainer
_NOTHING = ("aggregator", "adversary", "schedule")  # null and absent mean the same there


def identity(config: DictConfig) -> str:
    """Name a run by what its result depends on: 16 hexadecimal digits, a hash of the settings and the version.

    Folders, loggers, checkpoints and the machine do not count; nor does ``n_byzantine`` where nobody attacks, nor what
    is null or empty, so that names outlive settings yet to be added.
    """
    settings: Any = OmegaConf.to_container(config)
    elsewhere = {"data_dir": "", "run_dir": "", "run_name": ""}  # others refer to these
    for key in ("reference_dir", "ckpt_path", "checkpoint_every", "logger"):
        settings.pop(key, None)
    for key in ("accelerator", "devices", "enable_progress_bar", "log_every_n_steps", "enable_model_summary"):
        settings["trainer"].pop(key, None)
    if not settings.get("adversary"):
        settings["federation"]["n_byzantine"] = 0
    resolved = OmegaConf.to_container(OmegaConf.create(settings | elsewhere), resolve=True)
    text = json.dumps([__version__, _without_empty(resolved)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_empty(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    kept = {key: _without_empty(value) for key, value in settings.items()}
    return {key: value for key, value in kept.items() if value not in (None, {}, [], "")}


def comparable(configs: Sequence[Config]) -> list[Config]:
    """What each run computes, without attackers where nobody attacks; seeds that follow the runs' own all say so."""

    def seeds(config: Config) -> set[tuple[str, str]]:
        own, groups = config.get("seed"), [(group, z) for group, z in config.items() if isinstance(z, dict)]
        return {
            (group, key) for group, inner in groups for key, v in inner.items() if key.endswith("seed") and v == own
        }

    following = set.intersection(*map(seeds, configs)) if configs else set()

    def kept(config: Config) -> Config:
        found: Config = {}
        for group, value in (config | {group: config.get(group) or {} for group in _NOTHING}).items():
            if group in PLACES | _WATCHING:
                continue
            if isinstance(value, dict):
                value = {
                    key: "seed" if (group, key) in following else v
                    for key, v in value.items()
                    if f"{group}.{key}" not in PLACES
                    and (group != "trainer" or key in _COMPUTING)
                    and not (key == "n_byzantine" and not config.get("adversary"))
                }
            found[group] = value
        return found

    return [kept(config) for config in configs]
