"""Laws of every partition in conf/partition: disjoint, covering (unless declared), seeded, nobody without samples."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from lightning_fl import SettingError
from lightning_fl.contract import conf


def made(name):
    """A partition as conf has it; None of one that needs a path or users, which has its own test."""
    if OmegaConf.missing_keys(conf.compose(f"partition={name}").partition):
        return None
    partition = conf.make("partition", name)
    try:
        return partition.with_users(None)
    except SettingError:
        return None


PARTITIONS = {name: partition for name in conf.names("partition") if (partition := made(name)) is not None}

every_partition = pytest.mark.parametrize("name", PARTITIONS)


def deal(name, targets, n_clients, n_classes, seed=0):
    return PARTITIONS[name](targets, n_clients, n_classes, torch.Generator().manual_seed(seed))


def check_laws(name, parts, n_samples, n_clients):
    assert len(parts) == n_clients
    assert all(part.dtype == torch.int64 and part.ndim == 1 and len(part) for part in parts)
    assert all((part[1:] > part[:-1]).all() for part in parts)  # ascending
    together = torch.cat(parts).tolist()
    assert len(set(together)) == len(together)  # disjoint
    assert set(together) <= set(range(n_samples))
    assert len(together) == n_samples or not PARTITIONS[name].covering


# The numbers of clients suit partitions that enumerate pairs of classes (c^2, 2 c^2, ...), and the samples are many.
@every_partition
@pytest.mark.parametrize(
    ("n_samples", "n_clients", "n_classes"),
    [(4000, 100, 10), (1000, 16, 4), (1001, 32, 4), (500, 4, 2), (333, 9, 3), (20, 1, 1)],
)
def test_samples_are_spread(name, n_samples, n_clients, n_classes):
    targets = torch.arange(n_samples) * 7919 % n_classes
    kept = targets.clone()
    try:
        parts = deal(name, targets, n_clients, n_classes)
    except SettingError:  # a partition by classes may refuse a single one
        assert n_classes == 1
        return
    check_laws(name, parts, n_samples, n_clients)
    assert torch.equal(targets, kept)
    again, other = deal(name, targets, n_clients, n_classes), deal(name, targets, n_clients, n_classes, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    if n_clients > 1:
        assert not all(torch.equal(a, b) for a, b in zip(parts, other, strict=True))


@every_partition
def test_the_global_generator_is_not_used(name):
    before = torch.get_rng_state()
    deal(name, torch.arange(400) % 4, 16, 4)
    assert torch.equal(torch.get_rng_state(), before)


# Any data and any number of clients: classes may be missing, clients may outnumber samples.
@every_partition
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_samples_are_spread_or_the_error_says_why_not(name, data):
    n_classes = data.draw(st.integers(1, 4), "n_classes")
    n_clients = data.draw(st.one_of(st.integers(1, 40), st.sampled_from([n_classes**2, 2 * n_classes**2])), "n_clients")
    targets = data.draw(st.lists(st.integers(0, n_classes - 1), min_size=1, max_size=120), "targets")
    try:
        parts = deal(name, torch.tensor(targets), n_clients, n_classes)
    except SettingError as error:
        parts, reason = None, str(error)
    if parts is None:
        assert str(n_clients) in reason
    else:
        check_laws(name, parts, len(targets), n_clients)


@every_partition
def test_more_clients_than_samples_are_refused(name):
    with pytest.raises(SettingError, match="4"):
        deal(name, torch.tensor([0, 1, 1]), 4, 2)
