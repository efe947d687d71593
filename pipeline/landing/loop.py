"""The landing loop: from W to the ends there are now, in one commit with the mark.

Asked in this order, so that the mark can promise what it says: the servers' heads, what the
collectors have acknowledged, the ends of the topics, the heads again.  A batch is written first,
judged by what was written, and committed only if its order can be explained.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from pipeline.changelog import table as changelog
from pipeline.changelog.table import Stamp
from pipeline.commit import Transaction
from pipeline.errors import HeldError
from pipeline.landing.bases import Settled
from pipeline.landing.disorder import unexplained
from pipeline.landing.epochs import Epochs, explain, look
from pipeline.landing.facts import Facts, gather
from pipeline.landing.feed import Feed
from pipeline.landing.listing import Listing, list_ends
from pipeline.landing.next_mark import next_mark, read_gap
from pipeline.landing.plan import Plan, plan
from pipeline.landing.promises import Promises
from pipeline.landing.reading import Reader
from pipeline.landing.resent import reordered, resending
from pipeline.mark import Mark
from pipeline.model import TopicPartition
from pipeline.report import Hold, Landed
from pipeline.settings import PipelineSettings
from pipeline.spark import described


@dataclass(eq=False)
class Landing:
    """Land one lane; ``mark`` is what its newest commit proved.

    ``reader`` yields the shaped rows of a plan; ``read_back`` reads the newest mark from the lake,
    with other code than the one that wrote it.  ``facts`` are those of the newest batch.
    """

    session: SparkSession
    settings: PipelineSettings
    feeds: tuple[Feed, ...]
    reader: Reader
    clock: Callable[[], datetime]
    read_back: Callable[[], Mark | None]
    mark: Mark
    facts: Facts = field(default_factory=Facts)
    _promises: Promises = field(default_factory=Promises)

    def land(self, waived: frozenset[str]) -> Landed:
        """Land one batch; ``batch`` is None when there was nothing to land.

        Raises:
            UnreachableError: Kafka did not answer; nothing was committed.
            HeldError: another writer commits to this lane, or W read back is not ours.
        """
        started = self.clock()
        listing = list_ends(self.feeds, self.reader.transport)
        chosen = plan(self.mark.offsets, listing.beginnings, listing.ends, self.settings.batch_rows)
        held: dict[str, Hold] = {}
        if not chosen.spans and not chosen.gaps and not self._reopened(waived):
            return self._report(started, None, Facts(), chosen, held)
        with described(self.session, f"land batch {self.mark.batch + 1} of lane {self.mark.lane}"):
            self.facts = self._commit(chosen, listing, held, waived)
        return self._report(started, self.mark.batch, self.facts, chosen, held)

    def _reopened(self, waived: frozenset[str]) -> bool:
        """Whether a person has closed something that the mark still calls open."""
        quarantined = {name for names in self.mark.quarantined.values() for name in names}
        return bool(waived & (set(self.mark.gaps) | quarantined))

    def _commit(
        self, chosen: Plan, listing: Listing, held: dict[str, Hold], waived: frozenset[str]
    ) -> Facts:
        """Write, judge, and commit; a source in disorder is left out and the rest tried again."""
        epochs = look(self.mark, listing)
        while True:
            txn = self._begin()
            stamp = Stamp(self.mark.lane, self.mark.batch + 1, self.clock())
            rows = self.reader.rows(chosen, listing.source_of, stamp=stamp, epochs=epochs)
            rows = self._recognised(rows, epochs)
            files = txn.stage(rows) if rows is not None else ()
            facts = self._gather(files)
            strange = self._strange(files, facts)
            if not strange:
                break
            epochs, found = explain(epochs, listing, strange, waived)
            held.update(found)
            chosen = _without(chosen, self.mark, listing, set(found))
        made, settled = next_mark(
            self.mark,
            facts,
            chosen,
            acknowledged=self._promises.passed(listing, chosen, self.mark.epochs, epochs.known),
            epochs=epochs.known,
            starts=epochs.starts,
            waived=waived,
            router=self.reader.router,
        )
        self._finish(txn, made, settled)
        return facts

    def _recognised(self, rows: DataFrame | None, epochs: Epochs) -> DataFrame | None:
        """Rows with the order they were first landed with, if a new server sends them again."""
        again = resending(self.mark, epochs)
        if rows is None or not again:
            return rows
        return reordered(rows, self._log(), again)

    def _log(self) -> DataFrame:
        return self.session.read.format("delta").load(self.settings.changes)

    def _strange(self, files: tuple[str, ...], facts: Facts) -> dict[TopicPartition, int]:
        """Where the batch goes back and repeats nothing: partition -> first such offset."""
        if not facts.back:
            return {}
        written = self.session.read.parquet(*files)
        return unexplained(self.session, written, self._log(), facts.back)

    def _begin(self) -> Transaction:
        app = changelog.app(self.mark.lane)
        return Transaction(self.session, self.settings.changes, app, self.mark.batch + 1)

    def _gather(self, files: tuple[str, ...]) -> Facts:
        """Sum up the staged files; bounded by ``batch_rows`` rows of slim columns."""
        if not files:
            return Facts()
        written = self.session.read.parquet(*files)
        return gather(changelog.slim(written).toArrow(), self.mark.high)

    def _finish(self, txn: Transaction, made: Mark, settled: tuple[Settled, ...]) -> None:
        rows = [self._settle_row(done) for done in settled]
        txn.stage(changelog.made_rows(self.session, made, rows, self.clock()))
        txn.commit(json.dumps({"sluice": {"lane": made.lane, "batch": made.batch}}))
        found = self.read_back()
        if found != made:
            at = "nothing" if found is None else f"batch {found.batch}"
            raise HeldError("mark_lost", f"wrote batch {made.batch}, read back {at}")
        self.mark = made

    def _settle_row(self, done: Settled) -> dict[str, object]:
        source, _, shard = done.name.partition("/")
        return changelog.settle_row(source, shard, self.reader.router.table(shard), done.order)

    def _report(
        self,
        started: datetime,
        batch: int | None,
        facts: Facts,
        chosen: Plan,
        held: dict[str, Hold],
    ) -> Landed:
        return Landed(
            lane=self.mark.lane,
            batch=batch,
            rows=facts.rows,
            started=started,
            took=self.clock() - started,
            capped=chosen.capped,
            tables=tuple(sorted(facts.tables.items())),
            gaps=tuple(read_gap(text) for text in self.mark.gaps.values()),
            holds=tuple(held.values()),
        )


def _without(chosen: Plan, mark: Mark, listing: Listing, sources: set[str]) -> Plan:
    """The plan without the sources that are held: their W stays where it was."""
    out = {tp for tp in chosen.spans if listing.source_of[tp.topic] in sources}
    offsets = {n: e for n, e in chosen.offsets.items() if n not in {str(tp) for tp in out}}
    back = {str(tp): mark.offsets[str(tp)] for tp in out if str(tp) in mark.offsets}
    spans = {tp: span for tp, span in chosen.spans.items() if tp not in out}
    return replace(chosen, spans=spans, offsets=offsets | back)
