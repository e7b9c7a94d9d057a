from threading import Barrier, get_ident

import pytest
import torch

from lightning_fl.updates import threads as _threads
from lightning_fl.updates.threads import in_threads, one_thread


@pytest.fixture
def two_threads():
    """Torch with two threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_work_is_shared_by_threads_that_use_one_each():
    together = Barrier(2)

    def work(item):
        together.wait(timeout=60)  # passed by two at once only
        return item, torch.get_num_threads()

    assert in_threads(work, range(6)) == [(i, 1) for i in range(6)]
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 // item, [1, 0, 1])
    assert torch.get_num_threads() == 2
    assert in_threads(lambda item: get_ident(), [None]) == [get_ident()]  # one item needs no other thread


@pytest.mark.usefixtures("two_threads")
def test_one_thread_ends_with_an_error_too():
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("vendor", "count", "chosen"),
    [("AuthenticAMD", 1, True), ("AuthenticAMD", 2, True), ("AuthenticAMD", 16, False), ("GenuineIntel", 1, False)],
)
def test_numpy_multiplies_where_it_is_faster(vendor, count, chosen, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    intel = _threads._intel(tmp_path / "cpuinfo")
    monkeypatch.setattr(_threads, "_intel", lambda: intel)
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    assert _threads.numpy_multiplies() == chosen


def test_a_system_without_a_list_of_processors_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(_threads.platform, "processor", lambda: "Intel64 Family 6")
    assert _threads._intel(tmp_path / "none")
