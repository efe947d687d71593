from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.store.store import ServiceStore
from tests.monitor.store.blank import blank_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceStore]:
    opened = ServiceStore.open(blank_store(tmp_path / "state" / "sluice.db"), service=True)
    yield opened
    opened.close()
