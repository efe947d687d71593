"""The rig of tests about the whole service; a module that needs one further on takes it there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.web import api
from monitor.web.server import HttpServer
from tests.monitor.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


@pytest.fixture
def server(rig: Rig) -> Iterator[str]:
    http = HttpServer("127.0.0.1", 0)
    http.start(api.application(rig.api_parts()))
    yield http.address
    http.stop()
