"""The records of a plan as rows of the change log, read by the cheaper of two readers.

A small batch comes through one persistent consumer and becomes a local table; a Kafka scan by
Spark costs seconds to start, so only a large batch (or one of many bytes) is worth it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from pipeline.changelog.table import Stamp, shape
from pipeline.landing.epochs import Epochs
from pipeline.landing.feed import Feed
from pipeline.landing.listing import Transport
from pipeline.landing.plan import Plan, Span
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.route import Router
from pipeline.topics.records import UnfitError

_RAW = ("key", "value", "topic", "partition", "offset", "timestamp")


class BoundedTransport(Transport, Protocol):
    """A transport that can also read."""

    def read(
        self, spans: Mapping[TopicPartition, tuple[int, PartitionEnd]], *, within: timedelta
    ) -> pa.Table:
        """All records of half-open spans, sorted by partition and offset."""
        ...


@dataclass(eq=False)
class Reader:
    """Read plans; ``source_of`` says whose each topic is."""

    session: SparkSession
    transport: BoundedTransport
    feeds: tuple[Feed, ...]
    router: Router
    bootstrap: str
    small: int
    within: timedelta = timedelta(seconds=30)
    _last: tuple[Plan, pa.Table] | None = None

    def rows(
        self, chosen: Plan, source_of: Mapping[str, str], *, stamp: Stamp, epochs: Epochs
    ) -> DataFrame | None:
        """Rows of ``changelog.SCHEMA``, sorted by table inside each task; None for no span.

        Raises:
            UnreachableError: not all records came in time, or a topic was created anew.
        """
        parts = []
        local = self._local(chosen)
        for feed in self.feeds:
            name = feed.settings.name
            spans = {tp: s for tp, s in chosen.spans.items() if source_of[tp.topic] == name}
            if not spans:
                continue
            raw = self._scan(spans) if local is None else self._part(local, spans)
            shaped = shape(
                feed.format.columns(raw),
                name,
                feed.settings.heartbeat,
                router=self.router,
                epoch=epochs.column(name, spans),
                stamp=stamp,
            )
            parts.append(shaped)
        if not parts:
            return None
        rows = reduce(DataFrame.unionByName, parts)
        return (rows if local is None else rows.coalesce(1)).sortWithinPartitions("table")

    def _local(self, chosen: Plan) -> pa.Table | None:
        """A small batch's records; None when the batch is one for Spark."""
        if sum(span.size for span in chosen.spans.values()) > self.small:
            return None
        if self._last is None or self._last[0] is not chosen:
            asked = {tp: (span.first, span.end) for tp, span in chosen.spans.items()}
            try:
                self._last = (chosen, self.transport.read(asked, within=self.within))
            except UnfitError:
                return None
        return self._last[1]

    def _part(self, local: pa.Table, spans: Mapping[TopicPartition, Span]) -> DataFrame:
        topics = pa.array(sorted({tp.topic for tp in spans}))
        return self.session.createDataFrame(local.filter(pc.is_in(local["topic"], topics)))

    def _scan(self, spans: Mapping[TopicPartition, Span]) -> DataFrame:
        firsts: dict[str, dict[str, int]] = {}
        untils: dict[str, dict[str, int]] = {}
        for tp, span in spans.items():
            firsts.setdefault(tp.topic, {})[str(tp.partition)] = span.first
            untils.setdefault(tp.topic, {})[str(tp.partition)] = span.end.offset
        partitions = {topic: sorted(int(p) for p in ps) for topic, ps in firsts.items()}
        reader = self.session.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("assign", json.dumps(partitions))
        reader = reader.option("startingOffsets", json.dumps(firsts))
        reader = reader.option("endingOffsets", json.dumps(untils))
        return reader.option("failOnDataLoss", "true").load().select(*_RAW)
