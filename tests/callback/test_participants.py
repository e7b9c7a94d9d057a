"""Who takes part, before the first round."""

from lightning_fl.aggregator.average import Average
from lightning_fl.callback.participants import Participants
from tests import training


class Announcing(Average):
    """Plain averaging that says when it works."""

    def aggregate(self, updates, server):
        print(f"round {server.round.index + 1}")
        return super().aggregate(updates, server)


def test_it_is_printed_once_before_the_first_round(capsys):
    training.fit(training.trainer([Participants(), Announcing()], rounds=2))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Clients    4 honest + no Byzantine client"
    assert "Server     Announcing(), 2 samples of each class" in lines
    assert lines[-2:] == ["round 1", "round 2"]
    assert sum(line.startswith("Clients") for line in lines) == 1
