"""The status page: what a person on call reads first, made from the board alone.

State is told by word, shape and colour.  When the board is old, every state on it is UNKNOWN: a
page that shows what was true a while ago is worse than one that shows nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from checks.model import Outcome, Verdict
from checks.readiness import Readiness, ReadinessState
from monitor.board import GRAVITY, Board, CopyView, TableView
from monitor.web.durations import moment, span
from monitor.web.first_lines import first_lines
from monitor.web.image_metrics import newest as newest_image
from monitor.web.lag_bars import Segment, segments
from monitor.web.open_incidents import troubles
from monitor.web.runbooks import link
from monitor.web.shown_tables import AT_ONCE, TableQuestion, shown
from pipeline.model import Missing, Stage

LOSS = "check_failed"
WORST_FIRST = ("lost", *(state.value for state in GRAVITY))
_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class Badge:
    """A state as it is shown; ``kind`` picks shape and colour."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """Whether one stage may be read up to a cut, why not, and when."""

    badge: Badge
    reasons: tuple[str, ...]
    eta: str


@dataclass(frozen=True, slots=True)
class CopyLine:
    """One copy of a table: whether it holds yesterday, and how far it is behind the mirror."""

    name: str
    badge: Badge
    told: str


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

    @property
    def worst(self) -> Badge:
        """The graver of its two answers: what the head of the page counts."""
        return min(self.day.badge, self.recent.badge, key=lambda one: WORST_FIRST.index(one.kind))


MOST = 20  # incidents, and tables of one
EVERYTHING = TableQuestion()


def status_page(board: Board, now: datetime, asked: TableQuestion = EVERYTHING) -> str:
    """The page as HTML; it refreshes itself every five seconds."""
    found = shown(_ordered(board, now), partial(_state, board.stale(now)), asked)
    incidents, pending = troubles(board, now)
    template = _PAGES.get_template("status.html")
    return template.render(
        lines=list(_lines(board, found.views, now)),
        shown=found,
        most=MOST,
        at_once=AT_ONCE,
        asked=asked,
        counts=[(_named(kind), found.states[kind]) for kind in WORST_FIRST if found.states[kind]],
        first=first_lines(board, now),
        link=link,
        incidents=incidents,
        pending=pending,
        parts=board.parts,
        channels=board.channels,
        jobs=board.jobs,
        late_jobs=[job.name for job in board.jobs if job.overdue],
        restarts=board.restarts,
        retired=board.retired,
        cut=moment(board.cut),
        stale=board.stale(now),
        born=board.at != Board().at,
        age=span(board.age(now)),
        at=moment(board.at),
        ago=lambda at: span(now - at) if at else "never",
    )


def _ordered(board: Board, now: datetime) -> list[TableView]:
    """Those that need a person first."""
    stale = board.stale(now)

    def place(view: TableView) -> tuple[int, int, str]:
        gravity = ReadinessState.UNKNOWN if stale else view.worst
        return GRAVITY.index(gravity), view.table.tier, view.table.name

    return sorted(board.tables, key=place)


def _state(stale: bool, view: TableView) -> str:
    """The graver of its two answers: what the head of the page counts."""
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
        bar=() if stale else segments(view.lags, longest),
        total="unknown" if isinstance(total, Missing) or stale else span(total),
        checks=tuple(_check(verdict) for verdict in _worst_first(view.verdicts)),
        checked=span(now - newest) if newest else "",
        image=None if imaged is None else _badge(imaged, stale=stale),
        imaged="" if stale else _imaged(view, now),
        copies=tuple(_copy(one, stale=stale) for one in view.copies),
    )


def _copy(one: CopyView, *, stale: bool) -> CopyLine:
    badge = _badge(one.day, stale=stale)
    if stale:
        return CopyLine(one.name, badge, "")
    if one.hold is not None:
        return CopyLine(one.name, badge, f"stands still: {one.hold.detail}")
    lag = one.hop.lag
    told = lag.why if isinstance(lag, Missing) else f"{span(lag)} behind"
    return CopyLine(one.name, badge, told)


def _life(view: TableView, now: datetime, *, stale: bool) -> str:
    """What the table is at, and for how long."""
    one = view.life
    return "" if one is None or stale else f"{one.state.value} for {span(now - one.since)}"


def _imaged(view: TableView, now: datetime) -> str:
    """What there is of images, in a few words; empty where none are made."""
    if Stage.IMAGE not in view.day:
        return ""
    image = newest_image(view, now)
    if image is None:
        return "no image can be read"
    rows = "" if image.rows is None else f", {image.rows:,} rows"
    again = f", corrected {image.revision} times" if image.revision else ""
    return f"newest image: {image.day or moment(image.cut)}{rows}{again}"


def _answer(answer: Readiness, now: datetime, *, stale: bool) -> StageAnswer:
    if stale:
        return StageAnswer(_badge(answer, stale=True), ("nothing was looked at for too long",), "")
    texts = tuple(dict.fromkeys(one.text for one in answer.reasons if one.code != "certified"))
    eta = span(answer.eta - now) if answer.eta and answer.eta > now else ""
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
