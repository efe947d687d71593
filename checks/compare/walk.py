"""Compares a whole table, or a range of its ids, with its source: once, range after range.

`TableWalk` reads all ranges, settles those that differ like the check `values`, and names each row
that is missing, extra, doubled or different. It waits until the mirror has passed the position of a
look. A range that cannot be decided is reported with the reason, never as equal. If a server stays
away, the walk ends early, and what it found is reported.

Memory does not grow with the number of rows. It holds the looks that differ, at most
`MOST_SUSPECTS` rows that are read again, and the ranges that were not equal at the first look.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TypeVar

from checks.compare.look import (
    MOST_ROWS,
    ComparedColumns,
    Comparison,
    Look,
    RowSuspects,
    Together,
    ask_one_by_one,
    choose_columns,
    name_columns,
)
from checks.counting import (
    NARROWER,
    Suspect,
    SuspectState,
    await_fences,
    fences_after,
    find_wrong,
)
from checks.model import NotYet, Undecided
from checks.ranges import FLOOR, UNSIGNED_CEILING, block_width, divide_range
from checks.world import Range, World
from pipeline.errors import (
    ProofError,
    SlowError,
    SluiceError,
    TooManyRowsError,
    UnreachableError,
)
from pipeline.model import Shard, Table

MOST_SUSPECTS = 10_000
"""Most rows that are read again in one run; further ranges that differ are not settled."""
MOST_OF_LOOK = 500
"""Most rows of one look that are read again: each is a statement."""
MOST_NAMED = 1_000
"""Most differing rows that are named with their columns; further rows are counted."""
TRIES = 5
"""How often a row that keeps changing is read."""
A = TypeVar("A")
FIRST_RANGES, MOST_RANGES = 4, 64
"""Number of ranges in the first look of a shard, and in the largest look."""
AGAIN = "repair what was found, and compare again"
ADDED = "it was added while the table was compared; compare again"
ANY = (FLOOR, UNSIGNED_CEILING)
"""All ids."""


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """What is compared, and how long the walk waits.

    ``closed`` are shards that cannot be read, each with the reason.
    ``within`` is the half-open range of ids.  A range has about ``block_rows`` rows.  One look
    reads at most ``most_ranges`` ranges, and takes about as long as ``look``.
    ``patience`` is how long to wait for the mirror to pass a look, or for a server to answer.
    ``quiet`` is how long to wait for the next heartbeat.
    """

    shards: tuple[Shard, ...]
    within: Range = ANY
    block_rows: int = 20_000
    most_ranges: int = MOST_RANGES
    look: timedelta = timedelta(seconds=4)
    patience: timedelta = timedelta(minutes=10)
    quiet: timedelta = timedelta(seconds=30)
    closed: Mapping[Shard, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row that is wrong; ``columns`` are those that differ, if they are known."""

    shard: Shard
    id: int
    state: SuspectState
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UndecidedRange:
    """A range that is proven neither equal nor different."""

    shard: Shard
    span: Range
    why: str


@dataclass(frozen=True, slots=True)
class WalkProgress:
    """Progress of a walk: rows and ranges read, ranges expected, and looks to be settled."""

    rows: int = 0
    ranges: int = 0
    expected: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class WalkResult:
    """The result of a walk.

    ``equal``, ``different`` and ``undecided_ranges`` count the ranges that were read.
    ``more`` counts, by state, the wrong rows that are not in ``differences``.  ``versions`` are the
    lowest and the highest version of the mirror that were read.
    """

    rows: int
    ranges: int
    equal: int
    different: int
    undecided_ranges: int
    differences: tuple[RowDifference, ...]
    more: Mapping[SuspectState, int]
    undecided: tuple[UndecidedRange, ...]
    versions: Range
    began: datetime
    ended: datetime


