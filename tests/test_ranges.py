from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from math import inf, nan
from typing import Annotated, Literal

import numpy as np
import pytest
import torch
from annotated_types import Ge, Le

from lightning_fl import SettingError
from lightning_fl.ranges import (
    Checked,
    FiniteFloat,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
)


class Some(Checked):
    def __init__(self, f: NonNegativeInt = 0, *, size: PositiveFloat | None = 2.0):
        self.f, self.size = f, size


class TwoWords(Checked):
    def __init__(
        self,
        steps: PositiveInt | None = None,
        share: Share = 0.5,
        eps: Fraction = 0.1,
        low: Annotated[float, Ge(-inf), Le(0)] = -0.5,
        noise: NonNegativeFloat = 0.0,
        factor: FiniteFloat = 1.0,
        rate: float = 1.0,
        count: int = 1,
        norm: Literal["l1", "l2"] = "l2",
        who: Literal["server"] | NonNegativeInt = "server",
        flag: bool = False,
        sizes: Sequence[PositiveInt] = (1,),
        part: Some | None = None,
        call: Callable[[int], int] = abs,
        untold=None,
    ):
        self.steps = steps


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "two_words needs steps >= 1, got 0."),
        ({"steps": 2.0}, "two_words needs a whole number or null as steps, got 2.0; round it."),
        ({"steps": "2"}, "two_words needs a whole number or null as steps, got '2'."),
        ({"steps": True}, "two_words needs a whole number or null as steps, got True."),
        ({"count": None}, "two_words needs a whole number as count, got None."),
        ({"share": 1.01}, "two_words needs 0 <= share <= 1, got 1.01; the default is 0.5."),
        ({"share": nan}, "two_words needs a finite 0 <= share <= 1, got nan; the default is 0.5."),
        ({"eps": 1}, "two_words needs 0 < eps < 1, got 1; the default is 0.1."),
        ({"eps": torch.tensor(2.0)}, "two_words needs 0 < eps < 1, got 2.0; the default is 0.1."),
        ({"low": 0.1}, "two_words needs low <= 0, got 0.1; the default is -0.5."),
        ({"low": nan}, "two_words needs a finite low <= 0, got nan; the default is -0.5."),
        ({"noise": inf}, "two_words needs a finite noise >= 0, got inf; the default is 0.0."),
        ({"factor": -inf}, "two_words needs a finite factor, got -inf; the default is 1.0."),
        ({"rate": "fast"}, "two_words needs a number as rate, got 'fast'."),
        ({"norm": "l3"}, "two_words's norm must be one of l1, l2, got 'l3'."),
        ({"norm": 3}, "two_words needs text as norm, got 3."),
        ({"who": "me"}, "two_words's who must be one of server, got 'me'."),
        ({"who": -1}, "two_words needs who >= 0, got -1; the default is server."),
        ({"flag": "no"}, "two_words needs true or false as flag, got 'no'."),
        ({"sizes": [3, 0]}, "two_words needs sizes >= 1, got 0."),
        ({"sizes": [3, 1.5]}, "two_words needs a list (a whole number each) as sizes, got list."),
        ({"part": Some}, "two_words needs Some or null as part, got the class Some; write Some(...)."),
    ],
)
def test_what_is_out_of_range_is_refused(settings, message):
    with pytest.raises(SettingError) as caught:
        TwoWords(**settings)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        *[{"steps": steps} for steps in (None, 1, np.int64(3), torch.tensor(3), np.array(3))],
        *[{"share": share} for share in (0, 1, np.float32(0.5), torch.tensor(0.5))],
        *[{"low": low} for low in (-inf, 0, -1)],
        *[{"rate": rate} for rate in (nan, inf, 1)],
        *[{"who": who} for who in ("server", 0, 7)],
        *[{"flag": flag} for flag in (True, np.True_)],
        *[{"sizes": sizes} for sizes in ([], (1, 2), np.array([1, 2]), torch.tensor([3]), range(1, 3))],
        *[{"part": part} for part in (None, Some())],
        *[{"call": call} for call in (len, lambda x: x, Some)],
        {"untold": object()},
    ],
)
def test_what_is_in_range_is_taken_as_given(settings):
    made = TwoWords(**settings)
    assert made.steps is settings.get("steps")


class Further(Some):
    """Passes on what it is given."""

    def __init__(self, extra: PositiveInt, **settings):
        super().__init__(**settings)


class Same(Some):
    """Takes what its base takes."""


class Hidden(Some):
    """Gives its base something of its own."""

    def __init__(self, f):
        super().__init__(f - 10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Some(-1), "some needs f >= 0, got -1"),
        (lambda: Same(size=0), "same needs size > 0, got 0; the default is 2.0"),
        (lambda: Further(0), "further needs extra >= 1, got 0"),
        (lambda: Further(1, f=-1), "further needs f >= 0, got -1"),
        (lambda: Hidden(3), "hidden needs f >= 0, got -7"),
    ],
)
def test_bases_check_their_own(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_a_call_that_does_not_fit_is_pythons_to_refuse():
    with pytest.raises(TypeError, match="unexpected keyword argument 'g'"):
        Some(g=1)
    with pytest.raises(TypeError, match="positional"):
        Some(1, 2)
    assert deepcopy(Some(3)).f == 3


def test_an_iterator_is_not_used_up():
    class Takes(Checked):
        def __init__(self, values: Iterable[PositiveInt], listed: Sequence[int] = ()):
            self.values = list(values)

    assert Takes(iter([1, 2])).values == [1, 2]
    with pytest.raises(SettingError, match=r"takes needs a list .*as listed"):
        Takes([1], iter([2]))
