import torch

from lightning_fl.updates.decomposition import threads_for


def test_small_matrices_are_for_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for n, threads in [(512, 1), (513, 2)]:
            with threads_for(n):
                assert torch.get_num_threads() == threads
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
