import torch

from lightning_fl import Round


def first_draw(this_round, *purpose):
    return torch.rand(1, generator=this_round.generator(*purpose)).item()


def test_draws_depend_on_round_seed_and_purpose_alone():
    base = first_draw(Round(3, 0.1, 0), "attack", 7)
    assert first_draw(Round(3, 0.5, 0), "attack", 7) == base
    others = [
        first_draw(Round(4, 0.1, 0), "attack", 7),
        first_draw(Round(3, 0.1, 1), "attack", 7),
        first_draw(Round(3, 0.1, 0), "attack", 8),
        first_draw(Round(3, 0.1, 0), "rule", 7),
    ]
    assert len({base, *others}) == 5
