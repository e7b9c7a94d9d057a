"""Sweep files of Weights & Biases, read and checked by its rules."""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import yaml

from lightning_fl import yaml_file
from lightning_fl.errors import SettingError
from lightning_fl.text import said

Axis = list[Any] | Callable[[float], Any]  # a parameter's values, or its value at u in [0, 1]

KEYS = ("program", "command", "method", "metric", "parameters", "run_cap", "name", "description", "project", "entity")
METHODS = ("grid", "random", "bayes")
METRICS = {  # what they are called in summary.json
    f"{prefix}{name}": name for prefix in ("final/", "") for name in ("accuracy", "validation_accuracy", "mrd")
}
LISTED = {"constant": "value", "categorical": "values"}

# Distributions by their quantile functions.
QUANTILES: dict[str, Callable[[float, dict[str, Any]], Any]] = {
    "uniform": lambda u, s: s["min"] + u * (s["max"] - s["min"]),
    "int_uniform": lambda u, s: min(s["min"] + int(u * (s["max"] - s["min"] + 1)), s["max"]),
    "log_uniform_values": lambda u, s: s["min"] * (s["max"] / s["min"]) ** u,
    "normal": lambda u, s: NormalDist(s.get("mu", 0), s.get("sigma", 1)).inv_cdf(min(max(u, 1e-9), 1 - 1e-9)),
}
KINDS = (*LISTED, *QUANTILES)


def read(path: Path) -> dict[str, Any]:
    """Read a sweep file; its parameters are for `axis`.

    Raises:
        SettingError: If W&B would refuse it, or it does not sweep train.py or ``lightning-fl train``.
    """
    try:
        content = yaml_file.load(path.read_text("utf-8"), yaml.SafeLoader, environment=False)
    except OSError as error:
        beside = ", ".join(sorted(file.name for file in path.parent.glob("*.yaml"))) or "none"
        hint = f"files there: {beside}; lightning-fl init FOLDER brings some"
        raise SettingError(f"a sweep needs a file, got {path} ({error.strerror}); {hint}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} cannot be read: {said(error)}.") from error
    content = content if isinstance(content, dict) else {}
    command, metric = content.get("command"), content.get("metric")
    named = metric if isinstance(metric, dict) else {}
    parameters, cap = content.get("parameters"), content.get("run_cap", 1)
    for fits, what, got in [
        (
            not set(content) - {*KEYS, "early_terminate"},
            f"only the keys {', '.join(KEYS)}",
            ", ".join(map(str, content)),
        ),
        (
            command is None or (isinstance(command, list) and "${args_no_hyphens}" in command),
            "${args_no_hyphens} in command",
            command,
        ),
        (
            fixed(content) is not None,
            "program: scripts/train.py, or command: [${env}, lightning-fl, train, ${args_no_hyphens}]",
            " ".join(_command(content)),
        ),
        (content.get("method") in METHODS, f"method {', '.join(METHODS)}", content.get("method")),
        (str(named.get("name")) in METRICS, f"metric with name {', '.join(METRICS)}", metric),
        (named.get("goal", "minimize") in ("minimize", "maximize"), "metric.goal minimize or maximize", metric),
        (type(cap) is int and cap > 0, "run_cap at least 1", cap),
        (isinstance(parameters, dict) and parameters, "parameters", parameters),
    ]:
        if not fits:
            raise SettingError(f"{path} needs {what}, got {got}.")
    return content


def fixed(content: dict[str, Any]) -> list[str] | None:
    """List the words after the program in a file's command: settings of every run; None if it does not train."""
    words = _command(content)
    for i, word in enumerate(words):
        if word.endswith("train.py"):
            return words[i + 1 :]
        if word.rpartition("/")[2] in ("lightning-fl", "lightning_fl") and words[i + 1 : i + 2] == ["train"]:
            return words[i + 2 :]
    return None


