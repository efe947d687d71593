"""Events as PagerDuty's Events API v2 takes them: required fields, severities, limits of size."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from alerts.channels.pagerduty import PagerDuty
from alerts.model import Event, Message, Severity
from alerts.outbox import BusyError, RefusedError
from pipeline.errors import ConfigError
from tests.alerts.channels.receiver import Receiver
from tests.alerts.kit import at, message

KEY = "R" * 32
ACCEPTED: tuple[int, Mapping[str, str], str] = (202, {}, '{"status": "success"}')


def channel(receiver: Receiver) -> PagerDuty:
    return PagerDuty(KEY, page="https://sluice.example.org/", url=receiver.url)


def read_events(receiver: Receiver) -> list[dict[str, Any]]:
    return [valid(one.body) for one in receiver.got]


def valid(body: bytes) -> dict[str, Any]:
    """The event in *body*, if the API would accept it."""
    assert len(body) <= 512 * 1024
    event: dict[str, Any] = json.loads(body)
    assert event["routing_key"] == KEY
    assert event["event_action"] in {"trigger", "acknowledge", "resolve"}
    assert 0 < len(event["dedup_key"]) <= 255
    if event["event_action"] != "trigger":
        return event
    payload = event["payload"]
    assert 0 < len(payload["summary"]) <= 1024
    assert payload["source"]
    assert payload["severity"] in {"critical", "error", "warning", "info"}
    assert datetime.fromisoformat(payload["timestamp"]).tzinfo == UTC
    assert all(link["href"].startswith("http") for link in event["links"])
    return event


def test_an_incident_is_triggered_acknowledged_and_resolved_under_one_key(
    receiver: Receiver,
) -> None:
    receiver.answers = [ACCEPTED]
    pager, fired = channel(receiver), replace(message(1), runbook="https://wiki/lost.md#x")
    pager.send([fired], at(0))
    held = replace(fired, event=Event.REPEATED, acknowledged="ann")
    for _ in range(3):
        pager.send([held], at(1))
    pager.send([replace(fired, event=Event.CLEARED, ended=at(2))], at(2))

    found = read_events(receiver)
    assert [one["event_action"] for one in found] == ["trigger", "acknowledge", "resolve"]
    assert {one["dedup_key"] for one in found} == {f"sluice-{fired.incident}"}
    assert {link["href"] for link in found[0]["links"]} == {
        "https://wiki/lost.md#x",
        "https://sluice.example.org/",
    }


def test_what_still_fires_is_not_triggered_at_each_refresh(receiver: Receiver) -> None:
    receiver.answers = [ACCEPTED]
    pager, again = channel(receiver), message(1, Event.REPEATED)
    for _ in range(4):
        pager.send([again], at(0))

    assert len(read_events(receiver)) == 1


@pytest.mark.parametrize("severity", Severity)
def test_each_severity_is_one_of_the_protocol(receiver: Receiver, severity: Severity) -> None:
    receiver.answers = [ACCEPTED]
    channel(receiver).send([replace(message(1), severity=severity)], at(0))

    assert read_events(receiver)[0]["payload"]["severity"] == severity.value


def test_a_huge_message_stays_within_the_limits(receiver: Receiver) -> None:
    receiver.answers = [ACCEPTED]
    tables = tuple(f"shop.{'t' * 200}{number}" for number in range(5000))
    huge: Message = replace(message(1), subject="x" * 9000, body="\u00e9" * 10**6, tables=tables)
    channel(receiver).send([huge], at(0))

    assert len(read_events(receiver)) == 1


def test_a_digest_is_one_event_for_each_incident(receiver: Receiver) -> None:
    receiver.answers = [ACCEPTED]
    channel(receiver).send([message(1), message(2), message(3)], at(0))

    assert len({one["dedup_key"] for one in read_events(receiver)}) == 3


def test_400_is_refused_and_429_and_5xx_are_tried_again(receiver: Receiver) -> None:
    receiver.answers = [(400, {}, "invalid event"), (429, {"Retry-After": "7"}, ""), (503, {}, "")]
    receiver.answers.append(ACCEPTED)
    pager = channel(receiver)
    with pytest.raises(RefusedError, match="invalid event"):
        pager.send([message(1)], at(0))
    with pytest.raises(BusyError) as busy:
        pager.send([message(1)], at(0))
    assert busy.value.after is not None
    assert busy.value.after.total_seconds() == 7
    with pytest.raises(BusyError):
        pager.send([message(1)], at(0))
    pager.send([message(1)], at(0))

    assert [one["event_action"] for one in read_events(receiver)] == ["trigger"] * 4


def test_an_empty_key_is_refused_at_the_start_and_no_key_is_shown() -> None:
    with pytest.raises(ConfigError, match="routing_key"):
        PagerDuty(" ")

    assert KEY not in repr(PagerDuty(KEY))
