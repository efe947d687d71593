"""One service per SQLite file, held by the operating system: a killed service leaves no lock."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.errors import ConfigError


@dataclass(eq=False)
class Lock:
    """Held from :meth:`take` to :meth:`release`, or to the end of the process."""

    file: IO[str]

    @classmethod
    def take(cls, database: Path) -> "Lock":
        """Become the one service of *database*.

        Raises:
            ConfigError: another service is; the message names its process.
        """
        path = database.with_name(database.name + ".lock")
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise ConfigError(
                f"{database} is in use by another service (process {holder}): "
                "stop that one, or set a store of its own for this one"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Let another service have it; the file stays, as removing it would be a race."""
        self.file.close()
