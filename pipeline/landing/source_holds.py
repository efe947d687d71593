"""Keeps the holds of sources, and decides when a held source is read again.

A held source stays at W, so each round would read, decode and judge the same records. What can end
a hold is known without reading: another server or log, a waiver, or a topic that was created again.
For unforeseen causes the source is read again now and then.

A batch may end with a row that the broker refused at first. Only the row behind it shows that. The
source waits up to a minute for each such row without a hold. None of its rows land meanwhile: rows
of its other partitions may be of another log, too. A capped batch ends before the refused row
instead, so that the next one holds the row behind it.

A waiver accepts rows that are below what was landed. If a statement about their shard is newer,
they land in the table under its earlier name. That table may no longer exist, or the name may now
be that of another table. Each table that a statement was about since then is missing these rows.
This is a gap until the table has a base from above them. The table that has the name now also has
rows that are not its own.
"""

import re
from collections.abc import Collection, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pipeline.checkpoint import Checkpoint, Gap, is_outdated
from pipeline.clocks import Retries, has_passed
from pipeline.errors import NoSchemasError
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.epochs import Epochs
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.landing.redelivery import StrangeRows
from pipeline.landing.rule import BatchContext
from pipeline.model import Order, OrderSpan, Shard, TopicPartition
from pipeline.reports import Hold

PATIENCE = timedelta(minutes=1)  # in which a registry may still learn an unknown schema number
RESENT = timedelta(minutes=1)  # in which the row behind rows that a broker refused has to come
LONG_AGO = datetime.min.replace(tzinfo=UTC)
_DISORDER = re.compile(r"disorder:[^:]+:(?P<partition>[^:]+:\d+):(?P<offset>\d+)@\d+")
UndecidedRow = tuple[TopicPartition, int]
"""Partition, and offset of the first of the rows at its end that a broker may have refused."""


@dataclass(frozen=True, slots=True)
class HoldContext:
    """Everything whose change can end the hold of a source in disorder."""

    chosen: Plan
    listing: Listing
    epochs: Epochs
    waived: frozenset[str]

    def of(self, source: str) -> Hashable:
        """Return a value that stays equal while nothing changes for *source*."""
        gaps = tuple(
            gap.id for gap in self.chosen.gaps if self.listing.source_of.get(gap.topic) == source
        )
        return self.epochs.number(source), source in self.listing.heads, self.waived, gaps


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows that a waiver accepts: source -> shard with such a row -> the orders that the rows had.

    These orders are in the epochs that ``stood`` before the batch: rows that are read again after a
    waiver are in a new epoch already.
    """

    stood: Epochs
    let_pass: Mapping[str, Mapping[str, OrderSpan]] = field(default_factory=dict)

    def with_waived(self, strange: StrangeRows, before: Epochs, now: Epochs) -> "LateRows":
        """Return it with the *strange* rows that count as a new log, by the epochs *now*."""
        found = {source: dict(one) for source, one in self.let_pass.items()}
        for source, passed in strange.late.items():
            if now.number(source) > before.number(source):
                known, epoch = found.setdefault(source, {}), self.stood.number(source)
                for name, span in passed.items():
                    old = span.within(epoch)
                    known[name] = old.joined(known.get(name, old))
        return replace(self, let_pass=found)

    def noted(self, facts: BatchStats, explained: StrangeRows, held: Container[str]) -> BatchStats:
        """Return *facts* of the batch with its late rows: *explained* ones, and waived ones.

        Waived rows of sources that are *held* are left out.
        """
        own = [one for source, one in self.let_pass.items() if source not in held]
        let_pass = {name: span for one in own for name, span in one.items()}
        refused = (name for one in explained.late.values() for name in one)
        return replace(facts, late=frozenset((*refused, *let_pass)), let_pass=let_pass)


def note_late_rows(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record which tables' older mirrors lack late rows, and a gap of rows that land nowhere."""
    stats = context.stats
    late = {
        table: checkpoint.batch
        for name in stats.late
        if (table := checkpoint.shards.get(Shard.parse(name)))
    }
    outdated: dict[str, OrderSpan] = {}
    own: set[Shard] = set()
    for name, span in stats.let_pass.items():
        shard = Shard.parse(name)
        if is_outdated(checkpoint, shard, span.lowest):
            own.add(shard)
            its = span.up_to(checkpoint.existing[shard].order)
            outdated[shard.source] = its.joined(outdated.get(shard.source, its))
    gaps = dict(checkpoint.gaps)
    for source, span in outdated.items():
        above = Order(checkpoint.epochs[source].number, 0, 0)
        short = (
            str(shard)
            for shard, existence in checkpoint.existing.items()
            if shard.source == source and existence.there and existence.order > span.lowest
            if checkpoint.shards.get(shard) is not None
            if (base := checkpoint.bases.get(shard)) is None
            or base < (above if shard in own else span.highest)
        )
        why = (
            f"a waiver of source {source} landed rows that are older than a DDL statement about"
            " their table, so rows may be missing in the renamed table or be in the wrong table;"
            " run `sluice bootstrap TABLE --reason ...` for each of these tables"
        )
        gap = Gap.noticed(f"outdated:{source}", checkpoint.batch, why, short, above=above)
        if gap.shards:
            gaps[gap.id] = gap
    return replace(checkpoint, gaps=gaps, belated={**checkpoint.belated, **late})


