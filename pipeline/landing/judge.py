"""Reads a batch, and judges whether the order of its rows can be explained.

A batch is written first and judged by what was written. A source whose rows cannot be explained
is held: it is left out, and the rest of the batch is read again without it. A source that
is not due for another attempt is left out, too, as is one whose schema registry does not answer.
"""

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp
from pipeline.checkpoint import Checkpoint, is_outdated
from pipeline.errors import NoSchemasError
from pipeline.landing.bases import with_drops, with_overlaps
from pipeline.landing.batch_stats import BatchStats, gather_stats
from pipeline.landing.epochs import Epochs, begin_at_snapshots, explain_strange_rows
from pipeline.landing.gaps import note_captured_news
from pipeline.landing.heartbeats import HeartbeatLowWatermark
from pipeline.landing.listing import Listing, TopicNames
from pipeline.landing.next_checkpoint import grown_topics
from pipeline.landing.order_check import JUDGED, NO_FLOORS, find_low_rows, highest_by_source
from pipeline.landing.plan import Plan
from pipeline.landing.redelivery import COLUMNS, StrangeRows, find_unexplained
from pipeline.landing.source_holds import HoldContext, LateRows, SourceHolds, UndecidedRow
from pipeline.landing.staging import BatchReader, Staged, read_near, staged_rows
from pipeline.model import Order, Ordering, SourcePartition, TopicPartition
from pipeline.reports import Hold


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """A batch that is written and explained, and its plan without held sources."""

    chosen: Plan
    epochs: Epochs
    staged: Staged
    stats: BatchStats


