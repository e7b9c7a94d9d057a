"""The standing as one page that opens without network or server: a tab per degree of skew, sorted and filtered.

Whoever reads it chooses what attackers may know and what a rule may need; worst cases and ranks follow.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lightning_fl.run.assemble import knowledge, make
from lightning_fl.run.config import compose, file_of, is_own
from lightning_fl.study.standings import Estimate, Standing
from lightning_fl.study.tournament import NOBODY, Entries, Panel, Tournament, accuracy
from lightning_fl.text import plain

# What a rule may need beside the updates, as the page calls it.
NEEDS = {
    "needs_server": "samples at the server",
    "needs_ids": "who sent what",
    "needs_model": "the model",
    "needs_layout": "the model's tensors",
    "remembers": "a memory",
}
MOMENTUM = "clients' momentum"
_REFUSED = "left out of the worst case, since they cannot be run against it"


def standing_page(
    tournament: Tournament,
    panels: Mapping[Panel, Sequence[Standing]],
    titles: Sequence[str],
    how: Sequence[str],
    pages: Mapping[str, str] | None = None,
) -> str:
    """Write the page.

    Args:
        tournament: What was played.
        panels: The standing at each of them.
        titles: Titles of the tabs, one per panel.
        how: What to say of the measurement, a paragraph each.
        pages: Addresses of rules' pages, if there are any, by the names of conf/aggregator.
    """
    leagues: list[dict[str, Any]] = [
        {"title": title, "rules": [_rule(tournament, one, panel, pages or {}) for one in found if one.played]}
        for title, (panel, found) in zip(titles, panels.items(), strict=True)
    ]
    met = sorted({attack for league in leagues for rule in league["rules"] for attack in rule["left"]})
    data = {
        "leagues": leagues,
        "attacks": {attack: knowledge(file_of("adversary", attack)) for attack in met},
        "how": [*map(plain, how)],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no tag ends the script
    return Path(__file__).with_suffix(".html").read_text("utf-8").replace("/*DATA*/", text)


def _rule(tournament: Tournament, one: Standing, panel: Panel, pages: Mapping[str, str]) -> dict[str, Any]:
    overrides = tuple(tournament.entries.rules[one.rule])
    cells = tournament.of(one.rule, panel)[0]
    command = next((shlex.join(["lightning-fl", "train", *cell.command]) for cell in cells), "")
    (name,) = [override.partition("=")[2] for override in overrides if override.startswith("aggregator=")][-1:] or [""]
    note = f"{', '.join(one.left_out)}: {_REFUSED}." if one.left_out else f"It cannot be run: {one.refused}"
    return {
        "rule": plain(one.rule),
        "own": one.rule not in _ours() or (bool(name) and is_own("aggregator", name)),
        "needs": needs(overrides),
        "clean": _percent(one.clean),
        "left": {attack: v for attack, v in left(tournament, one.rule, panel).items() if attack != NOBODY},
        "kappa": one.kappa,
        "ms": one.rule_ms,
        "note": plain(note) if one.left_out or one.refused else "",
        "page": pages.get(name, ""),
        "command": plain(command),
    }


def left(tournament: Tournament, rule: str, panel: Panel) -> dict[str, list[float | None]]:
    """Give by attack, nobody's included, the accuracy in percent that it leaves at each seed.

    None: the seed does not play the attack, or not yet all that it is to play.
    """
    cells = tournament.of(rule, panel)[0]
    rows = {(cell.labels.attack, cell.seed): row for cell in cells if (row := tournament.row(cell)) is not None}
    attacked = [cell for cell in cells if cell.labels.attack != NOBODY]
    open_seeds = {cell.seed for cell in attacked if (cell.labels.attack, cell.seed) not in rows}
    done = {place: row for place, row in rows.items() if place[1] not in open_seeds and row["status"] != "refused"}
    found = {
        attack: [
            100 * accuracy(row) if (row := done.get((attack, seed))) else None for seed in tournament.entries.seeds
        ]
        for attack in dict.fromkeys(cell.labels.attack for cell in cells)
    }
    return {attack: values for attack, values in found.items() if any(value is not None for value in values)}


def _percent(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"mean": 100 * estimate.mean, "low": 100 * estimate.low, "high": 100 * estimate.high}


@cache
def _ours() -> frozenset[str]:
    return frozenset(Entries.choose().rules)


@cache
def needs(overrides: tuple[str, ...]) -> list[str]:
    """Say what the rule of these overrides needs, beside the updates.

    >>> needs(("aggregator=fltrust",)), needs(("aggregator=krum", "client=momentum"))
    (['samples at the server'], ["clients' momentum"])
    """
    rule = make(compose(overrides).aggregator)
    return [text for name, text in NEEDS.items() if getattr(rule, name)] + [MOMENTUM] * ("client=momentum" in overrides)
