"""What the stack tests of rows that are read again have in common."""

from datetime import timedelta

import pytest

from pipeline.landing import collector_lists


@pytest.fixture
def lists_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_lists, "GRACE", timedelta(seconds=1))
