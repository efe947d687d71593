"""Compares the highest id of the mirror with that of the source.

Both sides are read as of one position, so lag alone never causes a FAIL.  An id above the maximum
of the other side is read again before it counts.
Cannot detect: a missing row below the maximum (see range_counts); tables without an integer key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from checks.counting import (
    WRONG,
    Fences,
    Suspect,
    SuspectReading,
    SuspectState,
    await_fences,
    judge_suspects,
    load_instant,
    load_memory,
    read_suspects,
    shard_name,
)
from checks.model import (
    MOST_KEYS,
    FailKind,
    NoneOrMore,
    NotYet,
    OneOrMore,
    Outcome,
    Ruling,
    Span,
    Undecided,
)
from checks.run import Probe
from checks.world import World
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Fence, Table

NAME = "max_id"


@dataclass(frozen=True, slots=True)
class Reach:
    """The compared maxima.

    ``short`` has each maximum that is confirmed to be on one side only, with the number of ids that
    the mirror is short of; negative if it is ahead.  ``highest`` is the highest id of all shards.
    """

    as_of: tuple[Fence, ...]
    highest: int | None
    short: tuple[tuple[Suspect, int], ...] = ()
    moving: int = 0
    ended: datetime | None = None

    @property
    def value(self) -> float:
        """Number of ids that the mirror is short of, in the worst shard; negative if ahead."""
        return float(max((gap for _, gap in self.short), key=abs, default=0))


@dataclass(frozen=True, slots=True)
class Maxima:
    """The highest id at the source, by shard name; None without rows.

    ``look`` is the second reading of maxima that differ, and ``gaps`` by how much they differ.  If
    there is a ``look``, ``highest`` has the lower maximum of the two sides.
    """

    ended: datetime
    highest: Mapping[str, int | None]
    look: SuspectReading | None = None
    gaps: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of the check."""
        return {
            "ended": self.ended.isoformat(),
            "maxima": [[*one] for one in self.highest.items()],
            "look": self.look.dumps() if self.look else None,
            "gaps": [[*suspect, gap] for suspect, gap in self.gaps.items()],
        }

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "Maxima":
        """Read back what :meth:`dumps` wrote.

        Raises:
            LookupError, TypeError, ValueError: it has an unexpected structure.
        """
        highest = {str(own): None if id_ is None else int(id_) for own, id_ in raw["maxima"]}
        gaps = {(str(own), int(id_)): int(gap) for own, id_, gap in raw["gaps"]}
        look = SuspectReading.loads(raw["look"], table) if raw["look"] else None
        if look is not None and not {(shard_name(s), id_) for s, id_ in look.suspects} <= {*gaps}:
            raise ValueError("a suspect has no gap")
        return cls(load_instant(raw["ended"]), highest, look, gaps)

    @property
    def top(self) -> int | None:
        """The highest id of all shards; None if all are empty."""
        return max((each for each in self.highest.values() if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class MaxId:
    """Fail when the mirror is more than *tolerance* ids short, or is ahead of the source."""

    tolerance: NoneOrMore = 0
    tries: OneOrMore = 3
    """How often the highest id is read again if it changes between two reads."""
    patience: Span = timedelta(minutes=10)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(seconds=10)
    every: ClassVar[timedelta] = timedelta(seconds=15)
    gating: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.LOST

    def measure(self, table: Table, world: World) -> Reach | NotYet | Undecided:
        """Compare the earlier maxima with a newer mirror, then read again."""
        if table.no_ranges:
            return Undecided("unsupported", table.no_ranges)
        memory = world.recall(table, NAME)
        if not memory:
            _read_maxima(table, world)
            return NotYet("read for the first time")
        asked = load_memory(table, world, NAME, lambda: Maxima.loads(memory, table))
        instant = asked.look.ended if asked.look else asked.ended
        fences = await_fences(table, world, instant, self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        if asked.look is None:
            return _compare(table, world, asked, fences)
        return self._confirm(table, world, asked, asked.look, fences)

    def judge(self, reading: Reach, past: Sequence[float]) -> Ruling:
        """Compare the gaps with the tolerance; *past* is not used."""
        wrong = [one for one in reading.short if one[1] < 0 or one[1] > self.tolerance]
        if wrong:  # each shard is named, because a waiver covers only the id of one shard
            keys = tuple(f"{shard_name(shard)}:{id_}" for (shard, id_), _ in wrong)
            key, gap, rest = keys[0], wrong[0][1], len(keys[MOST_KEYS:])
            code, why = "mirror_short", f"the source's highest id {key} is not in the mirror"
            reason = f"{why}, {gap} short"
            if gap < 0:
                code, why = "mirror_ahead", f"the mirror's highest id {key} is not at the source"
                reason = f"{why}, {-gap} ahead"
            more = f"; {len(keys) - 1} more shards differ" if len(keys) > 1 else ""
            return Ruling(Outcome.FAIL, reason + more, code, keys[:MOST_KEYS], rest)
        if reading.moving:
            return Ruling(Outcome.UNKNOWN, "the highest id changed at each look", "in_motion")
        return Ruling(Outcome.PASS, self._describe(reading))

    def _confirm(
        self,
        table: Table,
        world: World,
        asked: Maxima,
        seen: SuspectReading,
        fences: Fences,
    ) -> Reach | NotYet:
        became = dict(zip(seen.suspects, judge_suspects(table, world, seen), strict=True))
        moving = [suspect for suspect, state in became.items() if state is SuspectState.MOVING]
        if moving and seen.tries + 1 < self.tries:
            again = read_suspects(
                table, world, [s for s in became if became[s] is not SuspectState.CLEARED]
            )
            kept = replace(asked, look=replace(again, tries=seen.tries + 1))
            world.remember(table, NAME, kept.dumps())
            return NotYet(f"{len(moving)} highest ids keep moving")
        short = tuple(
            (suspect, asked.gaps[shard_name(suspect[0]), suspect[1]])
            for suspect, state in became.items()
            if state in WRONG
        )
        both = [
            one[1]
            for one, rows in zip(seen.suspects, seen.before, strict=True)
            if rows and became[one] is SuspectState.CLEARED
        ]
        highest = max([*both, *([] if asked.top is None else [asked.top])], default=None)
        reading = Reach(fences, highest, short, len(moving), world.clock())
        _begin_next(table, world)
        return reading

    def _describe(self, reading: Reach) -> str:
        if reading.highest is None:
            return "both sides are empty"
        short = max((gap for _, gap in reading.short), default=0)
        if short:
            return f"the mirror is {short} ids short, {self.tolerance} may be"
        return f"both sides reach id {reading.highest}"


def _read_maxima(table: Table, world: World) -> None:
    """Read every shard's maximum at its source, and store it for the next round."""
    column = table.id_column or ""
    highest = {shard_name(s): world.source(s.source).max_id(s, column) for s in table.shards}
    world.remember(table, NAME, Maxima(world.clock(), highest).dumps())


def _begin_next(table: Table, world: World) -> None:
    """Call `_read_maxima` after a round has ruled; ignores a source that does not answer now."""
    try:
        _read_maxima(table, world)
    except (UnreachableError, ProofError):
        world.remember(table, NAME, {})  # the next round begins again, and reports an error


def _compare(table: Table, world: World, asked: Maxima, fences: Fences) -> Reach | NotYet:
    """Suspect the higher of two different maxima; it may be newer than the reading, or deleted."""
    mirror = world.mirror(table)
    gaps: dict[Suspect, int] = {}
    reached: dict[str, int | None] = {}  # of both sides; the higher id may be deleted on both
    for shard in table.shards:
        source = asked.highest.get(shard_name(shard))
        there = mirror.max_id(shard, table.id_column or "")
        low = None if source is None or there is None else min(source, there)
        reached[shard_name(shard)] = low
        if source != there:
            highest = max(each for each in (source, there) if each is not None)
            gaps[shard, highest] = _reach(source, there) - _reach(there, source)
    if not gaps:
        reading = Reach(fences, asked.top, ended=world.clock())
        _begin_next(table, world)
        return reading
    named = {(shard_name(shard), id_): gap for (shard, id_), gap in gaps.items()}
    look = read_suspects(table, world, gaps)
    kept = replace(asked, highest=reached, look=look, gaps=named)
    world.remember(table, NAME, kept.dumps())
    return NotYet(f"asking {len(gaps)} highest ids again")


def _reach(highest: int | None, other: int | None) -> int:
    """Return the maximum of a side; without rows, an id below every id of the *other* side.

    That is -1, or *other* - 1 if *other* is negative.
    """
    if highest is not None:
        return highest
    return min(other or 0, 0) - 1


PROBE: type[Probe[Reach]] = MaxId
