"""Determines which position a collector acknowledged and MirrorMaker 2 has also replicated.

It queries in the order of the proof: MirrorMaker's offsets, the collector's acknowledged
position, then the end offsets of the cluster that the collector writes to. An acknowledged
position counts once MirrorMaker has replicated everything below ends that were listed after it.
This must hold for every partition, because one partition says nothing about another. The ends of
our own cluster, listed after that, include these records.

Cannot detect: records that MirrorMaker omitted (a filter, a transform), or skipped while this
service was not running.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pipeline.collectors.collector import Collector
from pipeline.collectors.connect.collector import ConnectCollector
from pipeline.model import Acknowledged, Missing, PartitionEnd, TopicPartition
from pipeline.settings import MirrorSettings, SourceSettings
from pipeline.sources.positions import locate_position
from pipeline.transports.kafka import KafkaTransport
from pipeline.transports.transport import Transport

Ends = Mapping[TopicPartition, PartitionEnd]


def behind_mirror(source: SourceSettings, collector: Collector, topics: str) -> "Mirrored | None":
    """Return *collector* with MirrorMaker's progress included; None if *source* is not mirrored.

    *topics* is a regular expression for the whole names of its topics in the cluster that Sluice
    reads.
    """
    between = source.mirrored
    if between is None:
        return None
    mirror = ConnectCollector(
        between.url,
        between.connector,
        ca=between.ca,
        certificate=between.certificate,
        key=between.key,
    )
    return Mirrored(source, collector, upstream_of(between), mirror, topics, between.alias)


def upstream_of(between: MirrorSettings) -> Transport:
    """Return a client of the cluster that the collector writes to."""
    return KafkaTransport(between.kafka, between.kafka_security, timedelta(seconds=5))


@dataclass(frozen=True, slots=True)
class ListedAfter:
    """A position, and ends that were listed after it was acknowledged."""

    acknowledged: Acknowledged
    ends: Ends

    def behind(self, carried: Mapping[TopicPartition, int]) -> tuple[TopicPartition, ...]:
        """Partitions with records below the ends that are not replicated yet."""
        return tuple(
            at
            for at, end in self.ends.items()
            if end.offset and carried.get(at, -1) < end.offset - 1
        )


@dataclass(eq=False)
class Mirrored:
    """A collector whose acknowledgement must hold for the replicated topics that Sluice reads."""

    source: SourceSettings
    collector: Collector
    upstream: Transport
    mirror: ConnectCollector
    topics: str
    alias: str = ""
    _ids: dict[str, str] = field(default_factory=dict)
    _waiting: ListedAfter | None = None
    _proven: Acknowledged | None = None
    _broken: str = ""

    def acknowledged(self) -> Acknowledged | Missing:
        """The newest position whose records are known to have arrived in the cluster read.

        Raises:
            UnreachableError: MirrorMaker, the collector or the cluster does not answer.
        """
        carried = self.mirror.carried()
        said = self.collector.acknowledged()
        if isinstance(said, Missing):
            return said
        self._forget_other_log(said)
        if said.snapshot:
            return said  # during a snapshot it proves nothing
        names = self._names()
        if not names:
            return Missing(f"source {self.source.name} has no topic where its collector writes")
        new = ListedAfter(said, self.upstream.ends(names))
        self._examine(names, new.ends, carried)
        if self._broken:
            return Missing(self._broken)
        self._advance(new, carried)
        if self._proven is None:
            at, *_ = new.behind(carried)
            return Missing(f"the mirror has not copied {at} up to {new.ends[at].offset} yet")
        return self._proven

    def _advance(self, new: ListedAfter, carried: Mapping[TopicPartition, int]) -> None:
        """Store the position that is proven now; keep *new* waiting unless an older one waits."""
        if not new.behind(carried):
            self._proven, self._waiting = new.acknowledged, None
        elif self._waiting is None:
            self._waiting = new
        elif not self._waiting.behind(carried):
            self._proven, self._waiting = self._waiting.acknowledged, new

    def _forget_other_log(self, said: Acknowledged) -> None:
        """Discard positions if *said* is lower than one: it belongs to another log."""
        known = [one for one in (self._proven, self._waiting and self._waiting.acknowledged) if one]
        if said.snapshot or any(
            locate_position(said.position) < locate_position(one.position) for one in known
        ):
            self._proven = self._waiting = None

    def _names(self) -> dict[str, str]:
        """The source's topics by their names in the collector's cluster, with their ids."""
        before = f"{self.alias}." if self.alias else ""
        every = self.upstream.topics(".*")
        return {n: i for n, i in every.items() if re.fullmatch(self.topics, before + n)}

    def _examine(
        self, names: Mapping[str, str], ends: Ends, carried: Mapping[TopicPartition, int]
    ) -> None:
        """Mark the mirror as broken for good if it cannot have replicated every record."""
        renewed = [n for n, known in names.items() if self._ids.setdefault(n, known) != known]
        if renewed:
            self._broken = f"topic {renewed[0]} was created again where the collector writes"
        for at, first in self.upstream.beginnings(names).items():
            last = carried.get(at)
            if last is not None and at in ends and last >= ends[at].offset:
                self._broken = f"the mirror has copied more of {at} than exists"
            elif last is not None and first.offset > last + 1:
                self._broken = f"{at} was deleted up to {first.offset} before it was copied"
