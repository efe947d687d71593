"""Writes alerts to the log of the service; it needs no settings and is the default channel."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from alerts.channel import Channel
from alerts.model import Event, Message

_log = structlog.get_logger("alerts")


@dataclass(frozen=True, slots=True)
class Log:
    """Writes one line per message, at level WARNING; the end of an incident at INFO."""

    per_minute: int = 600
    refresh: ClassVar[timedelta | None] = None

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Write one line per message, also for a digest."""
        for message in messages:
            write = _log.info if message.event is Event.CLEARED else _log.warning
            write(
                message.subject,
                alert=str(message.kind),
                state=str(message.event),
                severity=str(message.severity),
                owner=message.owner,
                incident=message.incident,
                runbook=message.runbook,
                since=message.opened.isoformat(),
                sent=now.isoformat(),
            )


CHANNEL: type[Channel] = Log
