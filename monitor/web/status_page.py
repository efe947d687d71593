"""Renders the status page from the board alone, and serves the runbooks as pages.

State is shown by word, shape and colour. On a stale board every state is UNKNOWN. A page that
shows old state is worse than one that shows none.

Lag bars show the lag of each hop, and they add up. Incidents come gravest first, and suspicions
apart. Tables that need an operator come first, then the others by name. The head counts all
tables, also those not shown.

Runbooks are pages of the service, because an operator who is paged follows a link, not a path.
They are read from `docs` of the checkout or the installation. Without it, the page links to
none.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token

from alerts.message import runbook_page
from alerts.model import AlertKind, Incident, IncidentState, Severity
from checks.model import Outcome, Verdict, Verified
from checks.probes.expectations import NAME as EXPECTATIONS
from checks.readiness import Readiness, ReadinessState
from monitor.board import GRAVITY, Board, CopyView, RepairDecision, TableView
from monitor.observe.probing import JOB as PROBE_JOB
from monitor.web.answers import NOT_FOUND
from monitor.web.metrics import find_newest_image as newest_image
from monitor.web.summary import find_headlines, format_duration, format_instant
from pipeline import installed
from pipeline.errors import UnknownNameError
from pipeline.lags.lag import HopLag, Lags
from pipeline.model import Missing, Stage

WIDTH = 100.0
SHORTEST = timedelta(seconds=10)  # shorter lags do not fill the line, because nothing is late
UNKNOWN_WIDTH = 12.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One hop in a lag bar: its left edge and width in hundredths; ``why`` its lag is unknown."""

    hop: str
    left: float
    width: float
    text: str
    why: str = ""


def lag_segments(lags: Lags, longest: timedelta) -> tuple[Segment, ...]:
    """Place the hops of *lags* side by side; the longest lag of all, *longest*, fills the line.

    A hop with an unknown lag has a fixed width, because it must not look like no lag.
    """
    hops = lags.up_to(Stage.MIRROR)
    unknown = sum(isinstance(hop.lag, Missing) for hop in hops)
    known = sum((_span(hop) for hop in hops), timedelta())
    room = WIDTH - unknown * UNKNOWN_WIDTH
    scale = room / max(longest, known, SHORTEST).total_seconds()
    left, found = 0.0, []
    for hop in hops:
        found.append(_segment(hop, left, scale))
        left += found[-1].width
    return tuple(found)


def _segment(hop: HopLag, left: float, scale: float) -> Segment:
    if isinstance(hop.lag, Missing):
        return Segment(hop.hop.value, left, UNKNOWN_WIDTH, "?", hop.lag.why)
    seconds = _span(hop).total_seconds()
    return Segment(hop.hop.value, left, seconds * scale, f"{seconds:.1f} s")


def _span(hop: HopLag) -> timedelta:
    return timedelta() if isinstance(hop.lag, Missing) else max(hop.lag, timedelta())


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
    repairs: tuple[RepairDecision, ...] = ()


def open_incidents(board: Board, now: datetime) -> tuple[list[ShownIncident], list[ShownIncident]]:
    """Return firing incidents, and separately pending ones, which may end unnotified."""
    gravity = list(Severity)
    every = sorted(board.incidents, key=lambda one: (gravity.index(one.severity), one.opened))
    notified = [_trouble(one, board, now) for one in every if _was_notified(one)]
    return notified, [_trouble(one, board, now) for one in every if not _was_notified(one)]


def _was_notified(one: Incident) -> bool:
    """Tell whether it was notified: a pending incident may end without a notification."""
    return one.state is not IncidentState.PENDING or one.cause.kind is not AlertKind.UNKNOWN


def _trouble(one: Incident, board: Board, now: datetime) -> ShownIncident:
    kind, check = one.cause.kind.value, one.cause.check
    return ShownIncident(
        severity=one.severity.value,
        kind=kind,
        state=one.state.value,
        title=f"{one.cause.subject} {check}".strip(),
        since=format_duration(now - one.opened),
        reason=one.ruling.reason,
        keys=one.ruling.keys[:MOST_KEYS],
        more=max(len(one.ruling.keys) - MOST_KEYS, 0),
        tables=one.tables,
        owner=one.owner,
        hands=one.acknowledged.who if one.acknowledged else "",
        runbook=runbook_page(one, board.runbooks),
        id=one.id,
        repairs=tuple(repair for repair in board.repairs if repair.incident == one.id),
    )