@dataclass(eq=False)
class BatchJudge:
    """Reads and judges batches; ``holds`` and ``watermark`` persist across batches."""

    reader: BatchReader
    holds: SourceHolds
    watermark: HeartbeatLowWatermark
    orderings: Mapping[str, Ordering]
    names_of: Callable[[str], TopicNames | None]
    clock: Callable[[], datetime]

    def judge(
        self,
        chosen: Plan,
        listing: Listing,
        epochs: Epochs,
        before: Checkpoint,
        *,
        waived: frozenset[str],
        stamp: Stamp,
        is_due: Callable[[Plan], bool],
    ) -> tuple[JudgedBatch | None, Mapping[str, Hold]]:
        """Return the batch without held sources, None if none is due, and the holds by source."""
        floors = self.watermark.floors(before, listing, self.orderings)
        now = HoldContext(chosen, listing, epochs, waived)
        held = dict(self.holds.standing(now, stamp.received))
        chosen = self._leave_out(chosen, listing, before, held) if held else chosen
        read = {listing.source_of[at.topic] for at in chosen.spans}
        found: JudgedBatch | None = None
        late, undecided = LateRows(epochs), set[UndecidedRow]()
        while found is None and (not (held or undecided) or is_due(chosen)):
            try:
                staged = self.reader.read(chosen, listing, epochs, stamp, before)
            except NoSchemasError as error:
                held[error.source] = self.holds.no_schemas(error, stamp.received)
                chosen = self._leave_out(chosen, listing, before, held)
                continue
            snapshots = [
                row
                for tally in staged.tallies
                for row in tally.statements
                if row["snapshot"] is not None
            ]
            if snapshots:
                high = highest_by_source(before.high)
                begun = begin_at_snapshots(epochs, snapshots, high)
                if begun != epochs:
                    epochs = begun
                    continue
            stats = self._combine_stats(staged, listing, before, floors)
            strange = find_unexplained_rows(
                self.reader.log,
                staged,
                stats.doubted,
                before,
                floors,
                grown=grown_topics(before, chosen),
            )
            if strange:
                known = epochs
                epochs, more = explain_strange_rows(
                    epochs, listing, strange, waived, strange.bounds
                )
                if ends := self._find_undecided(strange, known, more, now):
                    undecided |= ends.items()
                    if chosen.capped:  # the row behind them may be the next one
                        chosen = self._wait_capped(chosen, listing, before, ends)
                    else:
                        waiting = {listing.source_of[at.topic] for at in ends}
                        chosen = self._leave_out(chosen, listing, before, waiting)
                    epochs = known
                    continue
                late = late.with_waived(strange, known, epochs)
                held.update(more)
                chosen = self._leave_out(chosen, listing, before, more)
            else:
                stats = late.noted(stats, strange, held)
                found = JudgedBatch(chosen, epochs, staged, stats)
        self.holds.judged(read, held, now, stamp.received, undecided)
        return found, held

    def _find_undecided(
        self, strange: StrangeRows, epochs: Epochs, held: Mapping[str, Hold], now: HoldContext
    ) -> dict[TopicPartition, int]:
        """Return the first offset of rows that end a partition and that a broker may have refused.

        They wait for the row behind them, which shows whether it did. Sources in *held* with other
        strange rows, or with a row that has waited too long, do not wait.
        """
        listing, at = now.listing, self.clock()
        decided = {tp: first for tp, first in strange.items() if tp not in strange.undecided}
        _, others = explain_strange_rows(epochs, listing, decided, now.waived)
        ends = {
            tp: strange[tp]
            for tp in strange.undecided
            if listing.source_of[tp.topic] in held.keys() - others.keys()
        }
        waits = {tp: self.holds.waits((tp, first), at) for tp, first in ends.items()}
        late = {listing.source_of[tp.topic] for tp, waited in waits.items() if not waited}
        return {tp: first for tp, first in ends.items() if listing.source_of[tp.topic] not in late}

    def _wait_capped(
        self,
        chosen: Plan,
        listing: Listing,
        before: Checkpoint,
        ends: Mapping[TopicPartition, int],
    ) -> Plan:
        """Read on behind the undecided rows at *ends*, or up to them if the batch is full.

        Nothing else of their sources lands before them: a later statement would make them outdated
        for good. What is left out makes room in the batch. A partition that begins with undecided
        rows is read twice as far, as no later batch would have more room.
        """
        waiting = {listing.source_of[at.topic] for at in ends}
        topics = frozenset(at.topic for at in ends)
        made = self._leave_out(chosen, listing, before, waiting, but=topics)
        others = [at for at in made.spans if at.topic in topics and at not in ends]
        made = made.cut({at: made.spans[at].first for at in others}, before.offsets)
        size = sum(span.size for span in chosen.spans.values())
        room = (size - sum(span.size for span in made.spans.values())) // len(ends)
        until = {at: made.spans[at].end.offset for at in ends}
        begins = {at: made.spans[at] for at in ends if made.spans[at].first == ends[at]}
        by = {at: max(room, begins[at].size if at in begins else 0) for at in ends}
        more = {at: min(listing.ends[at].offset, until[at] + by[at]) for at in ends}
        return made.cut(ends if more == until else more, before.offsets)

    def _leave_out(
        self,
        chosen: Plan,
        listing: Listing,
        before: Checkpoint,
        held: Collection[str],
        but: frozenset[str] = frozenset(),
    ) -> Plan:
        """Return the plan without the *held* sources, *but* with these topics of them."""
        sources = frozenset(held)

        def is_held(topic: str) -> bool:
            if topic in but:
                return False
            if topic in listing.source_of:
                return listing.source_of[topic] in sources
            names = self.names_of(topic)  # the topic was deleted
            return names is not None and names.source in sources

        return chosen.without(is_held, before.offsets, before.gone)

    def _combine_stats(
        self,
        staged: Staged,
        listing: Listing,
        before: Checkpoint,
        floors: Mapping[SourcePartition, Order],
    ) -> BatchStats:
        feeds = self.reader.feeds
        readings = {feed.settings.name: feed.reading for feed in feeds}
        stats = gather_stats(staged.tallies, before.high, readings, before.schemas, floors)
        stats = with_overlaps(with_drops(stats, before), before)
        hidden = partial(self.reader.find_hidden, listing)
        return note_captured_news(stats, feeds, before, listing, hidden)


def find_unexplained_rows(
    log: ChangeLog,
    staged: Staged,
    doubted: Collection[TopicPartition],
    checkpoint: Checkpoint,
    floors: Mapping[SourcePartition, Order] = NO_FLOORS,
    *,
    grown: Set[str] = frozenset(),
) -> StrangeRows:
    """Return the rows that go back and repeat nothing: partition -> first such offset.

    *doubted* are the partitions that may have such rows, *checkpoint* is that before the batch.
    *floors* are as of :func:`pipeline.landing.order_check.find_highest_orders`. *grown* are topics
    that have gained partitions.
    """
    if not doubted:
        return StrangeRows()
    read_staged = partial(staged_rows, log.store, staged.files)
    back = find_low_rows(
        read_staged(tuple(sorted({at.topic for at in doubted})), JUDGED), checkpoint.high, floors
    )
    if not back:
        return StrangeRows()
    rows = read_staged(tuple(sorted({at.topic for at in back})), COLUMNS)
    log.look()
    found = find_unexplained(
        rows, back, partial(read_near, log), partial(is_outdated, checkpoint), grown
    )
    if found.undecided and floors:  # only below a floor, no landed row is behind them
        own = find_low_rows(
            read_staged(tuple(sorted({at.topic for at in found.undecided})), JUDGED),
            checkpoint.high,
        )
        found.undecided = {at for at in found.undecided if found[at] in own.get(at, ())}
    return found
