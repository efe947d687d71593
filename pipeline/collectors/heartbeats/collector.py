"""What writes a source's log into topics and tells nobody how far it is: canal and its like.

Nobody is asked but the source and the topics: heartbeats are rows of the log, and come through like
all others (see :mod:`pipeline.collectors.heartbeats.evidence`).  What makes a heartbeat's arrival
say anything of the rows before it is a promise of who sends them, which the config has to name.
Cannot see: a promise that is broken, such as a message that was dropped and not sent again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.collectors.collector import Collector, CollectorExamination, CollectorState
from pipeline.collectors.heartbeats.evidence import HeartbeatEvidence, NotedEnd, SendingPromise
from pipeline.collectors.heartbeats.tail import HeartbeatTail
from pipeline.collectors.registration import CollectionScope
from pipeline.collectors.stream import CollectedStream
from pipeline.errors import ConfigError, ProofError
from pipeline.finding import NOTE, REFUSE, Finding
from pipeline.model import Acknowledged, Capture, Missing
from pipeline.settings import SourceSettings

BEHIND = 60  # heartbeats, one a second, after which it is said to be silent


@dataclass(eq=False)
class HeartbeatCollector:
    """``promise``: what the producer promises of the order in which its messages arrive.

    ``tables``: a regular expression on the whole names of those that it sends, as it is set there.
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
        """Refuse what is no expression; nobody is asked yet."""
        try:
            re.compile(self.tables)
        except re.error as error:
            msg = f"collector.options.tables: {self.tables!r} is no regular expression: {error}"
            raise ConfigError(msg) from error
        self._tail = HeartbeatTail(self.stream)
        self._evidence = HeartbeatEvidence(self.promise)

    @property
    def rests_on(self) -> str:
        """The promise."""
        return f"heartbeats that came through, where {self.promise.words}"

    def acknowledged(self) -> Acknowledged | Missing:
        """Where the log ended before a heartbeat that has come through; asked in that order."""
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
        """The server of the config: whom it really reads is not known here."""
        return self.stream.source.host, self.stream.source.port

    def captures(self) -> Capture:
        """Of which tables it sends rows, by the config's word for it."""
        sends = re.compile(self.tables).fullmatch
        by = "collector.options.tables"
        return Capture(lambda shard: sends(str(shard)) is not None, self.tables, said_by=by)

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        """Say what is believed, and refuse partitions that the promise says nothing of."""
        where = f"collector:{settings.name}"
        told = f"its word is not asked for: what has arrived is known by {self.rests_on}"
        fix = "see that it is set up so; nothing here can see whether it is"
        found = [Finding(NOTE, "promise", where, told, fix)]
        if why := self._scattered():
            advice = "let all of it go through one, or say promise: batches if that is true"
            found.append(Finding(REFUSE, "scattered", where, why, advice))
        return CollectorExamination(tuple(found))

    def registration(self, scope: CollectionScope) -> None:
        """It is set up elsewhere."""

    def state(self) -> CollectorState:
        """Whether heartbeats come through, as of the last time that this was looked at."""
        if self._end is None:
            return CollectorState("running")
        newest, highest = self._end.number, self._evidence.highest
        if newest - highest > BEHIND:
            seen = f"{highest} came through last" if highest >= 0 else "none has come through"
            return CollectorState("silent", f"heartbeat {newest} is committed, and {seen}")
        return CollectorState("running")

    def close(self) -> None:
        """Hang up."""
        self.stream.server.close()
        self.stream.transport.close()

    def _scattered(self) -> str:
        """Why the promise says nothing here; empty if it does."""
        if self.promise is not SendingPromise.ORDERED or (count := self._tail.partitions()) < 2:
            return ""
        name = self.stream.source.name
        return f"what source {name} sends comes through {count} partitions, not one"


COLLECTOR: type[Collector] = HeartbeatCollector
