"""Prometheus Alertmanager, API v2: it groups, silences and routes on its own.

Alertmanager identifies an alert by its labels.  Two of them, severity and owner, are used for
routing and may change when tables join.  So each notice also ends the alert with the earlier
labels, which would otherwise keep firing.  Alertmanager loses its alerts when it restarts, so all
firing alerts are sent every ``refresh``.  An alert ends automatically ``lasts`` after its last
sending. This time is long, because an outage of Sluice does not end a problem.
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
        """Reject an invalid address at the start, not at the first alert."""
        check_address(self.url)

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Send the newest message of each cause, which replaces older ones of a digest."""
        newest = {message.cause: message for message in messages}
        alerts = [alert for one in newest.values() for alert in self._alerts(one, now)]
        headers = {"Authorization": self.authorization} if self.authorization else {}
        address = f"{self.url.rstrip('/')}/api/v2/alerts"
        post_json(address, json.dumps(alerts).encode(), headers, self.timeout, self)

    def _alerts(self, message: Message, now: datetime) -> Iterator[Mapping[str, Any]]:
        """Yield the end of the alert under earlier severities and owners, and then the alert."""
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
