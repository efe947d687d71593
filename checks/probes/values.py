"""Compares all values of each id range of each shard with the source, at one position.

A range that differs is equal if the mirror with the landed changes equals the source at some
position between the two looks.  Rows of other ranges are compared one by one, and a row is named
only when it still differs in a later round and nothing in motion explains it.
A range is open until all of its rows were settled: it is looked at again in each cycle, and there
is no PASS while one is open.
Cannot see: an old range until its turn comes; columns whose values systems write differently,
which the verdict names; tables whose key is not one integer.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from checks.compare.look import (
    ComparedColumns,
    Comparison,
    Look,
    RowSuspects,
    choose_columns,
)
from checks.counting import (
    NARROWER,
    WRONG,
    Differences,
    Suspect,
    SuspectState,
    await_fences,
    fences_after,
    rule_differences,
)
from checks.model import FailKind, NoneOrMore, NotYet, OneOrMore, Ruling, Span, Undecided
from checks.ranges import block_width, choose_blocks
from checks.run import Probe
from checks.world import Range, World
from pipeline.errors import ProofError, TooManyRowsError, UnreachableError
from pipeline.model import Shard, Table

NAME = "values"
NARROWED = 3  # rows whose columns are named
Memory = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Values:
    """Fail when a row is on one side only, is doubled, or has another value.

    A block holds about *block_rows*; each cycle compares the *newest* blocks of each shard and
    *rotating* older ones.  At most *suspects* rows are read again, at most *tries* times while
    they keep moving.
    """

    block_rows: OneOrMore = 20_000
    newest: OneOrMore = 1
    rotating: NoneOrMore = 2
    suspects: OneOrMore = 200
    tries: OneOrMore = 3
    patience: Span = timedelta(minutes=10)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(seconds=30)
    every: ClassVar[timedelta] = timedelta(seconds=30)
    gating: ClassVar[bool] = False
    by_default: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.LOST

    def measure(self, table: Table, world: World) -> Differences | NotYet | Undecided:
        """Explain what differed before, or rule on the suspects; then look at the next ranges."""
        comparison = _begun(table, world)
        if isinstance(comparison, Undecided):
            return comparison
        memory = world.recall(table, NAME) or {}
        if memory.get("asked") != comparison.asked:  # sums of other columns mean nothing
            found = (world.recall(table, NAME, lasting=True) or {}).get("found", [])
            self._begin(comparison, {**memory, "found": found})
            return NotYet("a cycle has begun")
        seen = RowSuspects.loads(memory["rows"], table) if memory["rows"] else None
        ended = seen.ended if seen else datetime.fromisoformat(memory["ended"])
        fences = await_fences(table, world, ended, self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        looks = [look for raw in memory["looks"] if (look := Look.loads(raw, table))]
        reading = Differences(fences, _told(looks, comparison))
        if seen is None:
            return self._explain(comparison, memory, looks, reading)
        return self._confirm(comparison, memory, seen, reading)

    def judge(self, reading: Differences, past: Sequence[float]) -> Ruling:
        """Rule on what was confirmed; history plays no part."""
        return rule_differences(reading)

    def _explain(
        self, comparison: Comparison, memory: Memory, looks: Sequence[Look], reading: Differences
    ) -> Differences | NotYet:
        """Find the position of each range; rows of the others become suspects."""
        found = {look.shard: comparison.unexplained(look) for look in looks}
        spans = {shard: left for shard, left in found.items() if left}
        fresh, cut = comparison.find_suspects(spans, self.suspects)
        shards = {str(shard): shard for shard in comparison.table.shards}
        known = {(shards[own], id_) for own, id_ in memory["found"] if own in shards}
        if not fresh.rows and not known:
            return self._finish(comparison, {**memory, "open": _dump(cut)}, reading)
        again = comparison.read_again({*fresh.rows, *known}, 0)
        told = {"rows": again.dumps(), "spans": _dump(spans), "open": _dump(cut)}
        comparison.world.remember(comparison.table, NAME, {**memory, **told})
        return NotYet(f"reading {len(again.rows)} rows again")

    def _confirm(
        self, comparison: Comparison, memory: Memory, seen: RowSuspects, reading: Differences
    ) -> Differences | NotYet:
        """Rule on the suspects; look again while one of them keeps moving."""
        became = comparison.judge(seen)
        left = [one for one, state in became.items() if state is not SuspectState.CLEARED]
        moving = [one for one in left if became[one] is SuspectState.MOVING]
        if moving and seen.tries + 1 < self.tries:
            again = comparison.read_again(left, seen.tries + 1)
            comparison.world.remember(comparison.table, NAME, {**memory, "rows": again.dumps()})
            return NotYet(f"{len(moving)} rows keep moving")
        found = tuple((one, state) for one, state in became.items() if state in WRONG)
        different = [one for one, state in found if state is SuspectState.DIFFERENT]
        names = list[str]()
        with suppress(UnreachableError, ProofError):  # what was confirmed is said all the same
            names = [n for one in different[:NARROWED] for n in comparison.differing_columns(one)]
        named = tuple(dict.fromkeys(names))
        reading = replace(reading, found=found, moving=len(moving), columns=named)
        if not found:  # a PASS vouches for no more than what was compared
            ended = datetime.fromisoformat(memory["ended"])
            fences = fences_after(comparison.table, comparison.world, ended)
            reading = replace(reading, as_of=fences or reading.as_of)
        left_open = _with_moving(memory, moving)
        return self._finish(comparison, {**memory, "open": left_open}, reading)

    def _finish(self, comparison: Comparison, memory: Memory, reading: Differences) -> Differences:
        """Begin the next cycle: the reading stands, whether the source answers that or not."""
        left_open = sum(len(own) for own in memory["open"].values())
        reading = replace(reading, more=left_open, ended=comparison.world.clock())
        found = [[str(shard), id_] for (shard, id_), _ in reading.found][: self.suspects]
        with suppress(UnreachableError, ProofError):  # the next round tries again, and says why
            self._begin(comparison, {**memory, "found": found})
        return reading

    def _begin(self, comparison: Comparison, memory: Memory) -> None:
        """Look at the next ranges of each shard; at narrower ones after each time that failed."""
        table, world = comparison.table, comparison.world
        cursors, failed = memory.get("cursors", {}), memory.get("failed", 0)
        opened = memory.get("open", {})
        kept = {"found": memory["found"], "rows": None, "open": opened, "spans": {}}
        looks, moved = list[dict[str, Any]](), dict[str, int]()
        try:
            for shard in table.shards:
                own = [(low, high) for low, high in opened.get(str(shard), ())]
                look, moved[str(shard)] = self._look(
                    comparison, shard, own, cursors.get(str(shard), 0), failed
                )
                looks.append(look.dumps())
        except (UnreachableError, ProofError):
            world.remember(table, NAME, {**kept, "cursors": cursors, "failed": failed + 1})
            raise
        told = {"looks": looks, "ended": world.clock().isoformat(), "asked": comparison.asked}
        world.remember(table, NAME, {**kept, **told, "cursors": moved, "failed": 0})

    def _look(
        self,
        comparison: Comparison,
        shard: Shard,
        opened: Sequence[Range],
        cursor: int,
        failed: int,
    ) -> tuple[Look, int]:
        """Open ranges and others as wide as they may be; narrower ones if that is too much."""
        table, world = comparison.table, comparison.world
        source, column = world.source(shard.source), table.id_column or ""
        rows = world.mirror(table).rows() // len(table.shards)
        low, high = source.min_id(shard, column) or 0, source.max_id(shard, column) or 0
        dense = block_width(0, 0, 1, self.block_rows)
        size = max(block_width(low, high, rows, self.block_rows) // NARROWER**failed, dense)
        while True:
            choice = choose_blocks(
                low, high, size, cursor=cursor, newest=self.newest, rotating=self.rotating
            )
            try:
                ranges = _disjoint(() if failed else opened, choice.ranges)
                return comparison.look_at(shard, ranges), choice.cursor
            except TooManyRowsError:
                if size == dense:
                    raise
            size = max(size // NARROWER, dense)


def _dump(spans: Mapping[Shard, Sequence[Range]]) -> dict[str, list[list[int]]]:
    return {str(shard): [[*span] for span in own] for shard, own in spans.items() if own}


def _with_moving(memory: Memory, moving: Sequence[Suspect]) -> dict[str, list[list[int]]]:
    """The open spans, with those of rows that kept moving."""
    found = {own: [*many] for own, many in memory["open"].items()}
    for own, spans in memory["spans"].items():
        for low, high in spans:
            busy = any(str(shard) == own and low <= id_ < high for shard, id_ in moving)
            if busy and [low, high] not in found.get(own, []):
                found.setdefault(own, []).append([low, high])
    return found


def _disjoint(first: Sequence[Range], more: Sequence[Range]) -> list[Range]:
    """*first*, and those of *more* that overlap none of them; ascending."""
    kept: list[Range] = []
    for low, high in (*first, *more):
        if all(high <= start or end <= low for start, end in kept):
            kept.append((low, high))
    return sorted(kept)


def _begun(table: Table, world: World) -> Comparison | Undecided:
    if table.no_ranges:
        return Undecided("unsupported", table.no_ranges)
    columns = dict[Shard, ComparedColumns]()
    for shard in table.shards:
        schema = world.schema(shard)
        if schema is None:
            return Undecided("no_schema", f"no columns of {shard} have landed yet")
        columns[shard] = choose_columns(table, schema)
        if not columns[shard].columns:
            return Undecided("unsupported", f"no column of {shard} can be compared")
    return Comparison(table, world, columns)


def _told(looks: Sequence[Look], comparison: Comparison) -> str:
    rows, ranges = sum(look.rows for look in looks), sum(look.ranges for look in looks)
    left = {n: why for own in comparison.columns.values() for n, why in own.left_out.items()}
    text = f"{rows} rows in {ranges} ranges of {len(looks)} shards are equal on both sides"
    if not left:
        return text
    shown = "; ".join(f"{name}: {why}" for name, why in list(left.items())[:5])
    return f"{text}; not compared: {shown}"


PROBE: type[Probe[Differences]] = Values