def _command(content: dict[str, Any]) -> list[str]:
    """A file's command; without one, W&B's own, which gives the program --NAME=VALUE."""
    program, command = str(content.get("program")), content.get("command")
    default = ["${program}", *(["train"] if program.rpartition("/")[2] == "lightning-fl" else [])]
    return [
        program if word == "${program}" else str(word) for word in (command if isinstance(command, list) else default)
    ]


def axis(name: str, spec: Any, method: str) -> Axis:
    """Read one parameter.

    Args:
        name: The parameter's name.
        spec: What the file says about it.
        method: "grid", "random" or "bayes".

    Returns:
        Its values, or the function that gives its value at u in [0, 1]: distributed as the file says for uniform u.

    Raises:
        SettingError: If W&B would refuse it, or train.py could not read it, or there is no such distribution.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", str(name)) or not isinstance(spec, dict):
        raise SettingError(f"a parameter needs a name, and value, values or a distribution, got {name}: {spec}.")
    if "parameters" in spec:
        inner = next(iter(spec["parameters"]), "x") if isinstance(spec["parameters"], dict) else "x"
        raise SettingError(f"{name} is nested, which train.py cannot read; write {name}.{inner}.")
    kind = str(spec.get("distribution", _guess(spec)))
    if kind not in KINDS:
        raise SettingError(f"{name} has distribution {kind}, which is not known here; known: {', '.join(KINDS)}.")
    needed = {LISTED[kind]} if kind in LISTED else {"min", "max"} if "uniform" in kind else set()
    allowed = {"mu", "sigma"} if kind == "normal" else set()
    if not needed <= set(spec) <= needed | allowed | {"distribution"}:
        raise SettingError(
            f"{name} ({kind}) takes {', '.join(sorted(needed | allowed))}, got {', '.join(map(str, spec))}."
        )
    if method == "grid" and kind not in (*LISTED, "int_uniform"):
        raise SettingError(f"{name} is {kind}, which a grid cannot list; give values, or method random or bayes.")
    return _listed(name, spec) if kind in LISTED else _drawn(name, spec, kind, method)


def _guess(spec: dict[str, Any]) -> str:
    """Infer the distribution of a parameter that does not name one."""
    for kind, key in LISTED.items():
        if key in spec:
            return kind
    return "int_uniform" if all(type(spec.get(key)) is int for key in ("min", "max")) else "uniform"


def _listed(name: str, spec: dict[str, Any]) -> Axis:
    values = [spec["value"]] if "value" in spec else spec["values"]
    if not isinstance(values, list) or not values:
        raise SettingError(f"{name} needs a list of values, got {values}.")
    if any(value is None or isinstance(value, dict) for value in values):
        raise SettingError(
            f'{name} needs values that train.py can read, got {values}; write null as "null", in quotes.'
        )
    return values


def _drawn(name: str, spec: dict[str, Any], kind: str, method: str) -> Axis:
    numbers = {key: number for key, number in spec.items() if key != "distribution"}
    whole = int if kind == "int_uniform" else (int, float)
    if not all(isinstance(number, whole) and not isinstance(number, bool) for number in numbers.values()):
        what = "whole numbers" if whole is int else "numbers"
        raise SettingError(f"{name} ({kind}) needs {what}, got {numbers}; to YAML 1e-3 is a word, 1.0e-3 a number.")
    if not all(-1e300 < number < 1e300 for number in numbers.values()):  # NaN is not either
        raise SettingError(f"{name} ({kind}) needs finite numbers, got {numbers}.")
    low, high, log = spec.get("min", 0), spec.get("max", 1), kind == "log_uniform_values"
    if low >= high or spec.get("sigma", 1) <= 0 or (log and low <= 0):
        above = "0 < min < max" if log else "min < max"
        raise SettingError(f"{name} ({kind}) needs {above}, and sigma above 0, got {numbers}.")
    return list(range(low, high + 1)) if method == "grid" else lambda u: QUANTILES[kind](u, spec)
