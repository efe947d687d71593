"""Determines what a collector acknowledged and MirrorMaker 2 has also replicated.

It asks in the order of the proof: how far MirrorMaker has come, what the collector has
acknowledged, then the end offsets of the cluster that the collector writes to. An acknowledged
position counts once MirrorMaker has handed over everything below ends that were listed after
it. This must hold for every partition, because one partition says nothing about another. The
ends of our own cluster, listed after that, include these records.

Cannot detect: records that MirrorMaker left out (a filter, a transform), or skipped while this
service was not looking.
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
    """Return *collector* as seen behind the mirror of *source*; None if it has no mirror.

    *topics* matches the whole names of all its topics as they are called here.
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
    """A client of the cluster that the collector writes to."""
    return KafkaTransport(between.kafka, between.kafka_security, timedelta(seconds=5))


@dataclass(frozen=True, slots=True)
class ListedAfter:
    """A position, and ends that were listed after it was acknowledged."""

    acknowledged: Acknowledged
    ends: Ends

    def behind(self, carried: Mapping[TopicPartition, int]) -> tuple[TopicPartition, ...]:
        """Partitions with records below the ends that are not copied yet."""
        return tuple(
            at
            for at, end in self.ends.items()
            if end.offset and carried.get(at, -1) < end.offset - 1
        )


@dataclass(eq=False)
class Mirrored:
    """Replaces the collector where its acknowledgement must hold for the topics read here."""

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
        """The newest position that is known to have arrived here.

        Raises:
            UnreachableError: one of the three does not answer: nothing new is known.
        """
        carried = self.mirror.carried()
        said = self.collector.acknowledged()
        if isinstance(said, Missing):
            return said
        self._forget_other_log(said)
        if said.snapshot:
            return said  # it proves nothing anywhere
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
        """Take over what is proven now; else let *new* wait, unless an older one does."""
        if not new.behind(carried):
            self._proven, self._waiting = new.acknowledged, None
        elif self._waiting is None:
            self._waiting = new
        elif not self._waiting.behind(carried):
            self._proven, self._waiting = self._waiting.acknowledged, new

    def _forget_other_log(self, said: Acknowledged) -> None:
        """A position that goes back is one of another log: older ones prove nothing about it."""
        known = [one for one in (self._proven, self._waiting and self._waiting.acknowledged) if one]
        if said.snapshot or any(
            locate_position(said.position) < locate_position(one.position) for one in known
        ):
            self._proven = self._waiting = None

    def _names(self) -> dict[str, str]:
        """The source's topics as they are called there, with their ids."""
        before = f"{self.alias}." if self.alias else ""
        every = self.upstream.topics(".*")
        return {n: i for n, i in every.items() if re.fullmatch(self.topics, before + n)}

    def _examine(
        self, names: Mapping[str, str], ends: Ends, carried: Mapping[TopicPartition, int]
    ) -> None:
        """Stop believing the mirror for good once it cannot have carried over everything."""
        renewed = [n for n, known in names.items() if self._ids.setdefault(n, known) != known]
        if renewed:
            self._broken = f"topic {renewed[0]} was created again where the collector writes"
        for at, first in self.upstream.beginnings(names).items():
            last = carried.get(at)
            if last is not None and at in ends and last >= ends[at].offset:
                self._broken = f"the mirror has copied more of {at} than exists"
            elif last is not None and first.offset > last + 1:
                self._broken = f"{at} was deleted up to {first.offset} before it was copied"
