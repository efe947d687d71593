"""What is wrong, as the page tells it: gravest first, suspicions apart.  Pure."""

from dataclasses import dataclass
from datetime import datetime

from alerts.message import page
from alerts.model import AlertKind, Incident, IncidentState, Severity
from monitor.board import Board
from monitor.web.durations import span

MOST_KEYS = 6


@dataclass(frozen=True, slots=True)
class ShownIncident:
    """One open incident on the page."""

    severity: str
    kind: str
    state: str
    title: str
    since: str
    reason: str
    keys: tuple[str, ...]
    more: int
    tables: tuple[str, ...]
    owner: str
    hands: str
    runbook: str
    id: str


def troubles(board: Board, now: datetime) -> tuple[list[ShownIncident], list[ShownIncident]]:
    """Open incidents, and apart from them those that may pass before anybody is told."""
    gravity = list(Severity)
    every = sorted(board.incidents, key=lambda one: (gravity.index(one.severity), one.opened))
    told = [_trouble(one, board, now) for one in every if _told(one)]
    return told, [_trouble(one, board, now) for one in every if not _told(one)]


def _told(one: Incident) -> bool:
    """Whether it is more than a suspicion: a pending one may pass before anybody is told."""
    return one.state is not IncidentState.PENDING or one.cause.kind is not AlertKind.UNKNOWN


def _trouble(one: Incident, board: Board, now: datetime) -> ShownIncident:
    kind, check = one.cause.kind.value, one.cause.check
    return ShownIncident(
        severity=one.severity.value,
        kind=kind,
        state=one.state.value,
        title=f"{one.cause.subject} {check}".strip(),
        since=span(now - one.opened),
        reason=one.ruling.reason,
        keys=one.ruling.keys[:MOST_KEYS],
        more=max(len(one.ruling.keys) - MOST_KEYS, 0),
        tables=one.tables,
        owner=one.owner,
        hands=one.acknowledged.who if one.acknowledged else "",
        runbook=page(one, board.runbooks),
        id=one.id,
    )
