"""Does the landed log know the columns that the source has now?

The newest landed description of each shard is held against the source's own.  A difference counts
once the mirror has come past a heartbeat written after it was first seen, and no schema change of
the shard has landed meanwhile: one that is still on its way is no loss.
Cannot see: what changes no type (a default, a label's case, NOT NULL); text types of other lengths.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from checks.fences import passed
from checks.model import NotYet, Outcome, Ruling, Undecided
from checks.run import Probe
from checks.world import World
from pipeline.model import Fence, Table
from pipeline.schema.history import differences

NAME = "schema"
MOST_KEYS = 20


@dataclass(frozen=True, slots=True)
class Columns:
    """``different``: what is different -> its key, ``source/shard:column@order``."""

    as_of: tuple[Fence, ...] = ()
    different: Mapping[str, str] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """Columns that differ, over all shards."""
        return float(len(self.different))


@dataclass(frozen=True, slots=True)
class Schema:
    """Fail when a column is on one side only, or of another type there."""

    patience: timedelta = timedelta(minutes=10)
    limit: timedelta = timedelta(seconds=30)
    every: ClassVar[timedelta] = timedelta(minutes=5)
    gating: ClassVar[bool] = True

    def measure(self, table: Table, world: World) -> Columns | NotYet | Undecided:
        """Compare now; a difference is ruled on when it has outlived its heartbeat."""
        memory = world.recall(table, NAME) or {}
        found = dict(_different(table, world))
        now = world.clock().isoformat()
        fresh = {text: {"key": key, "seen": now} for text, key in found.items()}
        known = {text: old for text, old in memory.items() if found.get(text) == old["key"]}
        world.remember(table, NAME, {**fresh, **known})
        if not found:
            return Columns()
        if not known:
            return NotYet(f"{next(iter(found))}; looking again")
        newest = max(datetime.fromisoformat(old["seen"]) for old in known.values())
        fences = passed(table, world, newest, self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        return Columns(fences, {text: found[text] for text in known})

    def judge(self, reading: Columns, past: Sequence[float]) -> Ruling:
        """Any difference is one too many; history plays no part."""
        if not reading.different:
            return Ruling(Outcome.PASS, "the log knows the source's columns")
        texts, keys = zip(*sorted(reading.different.items()), strict=True)
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        return Ruling(Outcome.FAIL, f"{texts[0]}{more}", "columns_differ", keys[:MOST_KEYS])


def _different(table: Table, world: World) -> Iterator[tuple[str, str]]:
    """Each difference, and its key with the order of the schema change that the log knows last.

    The log is asked first: what it says was true at the source before the source is asked.
    """
    log = world.log()
    landed = {shard: log.schema(shard) for shard in table.shards}
    for shard, schema in landed.items():
        if schema is not None:  # without one the table stands still, and says why
            rows = world.source(shard.source).columns(shard)
            own = f"{shard.source}/{shard.name}"
            at = "-".join(str(part) for part in astuple(schema.order))
            for one in differences(schema, rows):
                yield f"{own}: {one}", f"{own}:{one.partition(': ')[0]}@{at}"


PROBE: type[Probe[Columns]] = Schema
