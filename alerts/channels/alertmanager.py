"""Prometheus Alertmanager, API v2: it groups, silences and routes on its own.

An alert is known by its labels.  Severity and owner, by which people route, may change as tables
join it: what it was called before is ended with each notice, or it would fire on.  It forgets
its alerts when it starts again, so all that fires is sent every ``refresh``.  An alert ends by
itself ``lasts`` after its last sending: long, as a Sluice that is down has mended nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from alerts.channel import Channel
from alerts.http import check_address, post_json
from alerts.model import Message
from pipeline.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class Alertmanager(TlsSettings):
    """POST to ``<url>/api/v2/alerts``; ``page`` is the link back, such as the status page."""

    url: str
    """Address of the Alertmanager."""
    page: str = ""
    authorization: str = field(default="", repr=False)
    """Value of the header `Authorization`, such as `Bearer ...`."""
    lasts: timedelta = timedelta(days=2)
    """How long an alert fires after it was last sent."""
    timeout: timedelta = timedelta(seconds=10)
    """How long one sending may take."""
    per_minute: int = 60
    refresh: timedelta | None = timedelta(minutes=1)

    def __post_init__(self) -> None:
        """Refuse a wrong address at the start, not at the first alert."""
        check_address(self.url)

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Send the newest message of each cause; older ones of a digest are outdated."""
        newest = {message.cause: message for message in messages}
        alerts = [alert for one in newest.values() for alert in self._alerts(one, now)]
        headers = {"Authorization": self.authorization} if self.authorization else {}
        address = f"{self.url.rstrip('/')}/api/v2/alerts"
        post_json(address, json.dumps(alerts).encode(), headers, self.timeout, self)

    def _alerts(self, message: Message, now: datetime) -> Iterator[Mapping[str, Any]]:
        """The alert as it is, and the end of those that it was under another severity or owner."""
        for severity, owner in message.before:
            yield self._alert(replace(message, severity=severity, owner=owner, ended=now), now)
        yield self._alert(message, now)

    def _alert(self, message: Message, now: datetime) -> Mapping[str, Any]:
        labels = {
            "alertname": f"Sluice{message.kind.capitalize()}",
            "severity": str(message.severity),
            "kind": str(message.kind),
            "check": message.check,
            "table": message.about,
            "owner": message.owner,
        }
        alert: dict[str, Any] = {
            "labels": {name: value for name, value in labels.items() if value},
            "annotations": {
                "summary": message.subject,
                "description": message.body,
                "runbook_url": message.runbook,
                "incident": message.incident,
            },
            "startsAt": _rfc3339(message.opened),
            "endsAt": _rfc3339(message.ended or now + self.lasts),
        }
        return {**alert, "generatorURL": self.page} if self.page else alert


def _rfc3339(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


CHANNEL: type[Channel] = Alertmanager
