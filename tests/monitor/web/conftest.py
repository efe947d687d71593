"""An API with something of everything, made once for each module that asks it."""

from collections.abc import Iterator

import pytest

from tests.monitor.rig import Rig
from tests.monitor.web.furnished import Furnished, furnished
from tests.pipeline.registry_server import registry_server


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Furnished]:
    folder = tmp_path_factory.mktemp("full")
    rig = Rig(folder)
    with registry_server() as answers:
        yield furnished(rig, folder, answers)
    rig.close()
