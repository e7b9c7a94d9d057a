"""A setting's kind is what the signature says that it goes to."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from lightning_fl import SettingError
from lightning_fl.aggregator.base import Aggregator
from lightning_fl.run.kinds import check_kind, check_kinds


class Base:
    def __init__(self, size: int | None = None, words: Literal["a", "b"] = "a"):
        pass


class Part(Base):
    def __init__(self, rate: float, shape: Sequence[int] = (), made: object = None, untold=None, **settings: Any):
        pass


NODE = {"_target_": f"{__name__}.Part"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": "fast"}, "p.rate needs a number, got 'fast'"),
        ({"rate": True}, "p.rate needs a number, got True"),
        ({"rate": "???"}, "p.rate has no default; give it a value"),
        ({"size": 1.5}, "p.size needs a whole number or null, got 1.5"),
        ({"size": 2**63}, "p.size needs a whole number of at most 63 bits"),
        ({"shape": 3}, r"p.shape needs a list \(a whole number each\), got 3"),
        ({"shape": [3, None]}, "p.shape needs a list"),
        ({"words": 3}, "p.words needs text, got 3"),
        ({"sise": 3}, "there is no setting p.sise; did you mean size. valid: made, rate, shape, size, untold, words"),
        ({"_partial_": True, "rate": 1.0}, "there is no setting p.rate; valid: made, shape, size, untold, words"),
        ({"_partial_": 3}, "p._partial_ needs true or false, got 3"),
        ({"made": {**NODE, "rate": "fast"}}, "p.made.rate needs a number, got 'fast'"),
        ({"_target_": "no_such_module.Part"}, r"p._target_ needs the name of a class, got no_such_module.Part"),
        ({"_target_": "torch.optim.SGD", "lr": float("nan")}, "p.lr needs a finite number, got nan"),
    ],
)
def test_other_kinds_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        check_kinds(NODE | settings, "p")


@pytest.mark.parametrize("line", ["def broken(:", "import no_such_package", "1 / 0"])
def test_a_module_with_an_error_is_not_said_to_be_absent(line, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"broken_by_{len(line)}"
    (tmp_path / f"{name}.py").write_text(line)
    with pytest.raises(SettingError, match=rf"p._target_ is {name}.Part, which cannot be imported \(\w+Error: "):
        check_kinds({"_target_": f"{name}.Part"}, "p")


@pytest.mark.parametrize(
    "settings",
    [{"rate": 1}, {"rate": float("inf")}, {"size": None}, {"shape": [1, 2]}, {"words": "c"}, {"untold": [{}]}],
)
def test_a_part_checks_its_values_itself(settings):
    check_kinds(NODE | settings, "p")


@pytest.mark.parametrize(("value", "hint"), [(3, Aggregator), (3, Callable[[int], float]), ({"a": 1}, int), ([], str)])
def test_what_a_file_cannot_hold_is_refused(value, hint):
    with pytest.raises(SettingError, match=r"p needs .*, got"):
        check_kind("p", value, hint)
