"""A folder of logs that is swept until the test ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.files.folder import LogFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LogFolder]:
    with LogFolder(tmp_path) as made:
        yield made
