from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "state" / "sluice.db", service=True)
    yield opened
    opened.close()
