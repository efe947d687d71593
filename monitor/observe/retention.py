"""Measures how long topics and logs keep unread data, and how much time is left.

Limits and ends are read rarely; each round computes the remaining time from the last answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import structlog

from monitor.observe.sampler import Sampling
from monitor.observe.source_inventory import InventoryAnswer
from pipeline.build import every_topic
from pipeline.checkpoint import Checkpoint
from pipeline.clocks import has_passed
from pipeline.errors import SluiceError
from pipeline.lags import retention
from pipeline.lags.lag import is_of_log_before
from pipeline.lags.retention import BacklogSample, Limit, Retention
from pipeline.model import Acknowledged, Missing, PartitionEnd, TopicPartition
from pipeline.parallel import DeadlinePool
from pipeline.settings import SourceSettings
from pipeline.transports.topics import TopicFacts, undescribed_text
from pipeline.transports.transport import Transport

Ends = Mapping[TopicPartition, PartitionEnd]
DESCRIBED = timedelta(minutes=2)  # time between readings of settings and ends of all topics
SAMPLES = 6  # most samples of a backlog, about an hour
ALIVE = timedelta(minutes=1)  # after this time without a heartbeat, unread data is unknown
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a source: the retention of each, and their ends at an instant."""

    kept: Mapping[str, Limit]
    at: datetime
    ends: Ends


@dataclass(eq=False)
class RetentionWatch:
    """Measures retention of topics and source logs; ``census`` returns a source's last answer.

    ``transport`` returns a client for each name, so that no source waits for another's answer. Each
    client can read the topics of all sources.
    """

    sources: Sequence[SourceSettings]
    transport: Callable[[object], Transport]
    census: Callable[[str], InventoryAnswer | Missing]
    clock: Callable[[], datetime]
    asking: DeadlinePool[None] = field(init=False)
    _topics: dict[str, Topics] = field(default_factory=dict)
    _trouble: str = ""
    _emptied: dict[str, tuple[datetime]] = field(default_factory=dict)
    _backlogs: dict[str, tuple[BacklogSample, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the thread pool, without connecting."""
        self.asking = DeadlinePool(self.clock, timedelta())

    def ask(self) -> None:
        """Read the topics of all sources; without an answer, the earlier one stays valid.

        Each call checks once whether the brokers answer; topic settings are read more rarely.
        """
        self.asking.ask({"topics": self._list})
        if self._trouble:
            return
        due = [source for source in self.sources if self._is_due(source.name)]
        self.asking.ask(
            {f"topics of {source.name}": partial(self._describe, source) for source in due}
        )

    def _list(self) -> None:
        """Check whether the brokers answer; one query for all sources, which lists all topics."""
        every = "|".join(f"(?:{every_topic(source)})" for source in self.sources)
        try:
            self.transport(RetentionWatch).topics(every)
        except SluiceError as error:
            if self._trouble != str(error):
                log.warning("Kafka does not answer", why=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _is_due(self, source: str) -> bool:
        known = self._topics.get(source)
        return known is None or has_passed(known.at, DESCRIBED, self.clock())

    def _describe(self, source: SourceSettings) -> None:
        transport = self.transport(source.name)
        try:
            topics = transport.settings(every_topic(source))
            at = self.clock()
            ends = transport.ends([topic.name for topic in topics])
        except SluiceError as error:
            log.warning("topics were not described", source=source.name, why=str(error))
            return
        kept = {topic.name: _topic_kept(topic) for topic in topics}
        self._topics[source.name] = Topics(kept, at, ends)

    def trouble(self) -> str:
        """Return why the brokers did not list the topics when last asked; empty if they did.

        Missing permission to read settings is not a problem of the brokers.
        """
        return self._trouble

    def retentions(self, look: Sampling) -> Mapping[str, tuple[Retention, ...]]:
        """Return, by source, the retention of its topics, its log and its backlog."""
        return {
            source.name: (
                *self._of_topics(source, look),
                self._of_log(source.name, look),
                *self._of_backlog(source.name),
            )
            for source in self.sources
        }

    def _of_topics(self, source: SourceSettings, look: Sampling) -> tuple[Retention, ...]:
        topics = self._topics.get(source.name)
        if topics is None:
            why = Missing("Kafka has not returned the settings of the topics yet")
            return (Retention("topic", f"{source.prefix}.*", why, None),)
        if not isinstance(look.checkpoint, Missing):
            self._note_emptied(look.checkpoint.value, topics)
        covered = look.steps[-1].passed.get(source.name) if look.steps else None
        known = [covered.at] if covered else []
        return tuple(
            Retention(
                "topic", name, kept, max([*known, *self._emptied.get(name, ())], default=None)
            )
            for name, kept in sorted(topics.kept.items())
        )

    def _note_emptied(self, checkpoint: Checkpoint, topics: Topics) -> None:
        """Record, for each topic whose ends W has passed, when these ends were listed."""
        waiting = {
            at.topic
            for at, end in topics.ends.items()
            if not retention.has_landed(checkpoint, at, end)
        }
        self._emptied |= {name: (topics.at,) for name in topics.kept if name not in waiting}

    def _of_backlog(self, source: str) -> tuple[Retention, ...]:
        """Return the retention of a log kept by size; its growth comes from the last answers."""
        answer = self.census(source)
        if isinstance(answer, Missing) or answer.described.backlog is None:
            return ()
        known = self._backlogs.get(source, ())
        if not known or known[-1].at < answer.ended:
            known = (*known, BacklogSample(answer.ended, answer.described.backlog))[-SAMPLES:]
            self._backlogs[source] = known
        return (retention.of_backlog(known),)

    def _of_log(self, source: str, look: Sampling) -> Retention:
        answer, checkpoint = self.census(source), look.checkpoint
        kept: Limit = Missing(f"source {source} has not reported its settings yet")
        if isinstance(answer, InventoryAnswer):
            kept = retention.log_kept(answer.described.kept)
        one = look.sources.get(source)
        if one is None or not one.known() or isinstance(checkpoint, Missing):
            return Retention("log", source, kept, None)
        said = [] if isinstance(one.acknowledged, Missing) else [one.acknowledged.value]
        said += _landed_with(checkpoint.value, source)
        epoch = checkpoint.value.epochs.get(source)
        identity = epoch.identity if epoch else one.known()[-1].head.identity
        if said and is_of_log_before(said[-1], one.known()[-1], checkpoint.value):
            own = (fence.at for fence in one.known() if fence.head.identity == identity)
            return Retention("log", source, kept, next(own, None))  # none of this log is read yet
        alive = self.clock() - ALIVE
        through = retention.collected_through(one.known(), said, identity, alive)
        return Retention("log", source, kept, through)


def _topic_kept(topic: TopicFacts) -> Limit:
    if not topic.is_described:
        return Missing(undescribed_text([topic.name]))
    return retention.topic_kept(topic.settings)


def _landed_with(checkpoint: Checkpoint, source: str) -> list[Acknowledged]:
    """Return the position acknowledged by the last batch, in case the collector is silent now."""
    return [checkpoint.acknowledged[source]] if source in checkpoint.acknowledged else []
