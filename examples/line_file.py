"""A channel: one line a message at the end of a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

from alerts.channel import Channel
from alerts.model import Message


@dataclass(frozen=True, slots=True)
class LineFile:
    """``path`` is the file; the fields are the settings in `sluice.yaml`."""

    path: str
    per_minute: int = 60
    refresh: ClassVar[timedelta | None] = None

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Append them; what cannot be written raises, and is tried again."""
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.writelines(f"{now.isoformat()} {message.subject}\n" for message in messages)


CHANNEL: type[Channel] = LineFile
