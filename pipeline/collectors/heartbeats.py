"""Proves from heartbeats how far a collector without offsets, such as Canal, has sent the log.

Only the source and the topics are queried. Heartbeats are rows of the source log and arrive
like all others. What their arrival proves about earlier rows depends on a guarantee of the
producer, which the config must name (`promise`).

First the end of the source log is noted, then the highest committed heartbeat number n.
Heartbeat n + 1 may already be logged without being visible. Heartbeat n + 2 cannot be, because
it is written only when n + 1 is visible. So once two heartbeats above n have arrived, everything
before the noted end was sent before the second. The arrival of n + 2 alone is not enough. After a
restore, or a failover to a server that is missing some heartbeats, numbers jump. Some numbers
above n may then belong to the previous log. So on a new server nothing is awaited until its own
number has risen; numbers of the previous log are below it.

Whether rows that were sent earlier have also arrived cannot be observed, and follows from the
guarantee:

* ORDERED: everything goes through one partition, in the order of the log. So it has arrived.
* BATCHES: several partitions, one batch at a time. A whole batch is read from the log before
  any of it is sent, and the whole batch is acknowledged before the next is read. A heartbeat
  proves nothing about its own batch. A heartbeat that was committed after that one arrived is in
  a later batch. So two heartbeats are awaited, and the second must be written after the first was
  seen. A failed batch is read again and may then have more rows. So the second is awaited again if
  the numbers between do not rise one by one.

A number that falls means that the source log is being redelivered. Nothing is acknowledged
until the numbers have recovered, because an older row may have replaced a newer one.

The first read goes backward from the partition ends until it finds a heartbeat. Later reads
continue there, so that none is skipped. Rows of a snapshot or replay do not count as heartbeats.
They show the server's state when they were read, and nothing about the log in transit.

Cannot detect: a broken guarantee, such as a message that was dropped and not sent again.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from itertools import chain, pairwise
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.collectors.collector import (
    CollectedStream,
    CollectionScope,
    Collector,
    CollectorExamination,
    CollectorState,
)
from pipeline.errors import ConfigError, ProofError
from pipeline.finding import NOTE, REFUSE, Finding
from pipeline.formats.format import heartbeat_number
from pipeline.formats.schema_registry import decode_with_registry
from pipeline.model import Acknowledged, CaptureScope, Head, Missing, Origin, TopicPartition
from pipeline.settings import SourceSettings
from pipeline.transports.topics import spell_topic
from pipeline.transports.transport import OffsetRange, ReadBounds

MOST = 600  # ends that may wait; further ones are not noted until some are proven


class SendingPromise(StrEnum):
    """The guarantee of the producer about the order in which messages arrive."""

    ORDERED = "ordered"
    BATCHES = "batches"

    @property
    def words(self) -> str:
        """The guarantee as part of a sentence, for messages."""
        return _WORDS[self]


_WORDS = {
    SendingPromise.ORDERED: "it sends all through one partition, in order, and stops at what it"
    " cannot send (acks=all)",
    SendingPromise.BATCHES: "it sends batch after batch, each acknowledged as a whole (acks=all)"
    " before the next is taken from the log",
}


@dataclass(frozen=True, slots=True)
class NotedEnd:
    """The end of a log, and the highest committed heartbeat number, read after that."""

    head: Head
    number: int


@dataclass(frozen=True, slots=True)
class _Awaited:
    """An end that waits for two heartbeats above ``above``, then ``more`` times for two others.

    ``above`` is None until a later end is noted; ``first`` is the first of the two, if it arrived.
    """

    end: NotedEnd
    above: int | None
    more: int
    first: int | None = None

    def after(self, number: int, first: int | None) -> "_Awaited":
        """Wait for two above *number*, which is committed, if ``above`` is not set yet.

        *first* is one of them if it has already arrived.
        """
        return self if self.above is not None else replace(self, above=number, first=first)

    def anew(self, more: int) -> "_Awaited":
        """Wait for two heartbeats above the number that is committed when the next end is noted."""
        return _Awaited(self.end, None, more)

    def seeing(self, number: int) -> "_Awaited | None":
        """The state after heartbeat *number* arrived; None if the end is proven."""
        if self.above is None or number <= (self.above if self.first is None else self.first):
            return self
        if self.first is None:
            return replace(self, first=number)
        return self.anew(self.more - 1) if self.more else None


@dataclass(eq=False)
class HeartbeatEvidence:
    """The evidence for one source: ends that wait, and the newest end that is proven."""

    promise: SendingPromise
    highest: int = -1
    _last: int | None = None
    _waiting: deque[_Awaited] = field(default_factory=deque)
    _proven: NotedEnd | None = None
    _begun: NotedEnd | None = None
    _newest: NotedEnd | None = None

    def learn(self, end: NotedEnd, came: Sequence[int]) -> None:
        """Add an *end*, and the numbers that *came* since the last call, read after the end."""
        if self._is_of_another_log(end):
            self._waiting.clear()
            self._proven, self._begun = None, end
        self._newest = end
        if len(self._waiting) < MOST:
            more = 1 if self.promise is SendingPromise.BATCHES else 0
            self._waiting.append(_Awaited(end, None, more))
        if self._begun is not None and end.number > self._begun.number:
            first = self.highest if self.highest > end.number else None
            self._waiting = deque(w.after(end.number, first) for w in self._waiting)
        if came:
            if not self._is_onward(came):
                self._wait_anew()
            self._last, self.highest = came[-1], max(*came, self.highest)
            self._judge(came)

    def acknowledged(self, source: str) -> Acknowledged | Missing:
        """The position up to which the log of *source* has arrived."""
        if self._last is None:
            return Missing(f"no heartbeat of source {source} has come through its topics yet")
        if self._last < self.highest:
            fell = (
                f"source {source} is being sent again (heartbeat {self._last} after {self.highest})"
            )
            return Missing(f"{fell}; wait until it has caught up, or stop a second sender")
        if self._proven is None:
            return Missing(f"no heartbeat that source {source} wrote since then has arrived yet")
        return Acknowledged(self._proven.head.position)

    def _is_of_another_log(self, end: NotedEnd) -> bool:
        """Whether the server is another one, or was restored, so earlier evidence is invalid."""
        before = self._newest
        if before is None or end.head.identity != before.head.identity:
            return True
        return end.number < before.number

    def _is_onward(self, came: Sequence[int]) -> bool:
        """Whether numbers rise one by one; otherwise a batch may have been read twice."""
        before = came[0] - 1 if self._last is None else self._last
        return all(one + 1 == after for one, after in pairwise((before, *came)))

    def _wait_anew(self) -> None:
        """With BATCHES, await the second heartbeat again: the first batch may have been reread."""
        if self.promise is SendingPromise.BATCHES:
            self._waiting = deque(w if w.more else w.anew(0) for w in self._waiting)

    def _judge(self, came: Sequence[int]) -> None:
        left = deque[_Awaited]()
        for one in self._waiting:
            awaited: _Awaited | None = one
            for number in came:
                awaited = awaited and awaited.seeing(number)
            if awaited is None:
                self._proven = one.end
            else:
                left.append(awaited)
        self._waiting = left


FIRST, WIDER, MOST_READ = 64, 8, 200_000  # records: first step, its growth, most per partition
QUIET = 30  # reads without a heartbeat, after which other partitions are searched
PATIENCE = timedelta(seconds=2)
COLUMNS = ("message", "shard", "after", "snapshot", "origin")
Spans = Mapping[TopicPartition, tuple[int, int]]
Numbers = Mapping[TopicPartition, Sequence[int]]


@dataclass(eq=False)
class HeartbeatTail:
    """Reads the heartbeats of one stream.

    ``_read_to`` is the end offset of the last read in each partition that has heartbeats.
    """

    stream: CollectedStream
    _read_to: dict[TopicPartition, int] = field(default_factory=dict)
    _highest: int = -1
    _quiet: int = 0

    def partitions(self) -> int:
        """Number of partitions that have, or had, records: a table without changes has one too.

        Raises:
            UnreachableError: topics do not answer.
        """
        ends = self.stream.transport.ends(self.stream.named())
        return sum(end.offset > 0 for end in ends.values())

    def came(self) -> tuple[int, ...]:
        """Return heartbeat numbers that arrived since the last call; none if none is near the end.

        Those of one partition have its order. Those of several partitions ascend.

        Raises:
            UnreachableError: topics, or the registry, do not answer.
        """
        spans = self._spans()
        known = {
            at: (self._read_to[at], end) for at, (_, end) in spans.items() if self._on(at, spans)
        }
        found = self._read(_ranges({at: span for at, span in known.items() if span[0] < span[1]}))
        self._quiet = 0 if found else self._quiet + 1
        if not known:
            found = self._found(spans)
        elif self._quiet >= QUIET:
            found, self._quiet = self._moved(spans, known), 0
        read = {**known, **{at: spans[at] for at in found}}
        self._read_to = {at: end for at, (_, end) in read.items()}
        numbers = tuple(chain.from_iterable(found.values()))
        self._highest = max((self._highest, *numbers))
        return numbers if len(found) < 2 else tuple(sorted(numbers))

    def _on(self, at: TopicPartition, spans: Spans) -> bool:
        """Whether the partition can be read from where the last read ended."""
        first, end = spans[at]
        return first <= self._read_to.get(at, -1) <= end <= self._read_to[at] + MOST_READ

    def _moved(self, spans: Spans, known: Spans) -> Numbers:
        """Newer heartbeats in partitions that had none; topics may have got more partitions."""
        others = self._found({at: span for at, span in spans.items() if at not in known})
        return {at: numbers for at, numbers in others.items() if max(numbers) > self._highest}

    def _spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """First and end offset of each partition."""
        transport = self.stream.transport
        topics = self.stream.named()
        firsts, ends = transport.beginnings(topics), transport.ends(topics)
        return {at: (firsts[at].offset, end.offset) for at, end in ends.items() if at in firsts}

    def _found(self, spans: Spans) -> Numbers:
        """Search backward from the ends in growing steps; return heartbeats of the first hit."""
        step, until = FIRST, {at: end for at, (first, end) in spans.items() if first < end}
        while until:
            steps = {at: (max(spans[at][0], end - step), end) for at, end in until.items()}
            if found := self._read(_ranges(steps)):
                return found
            until = {
                at: first
                for at, (first, _) in steps.items()
                if spans[at][0] < first and spans[at][1] - first < MOST_READ
            }
            step *= WIDER
        return {}

    def _read(self, ranges: list[OffsetRange]) -> Numbers:
        own, found = self.stream, dict[TopicPartition, list[int]]()
        if not ranges:
            return found
        reader = own.transport.reader(ranges)
        bounds = ReadBounds(patience=PATIENCE)
        for raw in reader.consume(ranges, bounds=bounds, columns=own.format.columns):
            few = raw.filter(_likely(raw, own.source.heartbeat))
            for at, number in self._numbers(few) if len(few) else ():
                found.setdefault(at, []).append(number)
        return found

    def _numbers(self, raw: pa.RecordBatch) -> Iterator[tuple[TopicPartition, int]]:
        heartbeat, name = self.stream.source.heartbeat, self.stream.source.name
        changes = decode_with_registry(self.stream.format, self.stream.registry, raw)
        for change in changes.select(COLUMNS).to_pylist():
            if change["shard"] != heartbeat or change["after"] is None:
                continue
            live = change["snapshot"] is None and change["origin"] == Origin.LIVE
            number = heartbeat_number(change["after"], name) if live else None
            if number is not None:
                row = change["message"]
                topic, partition = raw["topic"][row].as_py(), raw["partition"][row].as_py()
                yield TopicPartition(topic, partition), number


def _ranges(spans: Spans) -> list[OffsetRange]:
    return [OffsetRange(at.topic, at.partition, *span) for at, span in spans.items()]


def _likely(raw: pa.RecordBatch, heartbeat: str) -> pa.BooleanArray:
    """Which messages contain the name of the heartbeat table; only those are decoded."""
    relation = heartbeat.rpartition(".")[2]
    values = pc.fill_null(pc.match_substring(raw["value"], relation), False)
    return pc.or_(values, pc.match_substring(raw["topic"], spell_topic(relation)))


BEHIND = 60  # heartbeats, one a second, after which the state is `silent`


@dataclass(eq=False)
class HeartbeatCollector:
    """A collector without a status to query, such as Canal.

    ``promise`` is the producer's guarantee about the order in which messages arrive.  ``tables`` is
    a regular expression for the whole names of the tables that it sends, as set in the producer.
    """

    usual_kind: ClassVar[str] = ""
    usual_format: ClassVar[str] = ""
    stream: CollectedStream
    promise: SendingPromise
    tables: str = ".*"
    _tail: HeartbeatTail = field(init=False, repr=False)
    _evidence: HeartbeatEvidence = field(init=False, repr=False)
    _end: NotedEnd | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Reject an invalid regular expression; send no request."""
        try:
            re.compile(self.tables)
        except re.error as error:
            msg = f"collector.options.tables: {self.tables!r} is no regular expression: {error}"
            raise ConfigError(msg) from error
        self._tail = HeartbeatTail(self.stream)
        self._evidence = HeartbeatEvidence(self.promise)

    @property
    def rests_on(self) -> str:
        """The guarantee on which the acknowledgement depends."""
        return f"arrived heartbeats, if {self.promise.words}"

    def acknowledged(self) -> Acknowledged | Missing:
        """The newest proven end; the end, the committed heartbeat and topics are read in order."""
        name = self.stream.source.name
        try:
            head = self.stream.server.head()
            self._end = NotedEnd(head, self.stream.server.newest_heartbeat())
        except (ProofError, ConfigError) as error:  # such as no table for heartbeats yet
            return Missing(str(error))
        self._evidence.learn(self._end, self._tail.came())
        if why := self._scattered():
            return Missing(why)
        return self._evidence.acknowledged(name)

    def address(self) -> tuple[str, int]:
        """The server in the config; the server that the collector reads is unknown."""
        return self.stream.source.host, self.stream.source.port

    def captures(self) -> CaptureScope:
        """The tables whose rows it sends, from the config."""
        sends = re.compile(self.tables).fullmatch
        by = "collector.options.tables"
        return CaptureScope(lambda shard: sends(str(shard)) is not None, self.tables, said_by=by)

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        """Report the guarantee, and reject topics with more partitions than it covers."""
        where = f"collector:{settings.name}"
        what = f"it has no status to query; what has arrived is known from {self.rests_on}"
        fix = "check this in its configuration, because Sluice cannot verify it"
        found = [Finding(NOTE, "promise", where, what, fix)]
        if why := self._scattered():
            advice = "use one partition, or set promise: batches if that applies"
            found.append(Finding(REFUSE, "scattered", where, why, advice))
        return CollectorExamination(tuple(found))

    def registration(self, scope: CollectionScope) -> None:
        """Return None: Sluice does not register such collectors."""

    def state(self) -> CollectorState:
        """The state derived from the heartbeats of the last read."""
        if self._end is None:
            return CollectorState("running")
        newest, highest = self._end.number, self._evidence.highest
        if newest - highest > BEHIND:
            seen = f"{highest} came through last" if highest >= 0 else "none has come through"
            return CollectorState("silent", f"heartbeat {newest} is committed, and {seen}")
        return CollectorState("running")

    def close(self) -> None:
        """Close the connections."""
        self.stream.server.close()
        self.stream.transport.close()

    def _scattered(self) -> str:
        """Why the guarantee does not hold for these partitions; empty if it may."""
        if self.promise is not SendingPromise.ORDERED or (count := self._tail.partitions()) < 2:
            return ""
        name = self.stream.source.name
        return f"changes of source {name} arrive in {count} partitions, not in one"


COLLECTOR: type[Collector] = HeartbeatCollector
