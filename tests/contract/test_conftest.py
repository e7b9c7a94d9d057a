"""What the laws say where they cannot be tried."""

import pytest

from lightning_fl.contract import conftest


def test_names_the_extra_that_is_missing(monkeypatch):
    conftest.pytest_configure()
    monkeypatch.setattr(conftest, "find_spec", lambda name: None)
    with pytest.raises(pytest.UsageError, match=r"the laws need hypothesis, got none; .*lightning-fl\[test\]"):
        conftest.pytest_configure()
