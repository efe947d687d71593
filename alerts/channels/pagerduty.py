"""PagerDuty, Events API v2: one alert for each incident of Sluice, by ``dedup_key``.

The first and each repeated message of an incident is a ``trigger``, which PagerDuty joins to the
open alert of the same key; the end is a ``resolve``.  All firing incidents are offered every
``refresh``, but an event is sent only if it is new. An acknowledgement is sent once, as
``acknowledge``.
The API takes one event per request, of at most 512 KiB, with a summary of up to 1,024 characters.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from datetime import datetime as Moment
from typing import Any, ClassVar

from alerts.channel import Channel
from alerts.http import check_address, post_json
from alerts.model import Event, Message, Severity
from pipeline.errors import ConfigError
from pipeline.settings import TlsSettings

SUMMARY, DEDUP, BODY, TABLES = 1024, 255, 16_000, 100
REMEMBERED = 10_000
SEVERITIES: Mapping[Severity, str] = {
    Severity.CRITICAL: "critical",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
}
ACTIONS: Mapping[Event, str] = {
    Event.FIRED: "trigger",
    Event.REPEATED: "trigger",
    Event.CLEARED: "resolve",
}


@dataclass(frozen=True, slots=True)
class PagerDuty(TlsSettings):
    """POST to ``url``; ``routing_key`` is the integration key, ``page`` the status page's address.

    ``source`` names this installation in PagerDuty.
    """

    routing_key: str = field(repr=False)
    page: str = ""
    source: str = "sluice"
    url: str = field(default="https://events.pagerduty.com/v2/enqueue", repr=False)
    timeout: timedelta = timedelta(seconds=10)
    """How long one sending may take."""
    per_minute: int = 60
    refresh: ClassVar[timedelta | None] = timedelta(seconds=30)
    _sent: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject an invalid address or an empty key at the start, not at the first alert."""
        check_address(self.url)
        if not self.routing_key.strip():
            raise ConfigError("routing_key: is empty; set an integration key")

    def send(self, messages: Sequence[Message], now: Moment) -> None:
        """Send one event for each incident in *messages*, from its newest message.

        A digest that fails halfway is sent again; the same key does not open a second alert.
        """
        del now
        newest = {message.incident: message for message in messages}
        for message in newest.values():
            action = _action(message)
            what = f"{action} {message.id}" if action == "trigger" else action
            if self._sent.get(message.incident) == what:
                continue
            body = json.dumps(self._event(action, message), ensure_ascii=False).encode()
            post_json(self.url, body, {}, self.timeout, self)
            self._sent[message.incident] = what
            while len(self._sent) > REMEMBERED:
                del self._sent[next(iter(self._sent))]

    def _event(self, action: str, message: Message) -> Mapping[str, Any]:
        known = {
            "routing_key": self.routing_key,
            "event_action": action,
            "dedup_key": f"sluice-{message.incident}"[:DEDUP],
        }
        if action != "trigger":
            return known
        pages = {"Runbook": message.runbook, "Status page": self.page}
        links = [
            {"href": href, "text": text}
            for text, href in pages.items()
            if href.startswith(("http://", "https://"))
        ]
        client = {"client": "Sluice", **({"client_url": self.page} if self.page else {})}
        return {**known, **client, "links": links, "payload": self._payload(message)}

    def _payload(self, message: Message) -> Mapping[str, Any]:
        return {
            "summary": message.subject[:SUMMARY],
            "source": self.source,
            "severity": SEVERITIES[message.severity],
            "timestamp": message.opened.astimezone(UTC).isoformat(timespec="milliseconds"),
            "component": message.about,
            "group": message.owner,
            "class": f"{message.kind} {message.check}".strip(),
            "custom_details": {
                "incident": message.incident,
                "tables": list(message.tables[:TABLES]),
                "runbook": message.runbook,
                "body": message.body[:BODY],
            },
        }


def _action(message: Message) -> str:
    action = ACTIONS[message.event]
    return "acknowledge" if message.acknowledged and action == "trigger" else action


CHANNEL: type[Channel] = PagerDuty
