"""Runs the landing loop: from W to the ends that exist now, in one commit with the checkpoint.

The order of the steps is part of the proof: server heads, what the collectors have acknowledged,
the ends of the topics, the heads again. A batch is written first, judged by what was written, and
committed only if its order can be explained.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial

import structlog

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp, checkpoint_row, settle_rows
from pipeline.checkpoint import Checkpoint, has_streaming_table, with_incarnation
from pipeline.errors import HeldError
from pipeline.landing.backfill import (
    BackfillNews,
    advance_backfills,
    find_complete,
    is_due,
    with_columns,
)
from pipeline.landing.bases import Settled, settles_of
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.epochs import Epochs, UnrecordedEpochs, current_epochs, find_resending
from pipeline.landing.gaps import has_sent
from pipeline.landing.heartbeats import HeartbeatLowWatermark
from pipeline.landing.judge import BatchJudge, JudgedBatch
from pipeline.landing.listing import (
    Acknowledgements,
    CaptureNotices,
    LandingSource,
    Listing,
    TopicShards,
    Upstream,
    tell_gone,
)
from pipeline.landing.next_checkpoint import next_checkpoint
from pipeline.landing.plan import Plan, PlanContext, plan_batch
from pipeline.landing.quarantine import Healed, QuarantineRetry, Resubmitted, Resubmitting
from pipeline.landing.rule import BatchContext
from pipeline.landing.source_holds import SourceHolds
from pipeline.landing.staging import BatchReader, Staged, rows_again, write_rows
from pipeline.landing.task import LandingTask, TaskResult, TaskSource
from pipeline.model import Ordering, PartitionEnd, Shard, TopicPartition
from pipeline.reports import Hold, LandingReport
from pipeline.resubmissions import Resubmission
from pipeline.settings import PipelineSettings, Router
from pipeline.standards.table_standards import Standards
from pipeline.transports.transport import Transport

RESENT_AT_ONCE = 200_000  # records of a batch that is compared with what was landed before

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Landing:
    """Lands one lane: lists, plans, reads, judges and commits one batch at a time.

    ``checkpoint`` is what the newest commit proved.  ``work`` runs tasks, in this process or by
    Spark.  ``backfills`` returns backfilled rows, and the same ones until the checkpoint has them.
    ``facts`` are the statistics of the newest batch.  No failure needs a restart: each round
    starts from the checkpoint in the lake.
    """

    settings: PipelineSettings
    feeds: tuple[LandingSource, ...]
    router: Router
    transport: Transport
    log: ChangeLog
    work: Callable[[Sequence[LandingTask]], Sequence[TaskResult]]
    clock: Callable[[], datetime]
    checkpoint: Checkpoint
    backfills: Callable[[], BackfillNews] = BackfillNews
    facts: BatchStats = field(default_factory=BatchStats)
    _acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    _holds: SourceHolds = field(default_factory=SourceHolds)
    _healed: Healed = field(default_factory=Healed)
    _resubmitted: Resubmitted = field(default_factory=Resubmitted)
    _notices: CaptureNotices = field(default_factory=CaptureNotices)
    _watermark: HeartbeatLowWatermark = field(default_factory=HeartbeatLowWatermark)
    _tried: frozenset[Shard] = frozenset()
    _ends: dict[TopicPartition, PartitionEnd] = field(default_factory=dict)
    _unrecorded: UnrecordedEpochs = field(default_factory=UnrecordedEpochs)
    _unsure: bool = False
    _rules_recorded: bool = False
    _urgent: bool = False
    _incarnation: uuid.UUID = field(default_factory=uuid.uuid4)

    @cached_property
    def upstream(self) -> Upstream:
        """Asks sources, collectors and topics for what there is to land."""
        return Upstream.of(self.feeds, self.transport, self.clock)

    def recall_holds(self, holds: Iterable[str]) -> None:
        """Hold the rows of *holds* from before a restart again at once; call it before landing."""
        self._holds.recall(holds)

    def land(
        self, waived: frozenset[str], resubmissions: Sequence[Resubmission] = ()
    ) -> LandingReport:
        """Land one batch; ``batch`` is empty if there was nothing to land.

        *resubmissions* stay the same until they are reported as landed.

        Raises:
            UnreachableError: Kafka or the lake did not answer; the next round continues from there.
            HeldError: another writer commits to this lane, or the checkpoint read back differs.
        """
        started = self.clock()
        self._resume()
        listing, epochs = self._list(started)
        chosen = self._plan(listing, epochs)
        closed = waived | self._read_again(listing, chosen, resubmissions, started)
        if not self._is_due(chosen, closed):
            return self._report(started, chosen, {}, None)
        stamp = Stamp(self.checkpoint.lane, self.checkpoint.batch + 1, self.clock())
        judged, held = self._read_and_judge(chosen, listing, epochs, closed, stamp)
        if judged is not None:  # else all that was to land is held
            self.facts = self._commit(judged, listing, closed, stamp)
        return self._report(started, chosen, held, judged)

    def _resume(self) -> None:
        """After a commit with unknown outcome, continue from the checkpoint in the lake."""
        if self._unsure:
            found = self.log.checkpoint() or Checkpoint(self.checkpoint.lane, -1)
            if found.batch < self.checkpoint.batch:  # other batches get its numbers again
                self._incarnation = uuid.uuid4()
            self.checkpoint, self._unsure, self._rules_recorded = found, False, False

    def _list(self, started: datetime) -> tuple[Listing, Epochs]:
        listing = self._notices.unsaid(self.upstream.list(self.checkpoint.offsets))
        epochs = current_epochs(self.checkpoint, listing, self._orderings)
        self._unrecorded.note(self.checkpoint.epochs, epochs.known, started)
        return listing, epochs

    def _plan(self, listing: Listing, epochs: Epochs) -> Plan:
        going = [feed for feed in self.feeds if not self._holds.holds(feed.settings.name)]
        known = PlanContext(
            self.checkpoint.gone,
            self._ends,
            epoch_ends=listing.epoch_ends,
            claimed=lambda topic: self.upstream.names(topic) is not None,
            ahead=frozenset(feed.settings.prefix for feed in going),
            in_turn=frozenset(feed.heartbeats for feed in going),
            hidden=listing.hidden,
            needed=self._shards.is_needed,
        )
        cap = self._cap()
        most = min(cap, RESENT_AT_ONCE) if find_resending(self.checkpoint, epochs.known) else cap
        chosen = plan_batch(
            self.checkpoint.offsets, listing.beginnings, listing.ends, most, known=known
        )
        self._ends.update(listing.ends)  # includes the last ends of partitions that are gone now
        return chosen

    def _cap(self) -> int:
        """Return the size limit of a batch: small once a table of tier 0 is live."""
        if self.settings.divided and not self._urgent:
            self._urgent = has_streaming_table(self.checkpoint, self.router, tier=0)
        return self.settings.most_rows if self._urgent else self.settings.batch_rows

    def _read_again(
        self, listing: Listing, chosen: Plan, asked: Sequence[Resubmission], started: datetime
    ) -> frozenset[str]:
        """Read resubmissions and quarantined changes; return the ids of those that are healed."""
        self._resubmitted = self._resubmitting.found(self.checkpoint, listing, asked, started)
        left = self._resubmitted.left(self.checkpoint)
        found = self._healing.found(left, listing, chosen, started, self._read_alone)
        self._healed = found.with_more(self._resubmitted.healed)
        return self._healed.ids

    def _read_alone(self, intake: TaskSource) -> TaskResult:
        return self._reader.read_alone(intake, Stamp(self.checkpoint.lane, -1, self.clock()))

    def _is_due(self, chosen: Plan, waived: frozenset[str]) -> bool:
        """Return whether a batch would record rows, a gap, a waived block, or a new epoch."""
        if self._unrecorded.are_due(self.clock()):
            return True
        open_ = set(self.checkpoint.gaps).union(*self.checkpoint.quarantined.values())
        again = is_due(self.checkpoint, self.backfills(), self._tried) or self._notices.is_due(
            self.checkpoint
        )
        return again or bool(chosen.spans or chosen.gaps or waived & open_ or self._healed.ids)

    def _read_and_judge(
        self, chosen: Plan, listing: Listing, epochs: Epochs, waived: frozenset[str], stamp: Stamp
    ) -> tuple[JudgedBatch | None, Mapping[str, Hold]]:
        self.log.opened(stamp.received)
        names, due = self.upstream.names, partial(self._is_due, waived=waived)
        judge = BatchJudge(
            self._reader, self._holds, self._watermark, self._orderings, names, self.clock
        )
        return judge.judge(
            chosen, listing, epochs, self.checkpoint, waived=waived, stamp=stamp, is_due=due
        )

    def _commit(
        self, judged: JudgedBatch, listing: Listing, waived: frozenset[str], stamp: Stamp
    ) -> BatchStats:
        """Commit the files of a batch with the checkpoint after it."""
        chosen, epochs, staged = judged.chosen, judged.epochs, judged.staged
        chosen, facts, feeds = chosen.landed(staged.epochs), judged.stats, self.feeds
        hidden = partial(self._reader.find_hidden, listing)
        sends = partial(
            has_sent, feeds=feeds, checkpoint=self.checkpoint, listing=listing, hidden=hidden
        )
        again = advance_backfills(
            self.checkpoint, facts, epochs.known, self.backfills(), sends, before=self.facts
        )
        counted = self._healed.counted(again.counted(facts))
        facts, columns = with_columns(counted, again.described, feeds)
        context = BatchContext(
            before=self.checkpoint,
            listing=listing,
            epochs=epochs,
            stats=facts,
            orderings=self._orderings,
            at=stamp.received,
            router=self.router,
            standards=self._standards,
            waived=waived,
            settings_changed=not self._rules_recorded,
        )
        acknowledged = self._acknowledgements.passed(listing, chosen, self.checkpoint, epochs.known)
        names = self.upstream.names
        made, settled = next_checkpoint(
            context, chosen, acknowledged=acknowledged, names_of=names, again=again
        )
        # A topic that was deleted and created again during the read would mix two topics unseen.
        self.transport.require_ids({at.topic: listing.ends[at].topic_id for at in chosen.spans})
        incarnations = with_incarnation(
            self.checkpoint.incarnations, made.batch, self._incarnation.int >> 66
        )
        made = replace(self._resubmitted.noted(self._healed.noted(made)), incarnations=incarnations)
        files, before = (*again.files, *self._healed.files), self._healed.counted_before
        taken = rows_again(self.log, files, columns, stamp, counted_before=before)
        self._tried = find_complete(self.checkpoint)
        self._put(made, settled, replace(staged, files=(*staged.files, *taken)), stamp)
        tell_gone(chosen, made)
        return facts

    def _put(
        self, made: Checkpoint, settled: Sequence[Settled], staged: Staged, stamp: Stamp
    ) -> None:
        settles = settles_of(settled, self.router)
        own = [settle_rows(settles, stamp)] if settles else []
        own.append(checkpoint_row(made.changes_since(self.checkpoint), stamp))
        files = [*staged.files, *(write_rows(self.log, rows, stamp) for rows in own)]
        self._unsure = True  # until the checkpoint was read back
        self.log.put([file.added(stamp.received) for file in files], stamp)
        found = self.log.checkpoint()
        if found != made:
            at = "nothing" if found is None else f"batch {found.batch}"
            raise HeldError("mark_lost", f"wrote batch {made.batch}, read back {at}")
        self.checkpoint, self._unsure, self._rules_recorded = found, False, True
        self._notices.record(self.feeds)

    def _report(
        self, started: datetime, chosen: Plan, held: Mapping[str, Hold], made: JudgedBatch | None
    ) -> LandingReport:
        facts = self.facts if made else BatchStats()
        return LandingReport(
            lane=self.checkpoint.lane,
            batch=self.checkpoint.batch if made else None,
            rows=facts.rows,
            started=started,
            took=self.clock() - started,
            capped=chosen.capped,
            tables=tuple(sorted(facts.tables.items())),
            gaps=tuple(self.checkpoint.gaps.values()),
            holds=tuple(held.values()),
            resubmitted=self._resubmitted.states(self.checkpoint),
            minutes=facts.reported_minutes,
            topics=made.staged.compare_topics(self._shards, self.router) if made else {},
        )

    @property
    def _shards(self) -> TopicShards:
        return TopicShards(self.checkpoint, self.checkpoint.shards, self.upstream.names)

    @cached_property
    def _orderings(self) -> Mapping[str, Ordering]:
        return {feed.settings.name: feed.format.ordering for feed in self.feeds}

    @cached_property
    def _standards(self) -> Standards:
        return Standards(self.settings.standards)

    @property
    def _reader(self) -> BatchReader:
        return BatchReader(
            self.settings,
            self.feeds,
            self.router,
            self.transport,
            self.log,
            self._standards,
            self.work,
            self._holds,
        )

    @cached_property
    def _healing(self) -> QuarantineRetry:
        return QuarantineRetry(self.feeds, self._standards)

    @cached_property
    def _resubmitting(self) -> Resubmitting:
        return Resubmitting(self.feeds, self.router, self.log, self._standards)
