"""What classes take, their bases' arguments included."""

from lightning_fl.adversary.ipm import Ipm
from lightning_fl.aggregator.average import Average
from lightning_fl.arguments import arguments, is_open, settings, takers
from lightning_fl.client.fedprox import FedProx
from lightning_fl.client.local_sgd import LocalSgd


class Base:
    def __init__(self, a, b=2):
        self.a, self.b = a, b


class Open(Base):
    def __init__(self, *rest, c=3, **others):
        super().__init__(*rest, **others)
        self.c = c


class Closed(Open):
    def __init__(self, b, d=4):
        super().__init__(1, b=b)
        self.d = d


def test_arguments_that_are_passed_on_are_a_classs_own():
    assert list(arguments(Base)) == ["a", "b"]
    assert list(arguments(Open)) == ["c", "a", "b"]
    assert list(arguments(Closed)) == ["b", "d"]
    assert arguments(object) == {}


def test_a_function_takes_its_own():
    def function(a, **others):
        pass

    ((taker, parameters),) = takers(function)
    assert taker is function
    assert is_open(parameters)


def test_a_description_has_all_settings():
    assert settings(Open(1)) == "Open(c=3, a=1, b=2)"
    told = settings(FedProx(mu=0.25, steps=5, learning_rate=0.5))
    assert "mu=0.25" in told
    assert all(part in told for part in ("steps=5", "learning_rate=0.5"))
    assert set(arguments(LocalSgd)) < set(arguments(FedProx))


def test_settings_show_what_a_thing_was_made_with():
    class Wrapped(Average):
        def __init__(self, rule, f, hidden):
            self.rule, self.f = rule, f

    assert settings(Wrapped(Ipm(2.0), 3, "x")) == "Wrapped(rule=Ipm(factor=2.0), f=3)"
