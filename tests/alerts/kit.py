"""Small builders for alerts: a minute is the unit of every score sheet."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from alerts.lifecycle import advance_incident
from alerts.message import compose_message
from alerts.model import (
    AlertKind,
    AlertPolicy,
    Cause,
    CauseFinding,
    Event,
    Incident,
    IncidentState,
    Member,
    Message,
    Notice,
    Severity,
)
from checks.model import Outcome, Ruling, Verdict

START = datetime(2026, 3, 1, tzinfo=UTC)
OUTCOMES = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}
SIGNS = {Event.FIRED: "!", Event.REPEATED: "!", Event.CLEARED: "~"}
ORDERS = Member("shop.orders", "range_counts")


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def at(minute: float) -> datetime:
    return START + minutes(minute)


def finding(letter: str, member: Member = ORDERS, kind: AlertKind = AlertKind.LOST) -> CauseFinding:
    outcome = OUTCOMES[letter]
    return CauseFinding(
        cause=Cause(kind, member.check, member.table),
        outcome=outcome,
        ruling=Ruling(outcome, "2 rows short in ids [100, 120)", "missing_rows"),
        failing=(member,) if outcome is Outcome.FAIL else (),
    )


def verdict(
    letter: str,
    table: str = "shop.orders",
    check: str = "range_counts",
    cause: str = "",
    *,
    minute: float = 0,
    run: str = "",
) -> Verdict:
    ruling = Ruling(OUTCOMES[letter], f"said {letter}")
    return Verdict(table, check, ruling, at(minute), cause=cause, run=run)


def play(letters: str, policy: AlertPolicy) -> tuple[str, list[Incident | None]]:
    """Run a sheet, one letter a minute: what was told, and the incident after each letter."""
    incident: Incident | None = None
    told, states = "", []
    for minute, letter in enumerate(letters):
        incident, notices = advance_incident(incident, finding(letter), policy, at(minute))
        told += "".join(SIGNS[notice.event] for notice in notices) or "."
        states.append(incident)
    return told, states


def firing(member: Member = ORDERS, kind: AlertKind = AlertKind.LOST) -> Incident:
    policy = AlertPolicy(severity=Severity.CRITICAL, owner="data-platform", channels=("log",))
    incident, _ = advance_incident(None, finding("F", member, kind), policy, START)
    assert incident is not None
    assert incident.state is IncidentState.FIRING
    return incident


def message(number: int = 1, event: Event = Event.FIRED) -> Message:
    """A message of its own identity for each *number*."""
    incident = replace(firing(Member(f"shop.t{number}", "range_counts")))
    return compose_message(Notice(event, incident, at(1)))
