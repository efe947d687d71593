"""Finds older rows that replaced newer ones, by the clock of the messages.

Used only where changes are ordered by their place in a partition, and not in the source's log.
There, a change that is sent again, or by two collectors, replaces a newer one.  A row
that waited for a lock has the time when its statement began, so a small fall means nothing.
What stands below a base that was read since is over: a row that came again, and is gone, too.
Nothing else ends a fall but a newer change: it stays if the change log loses its batches.
Cannot see: a fall to what landed more than *back* batches before; two changes of one time; a
clock that was wrong from the first; tables whose changes have places in the log: there no clock
decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from checks.model import (
    MOST_KEYS,
    FailKind,
    NotYet,
    OneOrMore,
    Outcome,
    Ruling,
    Span,
)
from checks.run import Probe
from checks.world import KeyTimes, ShardBase, World
from pipeline.model import Fence, Order, Ordering, Table

NAME = "inversions"
MOST_KEPT = 1_000  # falls that are followed; of more, the first are enough to report


@dataclass(frozen=True, slots=True)
class FallingTimes:
    """Keys whose newest change is older than one before it, by the messages' clock.

    ``ordering`` is what the order of the table's changes rests on.
    """

    ordering: Ordering
    until: int = -1
    found: tuple[KeyTimes, ...] = ()
    as_of: tuple[Fence, ...] = ()

    @property
    def value(self) -> float:
        """How many keys."""
        return float(len(self.found))


@dataclass(frozen=True, slots=True)
class Inversions:
    """Fail when the newest change of a key is older than one before it, by *tolerance*."""

    tolerance: Span = timedelta(minutes=1)
    back: OneOrMore = 500
    """How many batches it looks back."""
    limit: Span = timedelta(seconds=10)
    every: ClassVar[timedelta] = timedelta(seconds=30)
    gating: ClassVar[bool] = True
    kind: ClassVar[FailKind] = FailKind.LOST

    def measure(self, table: Table, world: World) -> FallingTimes | NotYet:
        """Look at what landed since, at some of before, and at what was found before."""
        ordering, until = world.ordering(table), world.landed_batch()
        if ordering is not Ordering.OFFSET:
            return FallingTimes(ordering)
        if until < 0:
            return NotYet("nothing has landed yet")
        memory = world.recall(table, NAME)
        if memory is None:  # what fell stays so whatever the change log has lost
            memory = {**(world.recall(table, NAME, lasting=True) or {}), "until": until}
        known = {one.key: one for one in map(_loads, memory.get("falls", ()))}
        after = max(memory["until"] - self.back, -1)
        seen = world.log().key_times(table, after, until, tuple(known), most=MOST_KEPT)
        for one in seen:
            before = known.get(one.key, one)
            known[one.key] = replace(one, latest=max(one.latest, before.latest))
        bases = world.bases(table)
        fell = [
            one
            for one in known.values()
            if one.latest - one.newest > self.tolerance and not _is_over(one, bases)
        ]
        found = tuple(sorted(fell, key=lambda one: one.key))[:MOST_KEPT]
        remembered = {"until": until, "falls": [_dumps(one) for one in found]}
        world.remember(table, NAME, remembered)
        return FallingTimes(ordering, until, found)

    def judge(self, reading: FallingTimes, past: Sequence[float]) -> Ruling:
        """One is enough; history plays no part."""
        if reading.ordering is not Ordering.OFFSET:
            reason = f"changes are ordered by {reading.ordering}: no clock decides"
            return Ruling(Outcome.PASS, reason)
        if not reading.found:
            return Ruling(Outcome.PASS, f"no key fell back up to batch {reading.until}")
        first = reading.found[0]
        why = (
            f"{len(reading.found)} keys: the newest change of {first.key} is dated "
            f"{first.newest.isoformat()}, and one before it {first.latest.isoformat()}"
        )
        keys = tuple(one.key for one in reading.found[:MOST_KEYS])
        return Ruling(Outcome.FAIL, why, "clock_fell", keys)


def _is_over(one: KeyTimes, bases: Mapping[str, ShardBase]) -> bool:
    base = bases.get(one.shard)
    return base is not None and one.order < base.order


def _dumps(one: KeyTimes) -> list[Any]:
    return [one.key, one.latest.isoformat(), one.newest.isoformat(), one.shard, *one.order.parts]


def _loads(raw: Sequence[Any]) -> KeyTimes:
    key, latest, newest, shard, *parts = raw
    at = datetime.fromisoformat
    return KeyTimes(key, at(latest), at(newest), shard, Order(*parts))


PROBE: type[Probe[FallingTimes]] = Inversions
