"""Serves the ledger of a table, by minute and hop, as JSON and as a picture.

Both read the store on each request, because a board has only the sum of each table. State is shown
by word, shape and colour.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, JSONResponse

from checks.blocks import TableState
from checks.ledger import (
    COUNTING_CHECK,
    LANDING_HOP,
    LEDGER_HOPS,
    NOT_BY_SOURCE,
    LedgerEntry,
    LedgerState,
    copy_hop,
    describe_missing,
    is_copy_hop,
    minute_of,
)
from checks.model import Outcome, Verdict
from monitor.store.ledger import KEPT
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, declare_answer
from monitor.web.deps import ApiParts, Parts, Text
from monitor.web.status_page import PAGES
from monitor.web.summary import format_instant
from pipeline.clocks import day_end
from pipeline.errors import ConfigError
from pipeline.model import Hop

LEDGER_ROUTES, LEDGER_PAGES = APIRouter(prefix="/v1"), APIRouter()
SHOWN, MOST_SHOWN = timedelta(hours=1), timedelta(hours=25)
"""The default and the longest span: the longest day is that of a clock change."""
NEWEST = datetime.max.replace(tzinfo=UTC)
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
CELL = 10  # width of a minute in the picture
SIGNS = {
    LedgerState.BALANCED: "",
    LedgerState.IN_FLIGHT: "~",
    LedgerState.UNKNOWN: "?",
    LedgerState.RESIDUAL: "!",
    LedgerState.MADE_GOOD: "+",
}
LISTED = (LedgerState.RESIDUAL, LedgerState.UNKNOWN, LedgerState.MADE_GOOD)
TITLES: Mapping[str, str] = {
    Hop.COLLECTION: "from the source's transactions into the change log",
    LANDING_HOP: "from the topics into the change log",
    Hop.MERGE: "from the change log into the mirror",
}
INTO_COPY = "from the mirror into the copy"
DATED_BY: Mapping[str, str] = {
    Hop.COLLECTION: "the end of each transaction",
    LANDING_HOP: "its landing",
    Hop.MERGE: "each change",
}
BY_CHANGE_OR_COMMIT = "each change, or of the commit that removed rows"
From = Annotated[str | None, Query(alias="from")]
To = Annotated[str | None, Query(alias="to")]


@dataclass(frozen=True, slots=True)
class Span:
    """The minutes that begin at or after ``start`` and before ``end``."""

    start: datetime
    end: datetime

    @property
    def minutes(self) -> range:
        """Return the minutes as numbers, as an entry counts them."""
        last = self.end - timedelta(microseconds=1)  # the end may be in the middle of a minute
        return range(minute_of(self.start), minute_of(last) + 1)


@LEDGER_ROUTES.get(
    "/tables/{table:path}/ledger",  # table names may contain slashes
    responses={200: declare_answer(answers.TableLedger), **NOT_FOUND},
)
def ledger(parts: Parts, table: str, since: From = None, until: To = None) -> JSONResponse:
    """What went into each hop and came out, by minute, from ``from`` to before ``to``.

    By default the last hour; at most a day. A date means the start of that day in the pipeline's
    zone, so two consecutive dates select one day. Minutes without any count are left out. Minutes
    that balance or are unknown are kept for six hours, residuals until they are made good. ``note``
    says if the span begins before that, or in the future.
    """
    span = _span(parts, table, since, until)
    found = _entries(parts, table, span)
    note = _explain_limit(parts, span, found)
    residuals = parts.store.ledger.residuals()
    ends = parts.store.ledger.residual_minutes(table)
    made: answers.TableLedger = {
        "table": table,
        "since": render.render_instant(span.start),
        "until": render.render_instant(span.end),
        "note": note,
        "hops": [
            {
                "hop": str(hop),
                "residual": residuals.get((table, hop), _sum_of_none(parts, table, hop)),
                "oldest": _render_end(ends, hop, 0),
                "newest": _render_end(ends, hop, 1),
                "note": _explain_empty(parts, table, hop, found, known=not note),
                "minutes": [_render_minute(one) for one in found.get(hop, ())],
            }
            for hop in _hops(parts, table)
        ],
    }
    return render.Answer(made)


@dataclass(frozen=True, slots=True)
class Cell:
    """One minute in the picture: its left edge, state, sign and text."""

    left: int
    state: str
    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A hop in the picture; ``note`` says why it is empty, ``dated_by`` which time dates it."""

    title: str
    hop: str
    cells: tuple[Cell, ...]
    note: str
    dated_by: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A residual of *hop* in minutes that are not shown; ``query`` is the query that shows them."""

    hop: str
    text: str
    query: str


@LEDGER_PAGES.get("/ledger", response_class=HTMLResponse, responses=NOT_FOUND)
def ledger_page(parts: Parts, table: Text, since: From = None, until: To = None) -> str:
    """The minutes of a table as a picture; minutes that do not balance are also shown in words."""
    span = _span(parts, table, since, until)
    found = _entries(parts, table, span)
    note = _explain_limit(parts, span, found)
    lines = [
        Line(
            f"{hop}: {TITLES.get(hop, INTO_COPY)}",
            str(hop),
            tuple(_cells(hop, found.get(hop, ()), span)),
            _explain_empty(parts, table, hop, found, known=not note),
            DATED_BY.get(hop, BY_CHANGE_OR_COMMIT),
        )
        for hop in _hops(parts, table)
    ]
    wrong = [
        (str(hop), _render_minute(one))
        for hop in _hops(parts, table)
        for one in found.get(hop, ())
        if one.state in LISTED
    ]
    shown = {"lines": lines, "note": note, "wrong": wrong[::-1], "signs": SIGNS, "cell": CELL}
    shown["elsewhere"] = tuple(_find_elsewhere(parts, table, span))
    width = len(span.minutes) * CELL
    first, last = (format_instant(one) for one in (span.start, span.end))
    page = PAGES.get_template("ledger.html")
    return page.render(table=table, width=width, first=first, last=last, **shown)


def _span(parts: ApiParts, table: str, since: str | None, until: str | None) -> Span:
    parts.require_known(table)
    end = parts.clock() if until is None else _read_instant(parts, "to", until)
    try:
        start = end - SHOWN if since is None else _read_instant(parts, "from", since)
    except OverflowError as error:
        raise ConfigError(f"to {until!r}: nothing is before it; give a later instant") from error
    if not timedelta() < end - start <= MOST_SHOWN:
        raise ConfigError(
            "from, to: ask for a span of up to a day that begins before it ends; give both, as "
            "instants with their offset (2026-03-29T18:00:00+08:00) or as dates"
        )
    return Span(start, end)


def _find_elsewhere(parts: ApiParts, table: str, span: Span) -> Iterator[Elsewhere]:
    """Yield residuals of minutes outside of *span*."""
    residuals, minutes = parts.store.ledger.residuals(), parts.store.ledger.residual_minutes(table)
    for hop in _hops(parts, table):
        rows, ends = residuals.get((table, hop)), minutes.get(hop, ())
        outside = [one for one in ends if one not in span.minutes]
        if rows and outside:
            first, last = (format_instant(_begin(one)) for one in ends)
            text = f"{describe_missing(hop, rows)}, of {first} to {last}"
            begin = min(_begin(outside[0]), NEWEST - SHOWN)
            asked = {"from": begin, "to": begin + SHOWN}
            when = {name: render.render_instant(at) for name, at in asked.items()}
            yield Elsewhere(hop, text, urlencode({"table": table, **when}))


def _read_instant(parts: ApiParts, name: str, text: str) -> datetime:
    """Return the instant that the parameter *name* means; a date means its start, not its end."""
    zone = parts.gate.zone
    try:
        if DAY.fullmatch(text):
            return day_end(date.fromisoformat(text) - timedelta(days=1), zone)
        return parts.gate.cut(text)
    except (ConfigError, ValueError, OverflowError) as error:
        hint = "; send '+' as %2B in a URL" if "%2B" in str(error) else ""
        raise ConfigError(
            f"{name} {text!r}: give an instant with its offset (2026-03-29T18:00:00+08:00), or a "
            f"date (2026-03-29, its first instant in {zone.key}){hint}"
        ) from error


def _hops(parts: ApiParts, table: str) -> tuple[str, ...]:
    return (*LEDGER_HOPS, *map(copy_hop, parts.gate.copies(table)))


def _entries(parts: ApiParts, table: str, span: Span) -> Mapping[str, tuple[LedgerEntry, ...]]:
    copies, minutes = parts.gate.copies(table), span.minutes
    return parts.store.ledger.entries(table, minutes.start, minutes.stop, copies)


def _explain_limit(
    parts: ApiParts, span: Span, found: Mapping[str, tuple[LedgerEntry, ...]]
) -> str:
    """Return why rows in *span* may be forgotten or yet to come; empty if neither."""
    now = parts.clock()
    if span.start < now - KEPT:
        since = render.render_instant(now - KEPT)
        return f"minutes before {since} are kept only if they had a residual"
    if span.start > now and not any(found.values()):
        return f"this time is in the future; it is {render.render_instant(now)} now"
    return ""


def _sum_of_none(parts: ApiParts, table: str, hop: str) -> int | None:
    """Return the residual of a hop without a kept minute: 0 if its rows are counted, else None."""
    if hop == Hop.COLLECTION:
        newest = _counting_verdict(parts, table)
        return None if newest is None or newest.ruling.outcome is Outcome.UNKNOWN else 0
    return 0 if _has_landed(parts, table) else None


def _has_landed(parts: ApiParts, table: str) -> bool:
    """Whether rows of *table* are merged, or were before it was dropped."""
    view, retired = parts.current.board.table(table), parts.current.board.retired
    if view is None:
        return table in {one.table for one in retired}
    return view.life is not None and view.life.state is not TableState.NEW


def _counting_verdict(parts: ApiParts, table: str) -> Verdict | None:
    view = parts.current.board.table(table)
    verdicts = () if view is None else view.verdicts
    return next((one for one in verdicts if one.check == COUNTING_CHECK), None)


def _explain_empty(
    parts: ApiParts,
    table: str,
    hop: str,
    found: Mapping[str, tuple[LedgerEntry, ...]],
    *,
    known: bool,
) -> str:
    """Return why *hop* has no minutes; a hop that is not counted is never shown as balanced.

    Without *known*, minutes of the span may be forgotten.
    """
    if found.get(hop):
        return ""
    if hop != Hop.COLLECTION and not _has_landed(parts, table):
        return "not counted: no row is merged yet"
    if hop != Hop.COLLECTION:
        none = "no row that the copy followed" if is_copy_hop(hop) else "no row"
        return none if known else "no row is known"
    newest = _counting_verdict(parts, table)
    if newest is None:
        return f"not counted: {COUNTING_CHECK} has not ruled, or is off"
    if newest.ruling.outcome is not Outcome.UNKNOWN:
        return "no transaction ended" if known else "no transaction is known"
    known = newest.ruling.code == "unsupported"
    return f"{NOT_BY_SOURCE if known else 'not counted'}: {newest.ruling.reason}"


def _cells(hop: str, entries: tuple[LedgerEntry, ...], span: Span) -> Iterator[Cell]:
    sums = _count_units if hop == LANDING_HOP else _count_rows
    for one in entries:
        left = (one.minute - span.minutes.start) * CELL
        counts = {"in": one.went_in, "out": one.came_out, "in flight": one.in_flight}
        parts = [f"{sums(rows)} {name}" for name, rows in counts.items() if rows]
        text = f"{_instant(one)}: {', '.join([one.state.value.replace('_', ' '), *parts])}"
        yield Cell(left, one.state.value, SIGNS[one.state], text)


def _count_rows(rows: Mapping[str, int]) -> str:
    return str(sum(rows.values()))


def _count_units(units: Mapping[str, int]) -> str:
    """Format counts of messages and of rows side by side, because their sum means nothing."""
    return ", ".join(f"{number} {name}" for name, number in units.items())


def _instant(one: LedgerEntry) -> str:
    return render.render_instant(_begin(one.minute))


def _render_end(ends: Mapping[str, tuple[int, int]], hop: str, which: int) -> str | None:
    return render.render_instant(_begin(ends[hop][which])) if hop in ends else None


def _begin(minute: int) -> datetime:
    """Return the start of *minute*, a number as in an entry."""
    return datetime.fromtimestamp(minute * 60, UTC)


def _render_minute(one: LedgerEntry) -> answers.LedgerMinute:
    return {
        "minute": _instant(one),
        "state": one.state.value,
        "went_in": dict(one.went_in),
        "came_out": dict(one.came_out),
        "explained": dict(one.explained),
        "in_flight": dict(one.in_flight),
        "missing": dict(one.missing),
        "residual": one.residual,
        "made_good": dict(one.made_good),
        "proof": one.proof,
    }
