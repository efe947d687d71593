"""Compares the number of rows in each id range of each shard with the source.

The newest ranges are counted in every cycle, older ones in rotation, so a row that is committed
late with a low id is found too.  Ranges that differ are halved down to ids. An id is named only if
it is still on one side only in a later round and no change explains it.
A differing range is counted again in each cycle until both sides agree or all its differing ids are
explained.  There is no PASS while one is left, however many ids were repaired.  While `values`
passes, `values` compares such ranges, because it can explain each changing row.
Cannot detect: a changed value; a lost and a ghost row of one range that cancel out in every count;
a difference in an old range before its rotation; tables whose key is not one integer.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from checks.counting import (
    AGAIN,
    HANDED,
    CountedRanges,
    Differences,
    Fences,
    HandedRanges,
    OpenRanges,
    Pace,
    Suspect,
    SuspectReading,
    SuspectState,
    await_fences,
    compare_ranges,
    count_ranges,
    differing_ranges,
    dump_open_ranges,
    dump_suspects,
    fences_after,
    find_proof,
    find_suspects,
    find_wrong,
    judge_suspects,
    load_instant,
    load_open_ranges,
    load_suspects,
    read_other,
    read_suspects,
    rows_in,
    rule_differences,
    shard_name,
    uncounted_ranges,
)
from checks.mirror_state import follow_mirror
from checks.model import FailKind, NoneOrMore, NotYet, OneOrMore, Ruling, Span, Undecided
from checks.run import Probe
from checks.world import Range, World
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Table

NAME, VALUES = "range_counts", "values"
Memory = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """Fail when ids are on one side only, or doubled.

    A block has about *block_rows* rows; each cycle counts the *newest* blocks of each shard and
    *rotating* older ones.  Ranges that differ are halved down to *leaf* rows; at most *suspects*
    ids are read again, at most *tries* times while they keep changing.
    """

    block_rows: OneOrMore = 20_000
    newest: OneOrMore = 2
    rotating: NoneOrMore = 4
    leaf: OneOrMore = 200
    suspects: OneOrMore = 200
    tries: OneOrMore = 3
    patience: Span = timedelta(minutes=10)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(seconds=30)
    every: ClassVar[timedelta] = timedelta(seconds=15)
    gating: ClassVar[bool] = True
    kind: ClassVar[FailKind] = FailKind.LOST

    def measure(self, table: Table, world: World) -> Differences | NotYet | Undecided:
        """Compare the earlier counts or judge the suspects, then count again."""
        if table.no_ranges:
            return Undecided("unsupported", table.no_ranges)
        memory = world.recall(table, NAME)
        if memory is None:  # differences are kept even if the change log has lost batches
            lasting = world.recall(table, NAME, lasting=True) or {}
            memory = {key: lasting[key] for key in ("found", "open") if key in lasting}
        by_proof = self._rule_by_proof(table, world, memory)
        if by_proof is not None:
            return by_proof
        if not memory.get("counted") or memory.get("failed") or memory.get("proof"):
            self._begin(table, world, memory)
            return NotYet("a cycle has begun")
        return self._take_step(table, world, memory)

    def _take_step(
        self, table: Table, world: World, memory: Memory
    ) -> Differences | NotYet | Undecided:
        """Take the next step of a cycle, once the mirror has passed the last one."""
        counted = CountedRanges.loads(memory["counted"])
        seen = SuspectReading.loads(memory["look"], table) if memory["look"] else None
        instant = seen.ended if seen else counted.ended
        fences = await_fences(table, world, instant, self.patience)
        if isinstance(fences, NotYet):
            return replace(fences, suspicious=seen is not None)
        if isinstance(fences, Undecided):
            return fences
        if seen is None:
            return self._compare(table, world, memory, counted, fences)
        return self._confirm(table, world, memory, seen, fences)

    def _rule_by_proof(
        self, table: Table, world: World, memory: Memory
    ) -> Differences | NotYet | Undecided | None:
        """Rule once on each proof of `values`, and wait for the next; None to count ranges."""
        if memory.get("found") or memory.get("look"):
            return None  # wrong and suspect ids are read again, even if `values` passes
        if memory.get("open"):
            return self._hand_over(table, world, memory)
        proof = find_proof(table, world, VALUES)
        ruled = proof.ruled.isoformat() if proof else ""
        same = proof is not None and ruled == memory.get("proof")
        if proof and same and not follow_mirror(table, world, proof.mirror)[1]:
            return NotYet(f"{VALUES} goes on")
        fences = proof.fences(table, world) if proof else None
        if proof is None or fences is None:
            return self._await_values(table, world) if memory.get("proof") else None
        world.remember(table, NAME, _settled(memory, ruled))
        return Differences(fences, f"as {VALUES} has proven: {proof}", ended=world.clock())

    def _hand_over(self, table: Table, world: World, memory: Memory) -> NotYet | None:
        """Leave the differing ranges to `values`, which can explain each changing row.

        They are settled once `values` passes with a look at them that began later.  If it does not
        pass, or takes too long, they are counted again.
        """
        proof, raw = find_proof(table, world, VALUES), memory.get(HANDED)
        if memory.get("alone"):
            return None
        handed = HandedRanges.loads(raw) if raw else _differing(memory, table, world.clock())
        if proof is None or world.now - handed.at > self.patience:
            if raw:
                world.remember(table, NAME, {**memory, HANDED: None, "alone": True})
            return None
        handed = handed.left_by(proof)
        opened = load_open_ranges(memory["open"], table)
        left = {
            own: tuple(one for one in many if one.span in handed.ranges.get(own, ()))
            for own, many in opened.items()
        }
        waits = {**memory, HANDED: handed.dumps(), "open": dump_open_ranges(left)}
        settled = _settled(memory, proof.began.isoformat())
        world.remember(table, NAME, waits if handed.ranges else settled)
        count = sum(map(len, handed.ranges.values()))
        return NotYet(f"{VALUES} compares {count} ranges that differ in their counts")

    def _await_values(self, table: Table, world: World) -> Undecided | None:
        """Why `values` has waited too long for the mirror; None if it has not.

        A new count would wait just as long.
        """
        ended = read_other(table, world, VALUES, _last_look)
        found = await_fences(table, world, ended, self.patience) if ended else None
        return found if isinstance(found, Undecided) else None

    def judge(self, reading: Differences, past: Sequence[float]) -> Ruling:
        """Rule on confirmed differences; *past* is not used."""
        return rule_differences(reading)

    def _compare(
        self, table: Table, world: World, memory: Memory, counted: CountedRanges, fences: Fences
    ) -> Differences | NotYet:
        """Find suspects in ranges whose counts differ; ids found before stay suspects."""
        wide = compare_ranges(table, world, counted)
        fresh = find_suspects(table, world, wide, leaf=self.leaf, most=self.suspects)
        rows = sum(abs(each.source - each.mirror) for found in wide.values() for each in found)
        left = uncounted_ranges(load_open_ranges(memory.get("open", {}), table), counted)
        more = rows_in(left) + (0 if fresh.whole else max(rows - len(fresh.ids), 1))
        suspects = fresh.ids | set(load_suspects(memory["found"], table))
        ended = world.clock()
        if not suspects:
            memory = {
                **memory,
                "open": dump_open_ranges(left if fresh.whole else differing_ranges(wide, left)),
            }
            reading = Differences(fences, _describe_counts(counted), more=more, ended=ended)
            return self._finish(table, world, memory, reading)
        seen = read_suspects(table, world, suspects)
        kept = {"look": seen.dumps(), "more": more, "whole": fresh.whole}
        opened = {
            "open": dump_open_ranges(differing_ranges(wide, left)),
            "left": dump_open_ranges(left),
        }
        world.remember(table, NAME, {**memory, **kept, **opened})
        return NotYet(f"asking {len(suspects)} ids again", suspicious=True)

    def _confirm(
        self, table: Table, world: World, memory: Memory, seen: SuspectReading, fences: Fences
    ) -> Differences | NotYet:
        """Rule on the suspects; read them again while one of them keeps changing."""
        became = list(zip(seen.suspects, judge_suspects(table, world, seen), strict=True))
        moving = [suspect for suspect, state in became if state is SuspectState.MOVING]
        left = [suspect for suspect, state in became if state is not SuspectState.CLEARED]
        if moving and seen.tries + 1 < self.tries:
            again = read_suspects(table, world, left, seen.tries + 1)
            world.remember(table, NAME, {**memory, "look": again.dumps()})
            return NotYet(f"{len(moving)} ids keep moving", suspicious=True)
        found = find_wrong(became)
        counts = _describe_counts(CountedRanges.loads(memory["counted"]))
        if not found:  # a PASS covers only what was committed before the count ended
            ended = CountedRanges.loads(memory["counted"]).ended
            fences = fences_after(table, world, ended) or fences
        reading = Differences(fences, counts, found, len(moving), memory["more"], world.clock())
        if memory.get("whole"):  # a range is closed once all its ids are explained
            memory = {**memory, "open": _unexplained(memory, left, table)}
        return self._finish(table, world, memory, reading)

    def _finish(
        self, table: Table, world: World, memory: Memory, reading: Differences
    ) -> Differences:
        """Begin the next cycle; if that fails, the reading is kept."""
        found = [suspect for suspect, _ in reading.found][: self.suspects]
        with suppress(UnreachableError, ProofError):  # the next round tries again, and says why
            self._begin(table, world, {**memory, "found": dump_suspects(found)})
        return reading

    def _begin(self, table: Table, world: World, memory: Memory) -> None:
        """Count again, including ranges with wrong ids; narrower ones after failed attempts."""
        last = CountedRanges.loads(memory["counted"]) if memory.get("counted") else None
        failed = memory.get("failed", 0)
        raw = (*memory.get("found", ()), *self._found_by_values(table, world))
        found = tuple(dict.fromkeys(load_suspects(raw, table)))
        pace = Pace(self.block_rows, self.newest, self.rotating, failed)
        opened = load_open_ranges(memory.get("open", {}), table)
        due = {own: [one.span for one in many[:AGAIN]] for own, many in opened.items()}
        cursors = last.cursors if last else {}
        again = {**due, **_guilty(last.ranges, found, due)} if last else due
        kept = {
            "look": None,
            "found": dump_suspects(found),
            "more": 0,
            "open": dump_open_ranges(opened),
        }
        try:
            fresh = count_ranges(table, world, pace, cursors=cursors, again=again)
        except (UnreachableError, ProofError):
            counted = last.dumps() if last else None
            world.remember(table, NAME, {**kept, "counted": counted, "failed": failed + 1})
            raise
        world.remember(table, NAME, {**kept, "counted": fresh.dumps(), "failed": 0})

    def _found_by_values(self, table: Table, world: World) -> Sequence[Sequence[Any]]:
        """Return the wrong rows that `values` has stored; empty if its last look is too old."""

        def read(memory: Memory) -> Sequence[Sequence[Any]]:
            ended = _last_look(memory)
            if ended is None or world.now - ended > self.patience:
                return ()
            return [(str(own), int(id_)) for own, id_ in memory["found"][: self.suspects]]

        return read_other(table, world, VALUES, read) or ()


def _last_look(memory: Memory) -> datetime | None:
    """Return when the last look of `values` ended; None before the first."""
    return load_instant(memory["ended"]) if "ended" in memory else None


def _guilty(
    ranges: Mapping[str, Sequence[Range]],
    found: Sequence[Suspect],
    due: Mapping[str, Sequence[Range]],
) -> dict[str, list[Range]]:
    """Return counted ranges that contain a found id, and ranges *due*, by shard name."""
    guilty: dict[str, list[Range]] = {}
    for own, spans in ranges.items():
        ids = [id_ for shard, id_ in found if shard_name(shard) == own]
        holding = [span for span in spans if _any_in(span, ids)]
        guilty[own] = sorted({*holding, *due.get(own, ())})
    return guilty


def _unexplained(memory: Memory, left: Sequence[Suspect], table: Table) -> dict[str, Any]:
    """Return the open ranges that were not counted in this cycle or contain an id of *left*."""
    untouched = load_open_ranges(memory.get("left", {}), table)
    kept: OpenRanges = {
        own: tuple(
            one
            for one in many
            if one in untouched.get(own, ())
            or _any_in(one.span, [id_ for shard, id_ in left if shard_name(shard) == own])
        )
        for own, many in load_open_ranges(memory["open"], table).items()
    }
    return dump_open_ranges(kept)


def _settled(memory: Memory, proof: str) -> Memory:
    """Return the memory without differences, settled by a *proof* of `values`."""
    kept = {"counted": memory.get("counted"), "look": None, "more": 0, "failed": 0}
    return {**kept, "found": [], "open": {}, "proof": proof}


def _differing(memory: Memory, table: Table, at: datetime) -> HandedRanges:
    opened = load_open_ranges(memory["open"], table)
    return HandedRanges(at, {own: tuple(one.span for one in many) for own, many in opened.items()})


def _any_in(span: Range, ids: Sequence[int]) -> bool:
    return any(span[0] <= id_ < span[1] for id_ in ids)


def _describe_counts(counted: CountedRanges) -> str:
    rows = sum(sum(own) for own in counted.counts.values())
    ranges = sum(len(own) for own in counted.ranges.values())
    return f"{rows} rows in {ranges} ranges of {len(counted.ranges)} shards are on both sides"


PROBE: type[Probe[Differences]] = RangeCounts
