"""Summarizes in at most ten lines which tables are not ready, since when, where, and why.

There is one line per cause, gravest first. The status page and `sluice status` begin with these
lines. `moment` and `span` format instants and durations for people.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from alerts.message import runbook_page
from alerts.model import AlertKind, Incident
from checks.readiness import Readiness, ReadinessState
from monitor.board import GRAVITY, BackfillView, Board, FirstLanding, TableView
from pipeline.model import Hop, Missing, Stage


def format_instant(at: datetime) -> str:
    """Format to the second, with the zone."""
    return at.strftime("%Y-%m-%d %H:%M:%S %Z")


def format_duration(length: timedelta) -> str:
    """Format a duration in its two largest units, rounded down: ``3 min 20 s``."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, name, small, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {name}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


MOST = 10
NAMED = 3
EXPLAINING = (
    AlertKind.LOST,
    AlertKind.BLOCKED,
    AlertKind.SERVICE,
    AlertKind.LATE,
    AlertKind.UNKNOWN,
)
"""Kinds of incident that say why a table is not ready, gravest first."""
BESIDE = ("channel:", "copy:", "disk:", "store", "job:")  # components that no change passes
LANDING = frozenset({"no_base", "gap", "quarantine", "disorder", "registry"})
ORDER = ("stale", "lost", *(state.value for state in GRAVITY[:-1]), "starting", "ready")
READ_ON: Mapping[ReadinessState, str] = {
    ReadinessState.BLOCKED: "blocked.md",
    ReadinessState.REVOKED: "lost.md",
    ReadinessState.UNKNOWN: "unknown.md#readiness",
    ReadinessState.NOT_READY: "late.md#readiness",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """One cause: ``kind`` is the state of its tables, ``what`` is never empty.

    ``eta`` is absent if unknown, and empty if it does not apply. ``runbook`` says what to do; empty
    if the only thing to do is to wait.
    """

    kind: str
    what: str
    tables: tuple[str, ...] = ()
    since: str = ""
    hop: str = ""
    eta: str | None = ""
    runbook: str = ""

    @property
    def about(self) -> str:
        """Return the names of its tables, or of the first ones."""
        more = len(self.tables) - NAMED
        named = ", ".join(self.tables[:NAMED])
        return f"{named} and {more} more" if more > 0 else named

    @property
    def facts(self) -> str:
        """Return the start, the hop and the estimated end, as texts."""
        parts = (
            self.since and f"since {self.since}",
            self.hop and f"at {self.hop}",
            self._ready,
        )
        return ", ".join(filter(None, parts))

    @property
    def _ready(self) -> str:
        if self.eta is None:
            return "time until ready unknown"
        return self.eta and f"ready in about {self.eta}"


def find_headlines(board: Board, now: datetime) -> tuple[Headline, ...]:
    """Return at most ten lines, gravest first; one line says so if all is well."""
    if board.at == Board().at:
        return (Headline("starting", "no monitoring round has ended yet, so nothing is known"),)
    if board.stale(now):
        age = format_duration(board.age(now))
        text = f"the last monitoring round ended {age} ago, so every state is unknown"
        runbook = f"{board.runbooks.rstrip('/')}/service.md#stalled"
        return (Headline("stale", text, runbook=runbook),)
    found = [*_troubles(board, now), *(_landing(one, now) for one in board.firsts)]
    found += [_backfill(one, now) for one in board.backfills]
    found.sort(key=lambda one: (ORDER.index(one.kind), -len(one.tables)))
    if not found:
        return (_all_well(board),)
    if len(found) <= MOST:
        return tuple(found)
    rest = found[MOST - 1 :]
    tables = tuple(dict.fromkeys(name for one in rest for name in one.tables))
    more = Headline(rest[0].kind, f"{len(rest)} more causes are listed below", tables)
    return (*found[: MOST - 1], more)


def _all_well(board: Board) -> Headline:
    if not board.tables:
        return Headline("starting", "no table is known yet, because nothing has landed")
    count = len(board.tables)
    every = f"all {count} tables are" if count > 1 else f"{board.tables[0].table.name} is"
    hole = _hole(board)
    if hole:
        text = (
            f"{every} ready up to {format_instant(board.cut)}; later changes are not proven: {hole}"
        )
        return Headline("unknown", text, runbook=f"{board.runbooks.rstrip('/')}/service.md")
    return Headline("ready", f"{every} ready up to {format_instant(board.cut)}, and now")


def _hole(board: Board) -> str:
    """Return why the readiness for now is unknown: a failed component, or a hop without a lag."""
    for part in board.parts:
        if not part.works and not part.name.startswith(BESIDE):
            return f"{part.name}: {part.detail}"
    for view in board.tables:
        for hop in view.lags.hops:
            if isinstance(hop.lag, Missing):
                return f"hop {hop.hop} of {view.table.name}: {hop.lag.why}"
    return ""


def _landing(one: FirstLanding, now: datetime) -> Headline:
    eta = format_duration(one.eta - now) if one.eta else None
    return Headline("starting", one.line, one.tables, format_duration(now - one.since), eta=eta)


def _backfill(one: BackfillView, now: datetime) -> Headline:
    return Headline("starting", one.description, (one.table,), format_duration(now - one.since))


def _troubles(board: Board, now: datetime) -> Iterator[Headline]:
    """Yield one line for each cause that blocks tables, and for each loss."""
    failing = _failing(board.incidents)
    waiting = {name for one in board.firsts if one.stuck is None for name in one.tables}
    groups: dict[tuple[str, str, str], list[TableView]] = {}
    for view in board.tables:
        name = view.table.name
        known = failing.get(name)
        lost = known is not None and known.cause.kind is AlertKind.LOST
        if (view.worst is ReadinessState.READY and not lost) or (name in waiting and not known):
            continue
        code, hop = _code(view), hop_of(view)
        key = (known.id, "", "") if known else (view.worst.value, code, hop)
        groups.setdefault(key, []).append(view)
    for views in groups.values():
        yield _line(views, failing.get(views[0].table.name), board, now)


def _failing(incidents: Sequence[Incident]) -> Mapping[str, Incident]:
    """Return table -> the gravest open incident that the table keeps open."""
    explaining = [one for one in incidents if one.cause.kind in EXPLAINING]
    explaining.sort(key=lambda one: (EXPLAINING.index(one.cause.kind), one.opened), reverse=True)
    return {member.table: one for one in explaining for member in one.failing}


def _line(
    views: Sequence[TableView], known: Incident | None, board: Board, now: datetime
) -> Headline:
    worst = min(views, key=lambda view: GRAVITY.index(view.worst))
    answer = _shown(worst)
    etas = [one.eta for view in views if (one := _shown(view)).eta is not None]
    texts = [one.text for one in answer.reasons] or [f"{answer.state.value}, reason unknown"]
    lost = known is not None and known.cause.kind is AlertKind.LOST
    since = known.opened if known else min((v.since for v in views if v.since), default=None)
    eta = max(filter(None, etas), default=None) if len(etas) == len(views) else None
    place = READ_ON.get(worst.worst, "unknown.md")
    return Headline(
        kind="lost" if lost else worst.worst.value,
        what=(known.ruling.reason if known else "") or "; ".join(texts[:2]),
        tables=tuple(view.table.name for view in views),
        since=format_duration(now - since) if since else "",
        hop="" if lost else hop_of(worst),  # rows were not lost at the hop that is late
        eta=format_duration(eta - now) if eta and eta > now else "",
        runbook=runbook_page(known, board.runbooks)
        if known
        else f"{board.runbooks.rstrip('/')}/{place}",
    )


def _shown(view: TableView) -> Readiness:
    """Return the answer that is not ready: the one for yesterday, else the one for now."""
    day, recent = view.day[Stage.MIRROR], view.recent[Stage.MIRROR]
    return recent if day.ready else day


def _code(view: TableView) -> str:
    reasons = _shown(view).reasons
    return reasons[0].code if reasons else ""


def hop_of(view: TableView) -> str:
    """Return the hop that blocks the table, else the first unknown one, or the longest."""
    answer = _shown(view)
    if answer.state is ReadinessState.REVOKED:
        return ""  # a check has failed since; see below
    if answer.state is ReadinessState.BLOCKED and answer.reasons:
        code = answer.reasons[0].code
        if code == "check_failed":
            return ""  # the check compares both ends, so the hop is unknown
        return Hop.CONSUMER.value if code in LANDING else Hop.MERGE.value
    slow = view.lags.slowest()
    return slow.hop.value if slow and slow.lag != timedelta() else ""
