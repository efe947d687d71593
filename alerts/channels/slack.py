"""Slack, by an incoming webhook whose address is a secret.

Limits of Slack: about one message per second, 3,000 characters in a section.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

from alerts.channel import Channel
from alerts.http import check_address, post_json
from alerts.model import Event, Message, Severity
from pipeline.settings import TlsSettings

_SECTION_CHARACTERS = 2_900
_LINES = 20
_SIGNS = {
    Severity.CRITICAL: ":red_circle:",
    Severity.WARNING: ":large_orange_circle:",
    Severity.INFO: ":white_circle:",
}


@dataclass(frozen=True, slots=True)
class Slack(TlsSettings):
    """One post per message, or one list of subjects for a digest."""

    url: str = field(repr=False)
    """Address of the incoming webhook."""
    timeout: timedelta = timedelta(seconds=10)
    """How long one sending may take."""
    per_minute: int = 20
    refresh: ClassVar[timedelta | None] = None

    def __post_init__(self) -> None:
        """Reject an invalid address at the start, not at the first alert."""
        check_address(self.url)

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Post *messages*; Slack stamps the time itself."""
        content = _single(messages[0]) if len(messages) == 1 else _digest(messages)
        post_json(self.url, json.dumps(content).encode(), {}, self.timeout, self)


def _single(message: Message) -> Mapping[str, Any]:
    return {"text": _line(message), "blocks": [_section(_line(message)), _plain(message.body)]}


def _digest(messages: Sequence[Message]) -> Mapping[str, Any]:
    head = f"{len(messages)} alerts"
    lines = [_line(message) for message in messages[:_LINES]]
    rest = len(messages) - len(lines)
    more = [f"and {rest} more on the status page"] if rest else []
    pages = sorted({message.runbook for message in messages})[:_LINES]
    sections = [_section(line) for line in (f"*{head}*", *lines, *more)]
    return {"text": head, "blocks": [*sections, _plain("\n".join(pages))]}


def _line(message: Message) -> str:
    sign = ":large_green_circle:" if message.event is Event.CLEARED else _SIGNS[message.severity]
    return f"{sign} {_escape(message.subject)}"


def _escape(text: str) -> str:
    """Escape the three markup characters of Slack, so that text cannot mention or link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _section(text: str) -> Mapping[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_SECTION_CHARACTERS]}}


def _plain(text: str) -> Mapping[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text[:_SECTION_CHARACTERS]}}


CHANNEL: type[Channel] = Slack
