"""A store without a row, made once a process: tables take longer to make than a test takes."""

import tempfile
from functools import cache
from pathlib import Path

from monitor.store.store import ServiceStore


def blank_store(path: Path) -> Path:
    """Lay an empty store at *path*, unless there is a file."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_made())
    return path


@cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "blank.db"
        ServiceStore.open(path, service=True).close()
        return path.read_bytes()