@dataclass(eq=False)
class SourceHolds:
    """Holds of sources, each until the source may be read again."""

    _holds: dict[str, Hold] = field(default_factory=dict)
    _retries: Retries = field(default_factory=Retries)
    _unknown: dict[tuple[str, int], datetime] = field(default_factory=dict)  # schemas, since when
    _lost: dict[str, frozenset[int]] = field(default_factory=dict)  # schemas, by source
    _undecided: dict[UndecidedRow, datetime] = field(default_factory=dict)  # row -> since when

    def holds(self, source: str) -> bool:
        """Return whether the source was in disorder when it was read last."""
        return source in self._holds

    def waits(self, row: UndecidedRow, at: datetime) -> bool:
        """Return whether the source of *row* still waits for the row behind it, and so is not held.

        If the clock was set back, the wait starts again.
        """
        since = self._undecided[row] = min(self._undecided.get(row, at), at)
        return not has_passed(since, RESENT, at)

    def recall(self, holds: Iterable[str]) -> None:
        """Do not wait for rows of *holds*, which are the ids of the holds from before a restart."""
        for name in holds:
            found = _DISORDER.fullmatch(name)
            if found is not None:
                row = TopicPartition.parse(found["partition"]), int(found["offset"])
                self._undecided[row] = LONG_AGO

    def no_schemas(self, error: NoSchemasError, at: datetime) -> Hold:
        """Return the hold of a source whose messages cannot be read now; they stay in their topic.

        A number that its registry has not known for ``PATIENCE`` is given up.
        """
        source, more = error.source, ""
        for number in error.numbers:
            since = self._unknown.setdefault((source, number), at)
            if has_passed(since, PATIENCE, at):
                self._lost[source] = self._lost.get(source, frozenset()) | {number}
        if error.numbers:
            more = ", and then quarantines messages whose schema is still unknown"
        detail = f"{error.why}; nothing is lost, landing resumes when the registry answers{more}"
        return Hold(f"registry:{source}", f"source:{source}", "registry", detail)

    def registry(self, source: str, registry: SchemaRegistry | None) -> SchemaRegistry | None:
        """Return the *registry* of a source without the schema numbers that are given up."""
        if registry is None:
            return None
        return replace(
            registry, lost=self._lost.get(source, frozenset()), others=registry.known_numbers()
        )

    def standing(self, now: HoldContext, at: datetime) -> Mapping[str, Hold]:
        """Return the holds of the sources that this round leaves out unread."""
        return {
            source: hold
            for source, hold in self._holds.items()
            if not self._retries.due(source, now.of(source), at)
        }

    def judged(
        self,
        read: Collection[str],
        found: Mapping[str, Hold],
        now: HoldContext,
        at: datetime,
        undecided: Container[UndecidedRow] = (),
    ) -> None:
        """Record the holds *found* in the sources *read*, and which rows remain *undecided*."""
        free = {source for source in read if source not in found}
        self._undecided = {
            row: since
            for row, since in self._undecided.items()
            if row in undecided or now.listing.source_of.get(row[0].topic) not in free
        }
        for source in read:
            if source in found:
                self._holds[source] = found[source]
                self._retries.failed(source, now.of(source), at)
                continue
            self._holds.pop(source, None)
            self._retries.succeeded(source)
            for one in [one for one in self._unknown if one[0] == source]:
                del self._unknown[one]
