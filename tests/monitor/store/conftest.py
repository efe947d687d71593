from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.store.store import ServiceStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceStore]:
    opened = ServiceStore.open(tmp_path / "state" / "sluice.db", service=True)
    yield opened
    opened.close()