@dataclass(eq=False)
class TableWalk:
    """One walk.

    ``open_world`` returns the world as it is now; it raises UnreachableError while the lake does
    not answer.  ``clock`` returns the time.  ``pause`` waits a moment.  ``tell`` is called with the
    progress after each look, and may wait to spare the source.  ``together`` reads the two sides.
    After the walk, ``columns`` also has the columns that were added meanwhile, as left out.
    """

    table: Table
    columns: Mapping[Shard, ComparedColumns]
    plan: WalkPlan
    open_world: Callable[[], World]
    clock: Callable[[], datetime]
    pause: Callable[[], object]
    tell: Callable[[WalkProgress], object]
    together: Together = ask_one_by_one
    _progress: WalkProgress = field(default_factory=WalkProgress)
    _looks: list[tuple[Look, datetime]] = field(default_factory=list)
    _suspects: list[RowSuspects] = field(default_factory=list)
    _unread: list[Range] = field(default_factory=list)
    _open: list[tuple[Shard, Range]] = field(default_factory=list)
    _found: list[RowDifference] = field(default_factory=list)
    _wrong: list[Suspect] = field(default_factory=list)
    _more: Counter[SuspectState] = field(default_factory=Counter)
    _undecided: list[UndecidedRange] = field(default_factory=list)
    _versions: set[int] = field(default_factory=set)
    _read: int = 0

    def run(self) -> WalkResult:
        """Read every range, and settle what differs.

        If an error ends the walk early, ranges that were not read or settled are undecided.
        """
        began = self.clock()
        for shard, why in self.plan.closed.items():
            self._undecide(shard, [self.plan.within], why)
        complete = self._read_shards()
        complete = self._settle_rest() and complete
        if complete:
            self._find_added_columns()
        return self._result(began)

    def _read_shards(self) -> bool:
        """Read all ranges; return False if an error ended that early and the rest is undecided."""
        for at, shard in enumerate(self.plan.shards):
            try:
                self._walk(shard)
            except ProofError as error:  # no mirror, a column is gone, or an id has too many rows
                self._undecide(shard, [self.plan.within], str(error))
            except SluiceError as error:
                why = f"it was not read, because the comparison ended early: {error}"
                unread = [(self._unread[-1][0], self._unread[0][1])] if self._unread else []
                self._undecide(shard, unread, why)
                others = self.plan.shards[at + 1 :]
                for other in others:
                    self._undecide(other, [self.plan.within], why)
                return not unread and not others
        return True

    def _settle_rest(self) -> bool:
        """Settle all looks; return False if an error ended that early and the rest is undecided."""
        try:
            while self._looks or self._suspects:
                self._settle()
                self.tell(self._now())
                if self._looks or self._suspects:
                    self.pause()
        except SluiceError as error:
            why = f"it differs, and the comparison ended before it was settled: {error}"
            for look, _ in self._looks:
                self._undecide_look(look, why)
            for seen in self._suspects:
                self._undecide_rows(seen.rows, why)
            return False
        return True

    def _walk(self, shard: Shard) -> None:
        """Read the ranges of *shard*, as many at once as the time of a look allows."""
        self._unread = [self.plan.within]
        spans, units = [*self._spans(shard)], min(FIRST_RANGES, self.plan.most_ranges)
        self._expect(len(spans))
        self._unread = spans[::-1]
        while self._unread:
            some = self._unread[: -units - 1 : -1]
            spent, large = self._look(shard, some)
            if spent is None and len(some) > 1:
                units = len(some) // 2
                continue
            del self._unread[-len(some) :]
            for span in reversed(large):
                parts = divide_range(span, NARROWER)
                self._expect(len(parts) - 1)
                self._unread += reversed(parts)
            if spent is not None:
                slow, fast = spent > self.plan.look, spent * 2 < self.plan.look
                more = min(units * 2, self.plan.most_ranges) if fast else units
                units = max(units // 2, 1) if slow else more
            self._settle()
            self.tell(self._now())

    def _expect(self, ranges: int) -> None:
        self._progress = replace(self._progress, expected=self._progress.expected + ranges)

    def _spans(self, shard: Shard) -> Iterator[Range]:
        """Yield half-open ranges that cover the plan's range of ids, ascending."""
        rows, low, high = self._patiently(partial(self._read_extent, shard))
        size = block_width(low, high, rows // len(self.table.shards), self.plan.block_rows)
        edges = range(low // size * size, high + size, size)
        first, last = self.plan.within
        bounds = [first, *(one for one in edges if first < one < last), last]
        yield from (span for span in pairwise(bounds) if span[0] < span[1])

    def _read_extent(self, shard: Shard, world: World) -> tuple[int, int, int]:
        """Return the rows of the mirror, and the lowest and highest id of *shard* at its source."""
        source, column = world.source(shard.source), self.table.id_column or ""
        low, high = source.min_id(shard, column) or 0, source.max_id(shard, column) or 0
        return world.mirror(self.table).rows(), low, high

    def _patiently(self, ask: Callable[[World], A]) -> A:
        """Return the answer of *ask*; if a server does not answer, retry for the plan's patience.

        Raises:
            TooManyRowsError: a server takes too long for the question.
            UnreachableError: a server did not answer in that time.
        """
        since = self.clock()
        while True:
            try:
                return ask(self.open_world())
            except SlowError as error:
                raise TooManyRowsError(str(error)) from error
            except UnreachableError:
                if self.clock() - since > self.plan.patience:
                    raise
                self.pause()

    def _look(
        self, shard: Shard, ranges: Sequence[Range]
    ) -> tuple[timedelta | None, Sequence[Range]]:
        """Read *ranges*; return how long that took, and the ranges to be divided.

        Returns None and all ranges if they were too much at once.

        Raises:
            TooManyRowsError: a single id is too much; names the limit.
        """

        def look_now(world: World) -> tuple[Look, datetime, datetime]:
            begun = world.clock()
            return self._comparison(world).look_at(shard, ranges), begun, world.clock()

        try:
            look, begun, ended = self._patiently(look_now)
        except TooManyRowsError as error:
            if len(ranges) == 1 and ranges[0][1] - ranges[0][0] <= 1:
                raise self._explain_refusal(shard, ranges[0][0], error) from error
            return None, ranges
        return ended - begun, self._keep(look, ended)

    def _explain_refusal(self, shard: Shard, id_: int, error: TooManyRowsError) -> TooManyRowsError:
        """Return the error for one id that the source did not return, with the limit to raise."""
        what, limit = "has more rows than may be read at once", "rows"
        if isinstance(error.__cause__, SlowError):
            what, limit = "was not read in time", "statement"
        fix = f"index {self.table.id_column}, or increase options.limits.{limit} of {shard.source}"
        return TooManyRowsError(f"id {id_} of {shard} {what}: {error}; {fix}")

    def _keep(self, look: Look, ended: datetime) -> Sequence[Range]:
        """Count what *look* read and keep what differs; return the ranges that are too large."""
        large = [
            one
            for one in look.differing
            if max(one.source.rows, one.mirror.rows) >= MOST_ROWS and one.span[1] - one.span[0] > 1
        ]
        self._versions.add(look.version)
        self._progress = replace(
            self._progress,
            rows=self._progress.rows + look.rows - sum(one.source.rows for one in large),
            ranges=self._progress.ranges + look.ranges - len(large),
        )
        if small := tuple(one for one in look.differing if one not in large):
            self._looks.append((replace(look, differing=small), ended))
        return [one.span for one in large]

    def _settle(self) -> None:
        """Explain the looks and judge the rows that the mirror has passed by now."""
        comparison = self._patiently(self._comparison)
        looks, self._looks = self._looks, []
        for look, ended in looks:
            found = self._try(comparison.world, ended, partial(self._explain, comparison, look))
            if isinstance(found, NotYet):
                self._looks.append((look, ended))
            elif found is not None:
                self._undecide_look(look, found.why)
        suspects, self._suspects = self._suspects, []
        for seen in suspects:
            found = self._try(comparison.world, seen.ended, partial(self._judge, comparison, seen))
            if isinstance(found, NotYet):
                self._suspects.append(seen)
            elif found is not None:
                self._undecide_rows(seen.rows, found.why)

    def _try(
        self, world: World, ended: datetime, settle: Callable[[], None]
    ) -> Undecided | NotYet | None:
        """Call *settle* if the mirror has passed everything committed before *ended*.

        Returns None if it was called, NotYet to try again later, and Undecided if the plan's
        patience has ended or the question cannot be decided.
        """
        own = sorted({shard.source for shard in self.plan.shards})
        try:
            found = await_fences(self.table, world, ended, self.plan.patience, own)
            if isinstance(found, Undecided):
                return found
            if isinstance(found, NotYet):
                silent = fences_after(self.table, world, ended, own) is None
                if silent and world.now - ended > self.plan.quiet:
                    why = f"no heartbeat since {ended:%Y-%m-%d %H:%M:%S %Z}: no service merges"
                    why += " changes; start `sluice run`, and compare again"
                    return Undecided("not_reached", why)
                return found
            settle()
        except UnreachableError as error:
            patient = world.now - ended <= self.plan.patience
            return NotYet(str(error)) if patient else Undecided("unreachable", str(error))
        except SluiceError as error:
            return Undecided("unprovable", str(error))
        return None

    def _explain(self, comparison: Comparison, look: Look) -> None:
        """Find a position for each range of *look*; rows of unexplained ranges become suspects."""
        spans = comparison.unexplained(look)
        room = min(MOST_SUSPECTS - self._read, MOST_OF_LOOK)
        if spans and room > 0:
            found = comparison.find_suspects({look.shard: spans}, room)
            seen = found.rows
            every = (found.partly, found.large, found.unread)
            cut = [span for own in every for span in own.get(look.shard, ())]
            self._read += len(seen.rows)
            self._suspects += [seen] if seen.rows else []
            why = "more of its rows differ than are read one by one"
            self._undecide(look.shard, cut, f"{why}; {AGAIN}")
        elif spans:
            why = f"it differs, and so do {self._read} rows that were read before"
            self._undecide(look.shard, spans, f"{why}; {AGAIN}")
        self._open += [(look.shard, span) for span in spans]

    def _judge(self, comparison: Comparison, seen: RowSuspects) -> None:
        """Record wrong rows; read rows again that keep changing."""
        became = comparison.judge(seen)
        moving = [one for one, state in became.items() if state is SuspectState.MOVING]
        if moving and seen.tries + 1 < TRIES:
            self._suspects.append(comparison.read_again(moving, seen.tries + 1))
        else:
            self._undecide_rows(moving, f"the row changed in each of {TRIES} looks")
        wrong = find_wrong(became.items())
        self._wrong += [one for one, _ in wrong]
        room = MOST_NAMED - len(self._found)
        self._more.update(state for _, state in wrong[room:])
        columns = name_columns(comparison, wrong[:room])
        self._found += [
            RowDifference(*one, state, columns.get(one, ())) for one, state in wrong[:room]
        ]

    def _undecide(self, shard: Shard, spans: Iterable[Range], why: str) -> None:
        self._undecided += [UndecidedRange(shard, span, why) for span in spans]

    def _undecide_look(self, look: Look, why: str) -> None:
        spans = [one.span for one in look.differing]
        self._open += [(look.shard, span) for span in spans]
        self._undecide(look.shard, spans, why)

    def _undecide_rows(self, rows: Iterable[Suspect], why: str) -> None:
        for shard, id_ in rows:
            self._undecide(shard, [(id_, id_ + 1)], why)

    def _find_added_columns(self) -> None:
        """Leave out the columns that were added during the walk: they were not compared."""
        try:
            self.columns = self._patiently(self._with_added_columns)
        except SluiceError as error:
            why = f"it is unknown whether a column was added meanwhile: {error}"
            known = {one.shard for one in self._undecided}
            for shard in (one for one in self.plan.shards if one not in known):
                self._undecide(shard, [self.plan.within], why)

    def _with_added_columns(self, world: World) -> dict[Shard, ComparedColumns]:
        """Return ``columns``, and as left out those that a shard has now and did not have before.

        What is compared does not change.
        """
        found = dict(self.columns)
        for shard, own in self.columns.items():
            if (schema := world.schema(shard)) is not None:
                now = choose_columns(self.table, shard, schema, world)
                names = (*(one.name for one in now.columns), *now.left_out)
                known = {*(one.name for one in own.columns), *own.left_out}
                added = dict.fromkeys((one for one in names if one not in known), ADDED)
                found[shard] = replace(own, left_out={**own.left_out, **added})
        return found

    def _comparison(self, world: World) -> Comparison:
        return Comparison(self.table, world, self.columns, together=self.together)

    def _now(self) -> WalkProgress:
        return replace(self._progress, waiting=len(self._looks) + len(self._suspects))

    def _result(self, began: datetime) -> WalkResult:
        different = _ranges_with(self._open, self._wrong)
        lows = [(one.shard, one.span[0]) for one in self._undecided]
        left = _ranges_with(self._open, lows) - different
        return WalkResult(
            rows=self._progress.rows,
            ranges=self._progress.ranges,
            equal=self._progress.ranges - len(different) - len(left),
            different=len(different),
            undecided_ranges=len(left),
            differences=tuple(sorted(self._found, key=lambda one: (one.shard, one.id))),
            more=dict(self._more),
            undecided=tuple(sorted(self._undecided, key=lambda one: (one.shard, one.span))),
            versions=(min(self._versions, default=-1), max(self._versions, default=-1)),
            began=began,
            ended=self.clock(),
        )


def _ranges_with(
    ranges: Iterable[tuple[Shard, Range]], ids: Iterable[Suspect]
) -> set[tuple[Shard, Range]]:
    """Return those of *ranges*, which are disjoint, that contain one of *ids*."""
    ordered = sorted(ranges)
    lows = [(shard, span[0]) for shard, span in ordered]
    places = ((bisect_right(lows, one) - 1, one) for one in ids)
    return {
        ordered[at]
        for at, (shard, id_) in places
        if at >= 0 and ordered[at][0] == shard and id_ < ordered[at][1][1]
    }
