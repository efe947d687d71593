"""The rig of tests about the whole service; a module that needs one further on takes it there."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.monitor.rig import USERS, Rig
from tests.monitor.serving import serving


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


@pytest.fixture
def published(rig: Rig) -> Rig:
    """Two rounds of a pipeline that works, at noon; images of users are due half an hour late."""
    rig.round()
    rig.round()
    rig.gate.published = lambda table: table == USERS
    rig.cycle.image_due = lambda table: timedelta(minutes=30) if table == USERS else None
    return rig


@pytest.fixture
def server(rig: Rig) -> Iterator[str]:
    with serving(rig.api()) as address:
        yield address