DOCS = installed.data_file("docs")
FOLDER = "runbooks"
RUNBOOK_ROUTES = APIRouter()
_PAGE = Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sluice: {{ name }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; }
body { max-width: 48rem; margin: 1rem auto; padding: 0 1rem; overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886; border-radius: .4rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th { white-space: nowrap; }
td code { overflow-wrap: normal; }
td, th { border: 1px solid #8886; padding: .25rem .5rem; text-align: left; vertical-align: top; }
:target { background: #fdf0d3; color: #16202a; }
</style></head><body><p><a href="{{ home }}">Sluice</a></p>
{{ body|safe }}
</body></html>
"""
)

_ROUTES = Environment(autoescape=True).from_string(
    """<h1>Routes</h1>
<p>Times are RFC 3339, durations <code>30s</code>, <code>5m</code> or ISO 8601.
For programs: <a href="openapi.json">openapi.json</a>.</p>
<table><tr><th>route</th><th>parameters</th><th>what it does</th></tr>
{% for one in routes %}<tr><td><code>{{ one.method }} {{ one.path }}</code></td>
<td>{% for name in one.parameters %}<code>{{ name }}</code> {% endfor %}</td>
<td>{{ one.text }}</td></tr>
{% endfor %}</table>"""
)


def reference_page(openapi: Mapping[str, Any]) -> str:
    """Render every route of an OpenAPI document as a page without external content."""
    routes = [
        {
            "method": method.upper(),
            "path": path,
            "parameters": [one["name"] for one in route.get("parameters", ())],
            "text": re.sub(r"``|\*", "", route.get("description") or route.get("summary", "")),
        }
        for path, methods in openapi["paths"].items()
        for method, route in methods.items()
    ]
    return _PAGE.render(name="routes", body=_ROUTES.render(routes=routes), home="./")


def runbook_link(runbook: str) -> str:
    """Return the link of *runbook*; empty if the page must not link to it.

    A full address is unchanged; else it is the service's own page, relative to the status page.
    """
    if runbook.startswith(("http://", "https://")):
        return runbook
    name = runbook.rpartition("/")[2]
    return f"{FOLDER}/{name}" if (DOCS / FOLDER / name.partition("#")[0]).is_file() else ""


Section = Literal["concepts", "guides", "reference", "runbooks", "start", "systems"]


@RUNBOOK_ROUTES.get("/{section}/{name}.md", response_class=HTMLResponse, responses=NOT_FOUND)
def section_page(section: Section, name: str) -> str:
    """A page of the documentation, such as the runbook that an alert links to."""
    return _page(DOCS / section, name, "../")


@RUNBOOK_ROUTES.get("/{name}.md", response_class=HTMLResponse, responses=NOT_FOUND)
def top_page(name: str) -> str:
    """A page of the documentation that belongs to no section."""
    return _page(DOCS, name, "./")


class Picture(Response):
    """Response with a complete picture; it ignores `Range`, so no range can be wrong."""

    media_type = "image/png"


@RUNBOOK_ROUTES.get("/images/{name}.png", response_class=Picture, responses=NOT_FOUND)
def image(name: str) -> Picture:
    """A picture of the documentation."""
    return Picture(_find_file(DOCS / "images", name, ".png").read_bytes())


def _page(folder: Path, name: str, home: str) -> str:
    return _rendered(_find_file(folder, name, ".md"), home)


def _find_file(folder: Path, name: str, suffix: str) -> Path:
    known = {path.stem: path for path in folder.glob(f"*{suffix}")}
    if name not in known:
        raise UnknownNameError(f"no page {name!r} here; known: {', '.join(sorted(known))}")
    return known[name]


@cache
def _rendered(path: Path, home: str) -> str:
    """Return the page as HTML; each heading has the anchor that Markdown tools give it.

    A link to a file that the service does not serve, such as an example of the repository, becomes
    plain text.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(path.read_text(encoding="utf-8"))
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            slug = re.sub(r"[^\w\- ]", "", text.content.lower()).replace(" ", "-")
            opening.attrSet("id", slug)
    for token in tokens:
        token.children = token.children and list(_served_links(token.children, path.parent))
    body = markdown.renderer.render(tokens, markdown.options, {})
    return _PAGE.render(name=path.stem, body=body, home=home)


def _served_links(tokens: Iterable[Token], folder: Path) -> Iterator[Token]:
    """Yield *tokens* of a page in *folder*, without links that the service cannot follow."""
    is_kept = True
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrGet("href")).partition("#")[0]
            is_kept = not target or "://" in target or _is_served((folder / target).resolve())
        if is_kept or token.type not in ("link_open", "link_close"):
            yield token


def _is_served(file: Path) -> bool:
    top = DOCS.resolve()
    folders = {top, *(top / name for name in ("images", *get_args(Section)))}
    return file.is_file() and file.parent in folders and file.suffix in (".md", ".png")


AT_ONCE = 60  # tables per page; each takes 1.5 kB


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """Which tables to show: *text* is part of the name, *state* optional; *page* counts from 1."""

    text: str = ""
    state: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class ShownTables:
    """*views* of one page, out of *found* matching tables; *states* counts all tables.

    ``before`` and ``after`` are the links of the neighbouring pages, empty at either end.
    """

    views: tuple[TableView, ...]
    found: int
    states: Mapping[str, int]
    first: int = 1
    before: str = ""
    after: str = ""


def select_page(
    views: Sequence[TableView], state: Callable[[TableView], str], asked: TableQuestion
) -> ShownTables:
    """Return one page of *views*, which are in the order of the page; *state* classifies each."""
    states = [state(view) for view in views]
    text = asked.text.strip().lower()
    found = [
        view
        for view, own in zip(views, states, strict=True)
        if asked.state in ("", own) and text in view.table.name.lower()
    ]
    last = max(1, -(-len(found) // AT_ONCE))
    page = min(max(asked.page, 1), last)
    first = (page - 1) * AT_ONCE
    return ShownTables(
        views=tuple(found[first : first + AT_ONCE]),
        found=len(found),
        states=Counter(states),
        first=first + 1,
        before=_address(asked, page - 1) if page > 1 else "",
        after=_address(asked, page + 1) if page < last else "",
    )


def _address(asked: TableQuestion, page: int) -> str:
    words = {"text": asked.text, "state": asked.state, "page": str(page)}
    return "?" + urlencode({name: word for name, word in words.items() if word})


LOSS = "check_failed"
WORST_FIRST = ("lost", *(state.value for state in GRAVITY))
PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class Badge:
    """A displayed state; ``kind`` selects shape and colour."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """Whether one stage may be read up to a cut, why not, and the estimated time of READY."""

    badge: Badge
    reasons: tuple[str, ...]
    eta: str


@dataclass(frozen=True, slots=True)
class CopyLine:
    """One copy of a table: whether it is complete up to yesterday, and its lag."""

    name: str
    badge: Badge
    description: str


@dataclass(frozen=True, slots=True)
class TableLine:
    """One table on the page."""

    name: str
    tier: int
    life: str
    why: str
    day: StageAnswer
    landed: Badge
    recent: StageAnswer
    bar: tuple[Segment, ...]
    total: str
    checks: tuple[tuple[str, str, str], ...]
    checked: str
    image: Badge | None = None
    imaged: str = ""
    copies: tuple[CopyLine, ...] = ()
    compared: str = ""

    @property
    def trace(self) -> str:
        """Return the address of the page that traces its rows."""
        return "trace?" + urlencode({"table": self.name})

    @property
    def ledger(self) -> str:
        """Return the address of the page that shows its ledger."""
        return "ledger?" + urlencode({"table": self.name})

    @property
    def validation(self) -> str:
        """Return the address of the page of its expectations; empty if none was evaluated."""
        evaluated = any(name == EXPECTATIONS for name, *_ in self.checks)
        return "expectations?" + urlencode({"table": self.name}) if evaluated else ""

    @property
    def worst(self) -> Badge:
        """Return the graver of its two answers; the head of the page counts these."""
        return min(self.day.badge, self.recent.badge, key=lambda one: WORST_FIRST.index(one.kind))


MOST = 20  # most incidents, and most tables of an incident
EVERYTHING = TableQuestion()


def status_page(board: Board, now: datetime, asked: TableQuestion = EVERYTHING) -> str:
    """Return the page as HTML; it refreshes itself every five seconds."""
    found = select_page(_ordered(board, now), partial(_state, board.stale(now)), asked)
    incidents, pending = open_incidents(board, now)
    template = PAGES.get_template("status.html")
    return template.render(
        lines=list(_lines(board, found.views, now)),
        shown=found,
        most=MOST,
        at_once=AT_ONCE,
        asked=asked,
        counts=[(_named(kind), found.states[kind]) for kind in WORST_FIRST if found.states[kind]],
        first=find_headlines(board, now),
        link=runbook_link,
        incidents=incidents,
        pending=pending,
        hanging=any(one.title == PROBE_JOB for one in pending),
        parts=board.parts,
        channels=board.channels,
        jobs=board.jobs,
        late_jobs=[job.name for job in board.jobs if job.overdue],
        restarts=board.restarts,
        retired=board.retired,
        cut=format_instant(board.cut),
        stale=board.stale(now),
        born=board.at != Board().at,
        age=format_duration(board.age(now)),
        at=format_instant(board.at),
        ago=lambda at: format_duration(now - at) if at else "never",
    )


def _ordered(board: Board, now: datetime) -> list[TableView]:
    """Order the tables that need a person first."""
    stale = board.stale(now)

    def place(view: TableView) -> tuple[int, int, str]:
        gravity = ReadinessState.UNKNOWN if stale else view.worst
        return GRAVITY.index(gravity), view.table.tier, view.table.name

    return sorted(board.tables, key=place)


def _state(stale: bool, view: TableView) -> str:
    """Return the graver of the two answers of a table; the head of the page counts these."""
    answers = (view.day[Stage.MIRROR], view.recent[Stage.MIRROR])
    return min((_badge(one, stale=stale).kind for one in answers), key=WORST_FIRST.index)


def _lines(board: Board, views: Iterable[TableView], now: datetime) -> Iterator[TableLine]:
    longest = max(
        (t for v in board.tables if not isinstance(t := v.lags.total(Stage.MIRROR), Missing)),
        default=timedelta(),
    )
    for view in views:
        yield _line(view, longest, now, stale=board.stale(now))


def _line(view: TableView, longest: timedelta, now: datetime, *, stale: bool) -> TableLine:
    total = view.lags.total(Stage.MIRROR)
    probes = [v for v in view.verdicts if v.as_of or v.ruling.outcome is not Outcome.PASS]
    newest = max((verdict.at for verdict in probes), default=None)
    imaged = view.day.get(Stage.IMAGE)
    day = _answer(view.day[Stage.MIRROR], now, stale=stale)
    why = view.life.why if view.life and not stale else ""
    return TableLine(
        name=view.table.name,
        tier=view.table.tier,
        life=_life(view, now, stale=stale),
        why="" if any(one.startswith(why) for one in day.reasons) else why,
        day=day,
        landed=_badge(view.day[Stage.LANDED], stale=stale),
        recent=_answer(view.recent[Stage.MIRROR], now, stale=stale),
        bar=() if stale else lag_segments(view.lags, longest),
        total="unknown" if isinstance(total, Missing) or stale else format_duration(total),
        checks=tuple(_check(verdict) for verdict in _worst_first(view.verdicts)),
        checked=format_duration(now - newest) if newest else "",
        image=None if imaged is None else _badge(imaged, stale=stale),
        imaged="" if stale else _imaged(view, now),
        copies=tuple(_copy(one, stale=stale) for one in view.copies),
        compared="" if stale else _compared(view.verified, now),
    )


def _compared(one: Verified | None, now: datetime) -> str:
    """Return how long ago the rows were compared with their source; empty if no check does it."""
    if one is None:
        return ""
    if one.oldest is None:
        return "values: not every row is compared yet"
    rows = f"values: every row compared within {format_duration(now - one.oldest)}"
    if one.through is None:
        return rows
    return f"{rows}, changes up to {format_duration(now - one.through)} ago"


def _copy(one: CopyView, *, stale: bool) -> CopyLine:
    badge = _badge(one.day, stale=stale)
    if stale:
        return CopyLine(one.name, badge, "")
    if one.hold is not None:
        return CopyLine(one.name, badge, f"held: {one.hold.detail}")
    lag = one.hop.lag
    text = lag.why if isinstance(lag, Missing) else f"{format_duration(lag)} behind"
    return CopyLine(one.name, badge, text)


def _life(view: TableView, now: datetime, *, stale: bool) -> str:
    """Describe the state of the table, and its duration."""
    one = view.life
    return (
        "" if one is None or stale else f"{one.state.value} for {format_duration(now - one.since)}"
    )


def _imaged(view: TableView, now: datetime) -> str:
    """Describe the images of the table in a few words; empty if none are made."""
    if Stage.IMAGE not in view.day:
        return ""
    image = newest_image(view, now)
    if image is None:
        return "no image is readable"
    rows = "" if image.rows is None else f", {image.rows:,} rows"
    again = f", corrected {image.revision} times" if image.revision else ""
    return f"newest image: {image.day or format_instant(image.cut)}{rows}{again}"


def _answer(answer: Readiness, now: datetime, *, stale: bool) -> StageAnswer:
    if stale:
        return StageAnswer(
            _badge(answer, stale=True), (("no monitoring round ended for too long"),), ""
        )
    texts = tuple(dict.fromkeys(one.text for one in answer.reasons if one.code != "certified"))
    eta = format_duration(answer.eta - now) if answer.eta and answer.eta > now else ""
    return StageAnswer(_badge(answer, stale=False), () if answer.ready else texts[:4], eta)


def _badge(answer: Readiness, *, stale: bool) -> Badge:
    if stale:
        return _shown(ReadinessState.UNKNOWN)
    if answer.state is ReadinessState.BLOCKED and any(one.code == LOSS for one in answer.reasons):
        return Badge("lost", "LOST")
    return _shown(answer.state)


def _shown(state: ReadinessState) -> Badge:
    return _named(state.value)


def _named(kind: str) -> Badge:
    return Badge(kind, kind.replace("_", " ").upper())


def _check(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.check, verdict.ruling.outcome.value, verdict.ruling.reason


def _worst_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    order = [Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS]
    return sorted(verdicts, key=lambda v: (order.index(v.ruling.outcome), v.check))
