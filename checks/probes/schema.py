"""Compares the columns of the source with those that have landed.

The newest landed schema of each shard is compared with that of the source.  A difference counts
only under two conditions: the mirror has passed a heartbeat written after the difference was first
seen, and no schema change of the shard has landed in between.  So a schema change in flight is not
a loss.  Agreement also counts only after such a heartbeat.
Cannot detect: changes that keep the type (a default, a character set, NOT NULL); other lengths of
texts and blobs; a shard that the source does not show.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar
from zlib import crc32

from checks.counting import await_fences, shard_name
from checks.model import (
    MOST_KEYS,
    FailKind,
    NotYet,
    Outcome,
    Ruling,
    Span,
    Undecided,
)
from checks.run import Probe
from checks.world import World
from pipeline.errors import ProofError
from pipeline.model import Fence, Shard, Table

NAME = "schema"
ALIKE = ""  # means "no difference" among the stored differences


@dataclass(frozen=True, slots=True)
class Columns:
    """``different``: text of a difference -> its key, ``source/shard:column@order#text``.

    The source does not show ``hidden`` of ``shards`` shards.
    """

    as_of: tuple[Fence, ...] = ()
    different: Mapping[str, str] = field(default_factory=dict)
    shards: int = 1
    hidden: int = 0

    @property
    def value(self) -> float:
        """Number of columns that differ, over all shards."""
        return float(len(self.different))


@dataclass(frozen=True, slots=True)
class Schema:
    """Fail when a column exists on one side only, or has different types."""

    patience: Span = timedelta(minutes=10)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(seconds=30)
    every: ClassVar[timedelta] = timedelta(minutes=5)
    gating: ClassVar[bool] = True
    kind: ClassVar[FailKind] = FailKind.LOST
    whole: ClassVar[bool] = True

    def measure(self, table: Table, world: World) -> Columns | NotYet | Undecided:
        """Compare once the mirror has passed the last reading; rule on what is unchanged since."""
        memory = world.recall(table, NAME) or {}
        seen = [datetime.fromisoformat(old["seen"]) for old in memory.values()]
        fences = await_fences(table, world, max(seen), self.patience) if seen else ()
        if isinstance(fences, NotYet | Undecided):
            return fences
        compared = dict(_compare_shards(table, world))
        if not compared:
            world.remember(table, NAME, {})
            return Undecided("unsupported", "the source shows none of its shards")
        hidden = tuple(f"{shard_name(shard)}: " for shard in table.shards if shard not in compared)
        if unseen := sorted(text for text in memory if text.startswith(hidden)):
            return Undecided("unsupported", f"the source does not show its shard now: {unseen[0]}")
        found = {text: key for own in compared.values() for text, key in own} or {ALIKE: ""}
        now = world.clock().isoformat()
        fresh = {text: {"key": key, "seen": now} for text, key in found.items()}
        known = {text: old for text, old in memory.items() if found.get(text) == old["key"]}
        world.remember(table, NAME, fresh if ALIKE in found else {**fresh, **known})
        if not known:
            return NotYet(f"{next(iter(found)) or 'no difference'}; looking again")
        different = {text: found[text] for text in known if text != ALIKE}
        shards = len(table.shards)
        return Columns(fences, different, shards, shards - len(compared))

    def judge(self, reading: Columns, past: Sequence[float]) -> Ruling:
        """Return FAIL for any difference; *past* is not used."""
        if not reading.different:
            rest = f"; {reading.hidden} of {reading.shards} shards it does not show"
            reason = f"the log knows the source's columns{rest if reading.hidden else ''}"
            return Ruling(Outcome.PASS, reason)
        texts, keys = zip(*sorted(reading.different.items()), strict=True)
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        named, unnamed = keys[:MOST_KEYS], len(keys[MOST_KEYS:])
        return Ruling(Outcome.FAIL, f"{texts[0]}{more}", "columns_differ", named, unnamed)


def _compare_shards(table: Table, world: World) -> Iterator[tuple[Shard, list[tuple[str, str]]]]:
    """Yield each shard that the source shows, with its differences and a key for each.

    A key contains the order of the newest landed schema change.

    The log is read first, so its schema is not newer than that of the source.

    Raises:
        ProofError: a shard that the source shows has no landed columns.
    """
    landed = {shard: world.schema(shard) for shard in table.shards}
    for shard, schema in landed.items():
        there = world.source(shard.source).columns(shard)
        if not there:
            continue  # dropped, renamed, or hidden from this user: nothing to compare with
        if schema is None:
            raise ProofError(f"no schema change of {shard_name(shard)} has landed")
        at = "-".join(str(part) for part in schema.order.parts)
        found = there[0].dialect.differences(schema, there)
        yield shard, [_keyed(shard, one, at) for one in found]


def _keyed(shard: Shard, difference: str, at: str) -> tuple[str, str]:
    column, text = difference.partition(": ")[0], f"{shard_name(shard)}: {difference}"
    return text, f"{shard_name(shard)}:{column}@{at}#{crc32(text.encode()):08x}"


PROBE: type[Probe[Columns]] = Schema
