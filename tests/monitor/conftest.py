"""The rig of tests about the whole service; a module that needs one further on takes it there."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.store.store import ServiceStore
from tests.monitor.rig import USERS, Rig
from tests.monitor.serving import serving
from tests.monitor.store.blank import blank_store


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


@pytest.fixture
def healthy(rig: Rig) -> Rig:
    """Two rounds of a pipeline that works."""
    rig.round(2)
    return rig


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceStore]:
    opened = ServiceStore.open(blank_store(tmp_path / "s.db"), service=True)
    yield opened
    opened.close()


@pytest.fixture
def published(healthy: Rig) -> Rig:
    """It is noon; images of users are due half an hour late."""
    healthy.gate.published = lambda table: table == USERS
    healthy.cycle.image_due = lambda table: timedelta(minutes=30) if table == USERS else None
    return healthy


@pytest.fixture
def server(rig: Rig) -> Iterator[str]:
    with serving(rig.api()) as address:
        yield address
