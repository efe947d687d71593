"""Is an id that only one side has really lost, or on its way?  Asked again before it is named.

The source is read, the mirror comes past that reading, and then: a change of the key that landed
after the reading, or a source that says something else by now, explains the difference.  What
nothing explains is missing, extra or doubled; so a delay is never a loss.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from checks.spellings import in_log
from checks.world import MirrorSide, SourceSide, World
from pipeline.model import Shard, Table

Suspect = tuple[Shard, int]


class Fate(StrEnum):
    """What became of a suspect; the last three are findings."""

    CLEARED = "cleared"
    MOVING = "moving"
    MISSING = "missing"
    EXTRA = "extra"
    DOUBLED = "doubled"


WRONG = (Fate.MISSING, Fate.EXTRA, Fate.DOUBLED)


@dataclass(frozen=True, slots=True)
class SuspectReading:
    """One reading of the suspects at the source: how many rows each id had there.

    ``landed`` is the newest batch known before the reading, ``ended`` the instant it ended.
    """

    suspects: tuple[Suspect, ...]
    before: tuple[int, ...]
    landed: int
    ended: datetime
    tries: int

    def dumps(self) -> dict[str, Any]:
        """As JSON values, for a check's memory."""
        return {
            "suspects": dumps(self.suspects),
            "before": list(self.before),
            "landed": self.landed,
            "ended": self.ended.isoformat(),
            "tries": self.tries,
        }

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "SuspectReading":
        """Read back what :meth:`dumps` wrote; shards that are gone are left out."""
        before = dict(zip(map(tuple, raw["suspects"]), raw["before"], strict=True))
        kept = loads(raw["suspects"], table)
        counts = tuple(before[name(shard), id_] for shard, id_ in kept)
        ended = datetime.fromisoformat(raw["ended"])
        return cls(kept, counts, raw["landed"], ended, raw["tries"])


def dumps(suspects: Iterable[Suspect]) -> list[list[str | int]]:
    """Suspects as JSON values."""
    return [[name(shard), id_] for shard, id_ in suspects]


def loads(raw: Iterable[Sequence[Any]], table: Table) -> tuple[Suspect, ...]:
    """Read back what :func:`dumps` wrote; shards that are gone are left out."""
    shards = {name(shard): shard for shard in table.shards}
    return tuple((shards[own], id_) for own, id_ in raw if own in shards)


def name(shard: Shard) -> str:
    """The shard as people and marks spell it: ``source/database.table``."""
    return str(shard)


def look(table: Table, world: World, suspects: Iterable[Suspect], tries: int = 0) -> SuspectReading:
    """Read the suspects at their source."""
    ordered = tuple(sorted(set(suspects)))
    landed = world.landed_batch()
    found = _at_source(table, world, ordered)
    before = tuple(found[suspect] for suspect in ordered)
    return SuspectReading(ordered, before, landed, world.clock(), tries)


def fates(table: Table, world: World, seen: SuspectReading) -> tuple[Fate, ...]:
    """What became of each suspect, in order; only for a mirror that has come past *seen*."""
    before = dict(zip(seen.suspects, seen.before, strict=True))
    there = _counted(table, seen.suspects, lambda _: world.mirror(table))
    differ = [suspect for suspect in seen.suspects if before[suspect] != there[suspect]]
    if not differ:
        return (Fate.CLEARED,) * len(seen.suspects)
    touched = _touched(table, world, differ, seen.landed)
    after = _at_source(table, world, differ)
    became = {
        one: fate(before[one], there[one], after[one], touched=one in touched) for one in differ
    }
    return tuple(became.get(suspect, Fate.CLEARED) for suspect in seen.suspects)


def fate(before: int, there: int, after: int, *, touched: bool) -> Fate:
    """Rule on one id: rows at the source, in a mirror that came past that, at the source since.

    *touched* says that a change of it has landed since the first reading.
    """
    if there == before:
        return Fate.CLEARED
    if touched or after != before:
        return Fate.MOVING
    if there < before:
        return Fate.MISSING
    return Fate.DOUBLED if before else Fate.EXTRA


def _touched(
    table: Table, world: World, suspects: Sequence[Suspect], after: int
) -> frozenset[Suspect]:
    """Those of which a change landed in a batch above *after*, under any spelling of their key."""
    asked = [(one, key) for one in suspects for key in in_log(table, world, *one)]
    found = world.log().touched(table, [(shard, key) for (shard, _), key in asked], after)
    return frozenset(one for (one, _), yes in zip(asked, found, strict=True) if yes)


def _at_source(table: Table, world: World, suspects: Sequence[Suspect]) -> dict[Suspect, int]:
    return _counted(table, suspects, lambda shard: world.source(shard.source))


def _counted(
    table: Table, suspects: Sequence[Suspect], side: Callable[[Shard], SourceSide | MirrorSide]
) -> dict[Suspect, int]:
    """Rows of each id on one side; each shard's are counted in one snapshot."""
    column = str(table.id_column)  # no probe that asks for ids begins without one
    counts: dict[Suspect, int] = {}
    for shard, ids in _by_shard(suspects).items():
        found = side(shard).count_ids(shard, column, [(id_, id_ + 1) for id_ in ids])
        counts |= {(shard, id_): count for id_, count in zip(ids, found, strict=True)}
    return counts


def _by_shard(suspects: Iterable[Suspect]) -> dict[Shard, list[int]]:
    grouped: dict[Shard, list[int]] = {}
    for shard, id_ in suspects:
        grouped.setdefault(shard, []).append(id_)
    return grouped
