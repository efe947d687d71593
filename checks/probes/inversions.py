"""Finds older rows that replaced newer ones, by the clock of the messages.

Used only if changes are ordered by their offset in a partition, and not by the source log.  Then a
change that is redelivered, or sent by two collectors, replaces a newer one.  A row that waited for
a lock has the time at which its statement began, so a small fall means nothing.
A fall ends only with a newer change of the key, or with a newer base of the shard, also if the row
was deleted meanwhile.  It is kept even if the change log loses its batches.
Cannot detect: a fall below a change that landed more than *back* batches earlier; two changes with
the same time; a clock that was wrong from the start; tables whose changes have log positions, for
which no clock decides.
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
MOST_KEPT = 1_000  # most falls that are stored; further ones are not reported


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
        """Number of keys."""
        return float(len(self.found))


@dataclass(frozen=True, slots=True)
class Inversions:
    """Fail when the newest change of a key is older than one before it, by *tolerance*."""

    tolerance: Span = timedelta(minutes=1)
    back: OneOrMore = 500
    """Number of earlier batches that each round reads again."""
    limit: Span = timedelta(seconds=10)
    every: ClassVar[timedelta] = timedelta(seconds=30)
    gating: ClassVar[bool] = True
    kind: ClassVar[FailKind] = FailKind.LOST

    def measure(self, table: Table, world: World) -> FallingTimes | NotYet:
        """Read the new batches, the *back* batches before them, and keys that fell earlier."""
        ordering, until = world.ordering(table), world.landed_batch()
        if ordering is not Ordering.OFFSET:
            return FallingTimes(ordering)
        if until < 0:
            return NotYet("nothing has landed yet")
        memory = world.recall(table, NAME)
        is_known = memory is not None and memory["until"] == until  # no batch has landed since
        if memory is None:  # falls are kept even if the change log has lost their batches
            memory = {**(world.recall(table, NAME, lasting=True) or {}), "until": until}
        known = {one.key: one for one in map(_loads, memory.get("falls", ()))}
        after = max(memory["until"] - self.back, -1)
        seen: Sequence[KeyTimes] = ()
        if not is_known:
            seen = world.log().key_times(
                table, after, until, tuple(known), fell_by=self.tolerance, most=MOST_KEPT
            )
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
        """Return FAIL for any key; *past* is not used."""
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
        return Ruling(Outcome.FAIL, why, "clock_fell", keys, len(reading.found[MOST_KEYS:]))


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
