"""The rig of tests about the whole service; a module that needs one further on takes it there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitor.rig import Rig
from tests.monitor.serving import serving


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


@pytest.fixture
def server(rig: Rig) -> Iterator[str]:
    with serving(rig.api()) as address:
        yield address
