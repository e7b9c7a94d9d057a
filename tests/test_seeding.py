"""Draws depend on seed and purpose alone."""

from inspect import unwrap

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_fl import SettingError
from lightning_fl.seeding import derive_seed, generator


@pytest.mark.parametrize(
    ("seed", "path", "digest"),
    [
        # GNU coreutils: printf "(0, 'attack', 17)" | b2sum -l 64
        (0, ("attack", 17), 0x505192D363EC1BE3),
        # printf "(-3, 'partition')" | b2sum -l 64
        (-3, ("partition",), 0xCB4337F71EAB3377),
    ],
)
def test_seeds_are_the_same_on_every_machine(seed, path, digest):
    assert derive_seed(seed, *path) == digest // 2


@given(st.integers(), st.lists(st.one_of(st.integers(), st.text()), max_size=3))
def test_seeds_are_in_range(seed, path):
    assert 0 <= derive_seed(seed, *path) < 2**63


def test_different_purposes_have_different_seeds():
    paths = [
        (),
        ("a",),
        ("b",),
        ("ab",),
        ("a", "b"),
        ("b", "a"),
        ("a", 1),
        ("a", "1"),
        ("a", 11),
        ("a", 1, 1),
        (1, "a"),
    ]
    seeds = {derive_seed(seed, *path) for seed in (0, 1, -1, 10) for path in paths}
    assert len(seeds) == 4 * len(paths)


def test_generators_of_rounds_differ_in_what_they_draw():
    # torch's CPU generator looks at 32 bits of the seed; they must suffice for a run's rounds and clients.
    draws = {
        tuple(torch.rand(2, generator=generator(0, "attack", r, i)).tolist()) for r in range(50) for i in range(20)
    }
    assert len(draws) == 1000


def test_a_generator_is_fresh_each_time():
    first, second = generator(3, "attack", 5), generator(3, "attack", 5)
    drawn = torch.rand(4, generator=first)
    assert torch.equal(torch.rand(4, generator=second), drawn)
    assert not torch.equal(torch.rand(4, generator=second), drawn)
    assert torch.equal(torch.rand(4, generator=generator(3, "attack", 5)), drawn)


def test_the_global_generator_stays_as_it_is():
    before = torch.get_rng_state()
    torch.rand(4, generator=generator(0, "attack"))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_kind_of_integer_is_the_number_it_is():
    kinds = [np.int64(3), np.uint8(3), torch.tensor(3)]
    assert {derive_seed(kind, "attack", kind) for kind in kinds} == {derive_seed(3, "attack", 3)}
    assert derive_seed(True) == derive_seed(1)
    for wrong in (3.0, "3", None):
        with pytest.raises(SettingError, match=f"a seed must be an integer, got {wrong!r}"):
            unwrap(derive_seed)(wrong)  # without the types that tests check
