"""Makes clocks wrong: that of a server, with `libfaketime`, and that of the service.

A file contains the error in seconds, which can change while the program runs. The clock of the
machine stays as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SERVICE_FILE = "clock"
"""Name of the file beside the store that `demo.wrong_clock` reads."""
LIBRARY = "libfaketimeMT.so.1"
LIBRARY_FOLDERS = ("lib", "lib64", "local/lib")


@dataclass(frozen=True, slots=True)
class ServerClock:
    """The clock of a server started with ``environment``; ``file`` contains its error in seconds.

    A clock that counts from the server's start stays right, as it does on a machine whose time is
    set. Measured with libfaketime 0.9.10, MySQL 8.0 and Postgres 15.
    """

    file: Path
    library: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment that the server needs."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set_wrong(self, seconds: float) -> None:
        """Make it wrong by *seconds*, within a second from now."""
        _replace(self.file, f"{seconds:+.0f}\n")


def find_library(root: Path = Path("/usr")) -> Path | None:
    """Return where `libfaketime` is installed below *root*; None if it is not."""
    for folder in LIBRARY_FOLDERS:
        for pattern in (f"faketime/{LIBRARY}", f"*/faketime/{LIBRARY}"):
            for found in sorted((root / folder).glob(pattern)):
                return found
    return None


def set_service_clock(home: Path, seconds: float) -> None:
    """Make the clock of the service whose store is in *home* wrong by *seconds* from now on."""
    _replace(home / SERVICE_FILE, str(seconds))


def read_service_clock(file: Path) -> datetime:
    """Return the time of the clock that *file* makes wrong."""
    try:
        seconds = float(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        seconds = 0.0
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _replace(file: Path, text: str) -> None:
    """Write atomically, so that no reader sees half of it."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)
