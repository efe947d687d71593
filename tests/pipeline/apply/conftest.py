"""The lake of one small table, over which merges run without Spark."""

from pathlib import Path

import pytest

from tests.builders.lake import LocalLake


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    return LocalLake(tmp_path)
