"""The lake of one small table, over which merges run without Spark."""

from pathlib import Path

import pytest

from tests.pipeline.hand_lake import HandLake


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    return HandLake(tmp_path)
