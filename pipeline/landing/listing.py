"""What there is to land now: heads, acknowledgements and ends, asked in the order of the proof."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog

from pipeline.checkpoint import Mark
from pipeline.errors import ConfigError
from pipeline.landing.plan import Plan
from pipeline.landing.source_feed import Feed
from pipeline.landing.topic_shards import TopicNames
from pipeline.model import Acknowledged, Capture, Head, Missing, PartitionEnd, TopicPartition
from pipeline.parallel import Answer, SideBySide
from pipeline.transports.transport import Transport

PATIENCE = timedelta(seconds=20)  # a server's and a collector's own limits, and something over
T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Listing:
    """One look at everything upstream.

    ``heads`` holds (before, after) listing the ends, only of servers that answered both times.
    ``acknowledged`` was read before the ends were listed; sources that did not say are absent.
    ``captures`` was read after that: what was acknowledged by then was sent by these lists, or by
    others before them.  Nothing is acknowledged of a source that does not tell them.
    ``hidden`` are topics that were read and that we may not see any more, there or not.
    ``epoch_ends`` holds where the leader epoch of W ends, of partitions with another leader now.
    ``once`` are sources that never send again what was read of them.
    """

    heads: Mapping[str, tuple[Head, Head]]
    acknowledged: Mapping[str, Acknowledged]
    source_of: Mapping[str, str]
    beginnings: Mapping[TopicPartition, PartitionEnd]
    ends: Mapping[TopicPartition, PartitionEnd]
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    captures: Mapping[str, Capture] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Before:
    """What one feed says, in this order, before the ends are listed."""

    head: Head | None
    acknowledged: Acknowledged | Missing
    lists: Capture | Missing


@dataclass(eq=False)
class Upstream:
    """Asks sources and collectors side by side: one that hangs delays nobody but the first time.

    What came too late for one listing is not taken for the next: its ends may be older than it.
    """

    feeds: Sequence[Feed]
    transport: Transport
    before: SideBySide[_Before]
    after: SideBySide[Head | None]
    _silent: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, feeds: Sequence[Feed], transport: Transport, clock: Callable[[], datetime]
    ) -> "Upstream":
        """One whose feeds have as long as their own limits let them take in sum."""
        never = -timedelta.resolution
        return cls(
            feeds,
            transport,
            SideBySide(clock, never, PATIENCE),
            SideBySide(clock, never, PATIENCE / 2),
        )

    def list(self, w: Mapping[str, PartitionEnd]) -> Listing:
        """Ask heads, acknowledgements, lists, ends, heads, in this order; *w* is how far we came.

        Raises:
            UnreachableError: Kafka did not answer.
            ConfigError: two sources claim one topic.
        """
        looks = {feed.settings.name: partial(_look, feed) for feed in self.feeds}
        told = self._answered("before", self.before, looks)
        acknowledged = {
            name: one.acknowledged
            for name, one in told.items()
            if isinstance(one.acknowledged, Acknowledged) and isinstance(one.lists, Capture)
        }
        captures = {n: one.lists for n, one in told.items() if isinstance(one.lists, Capture)}
        source_of, beginnings, ends = self._listed()
        first = {name: one.head for name, one in told.items() if one.head is not None}
        again = {f.settings.name: f.head for f in self.feeds if f.settings.name in first}
        later = self._answered("after", self.after, again)
        heads = {n: (first[n], head) for n, head in later.items() if head is not None}
        changed = {
            at: known.leader_epoch
            for at, end in ends.items()
            if (known := w.get(str(at))) is not None and 0 <= known.leader_epoch != end.leader_epoch
        }
        absent = {TopicPartition.parse(name).topic for name in w.keys() - {str(at) for at in ends}}
        return Listing(
            heads,
            acknowledged,
            source_of,
            beginnings,
            ends,
            self.transport.epoch_ends(changed),
            captures,
            self.transport.hidden(absent),
            frozenset(feed.settings.name for feed in self.feeds if feed.sent_once),
        )

    def names(self, topic: str) -> TopicNames | None:
        """What the source of *topic* calls its topics; None if it is no source's."""
        feed = owner(topic, self.feeds)
        return None if feed is None else feed.names

    def _answered(
        self, when: str, asking: SideBySide[T], questions: Mapping[str, Callable[[], T]]
    ) -> dict[str, T]:
        """What is said in time; who says nothing is logged once, until he says something *then*.

        One who was not asked has said nothing yet.
        """
        found = asking.ask(questions)
        known = self._silent.get(when, frozenset())
        silent = {name: one.why for name, one in found.items() if isinstance(one, Missing)}
        for name in silent.keys() - known:
            log.warning("not_asked", source=name, why=silent[name])
        self._silent[when] = (known - found.keys()) | silent.keys()
        return {name: one.value for name, one in found.items() if isinstance(one, Answer)}

    def _listed(
        self,
    ) -> tuple[
        dict[str, str], Mapping[TopicPartition, PartitionEnd], dict[TopicPartition, PartitionEnd]
    ]:
        """Whose each topic is, and where its partitions begin and end."""
        every = "|".join(f"(?:{feed.topics})" for feed in self.feeds)
        claims = {topic: owner(topic, self.feeds) for topic in self.transport.topics(every)}
        mine = {topic: feed.settings.name for topic, feed in claims.items() if feed is not None}
        ends = self.transport.ends(sorted(mine))
        beginnings = self.transport.beginnings(sorted(mine))
        return mine, beginnings, {tp: end for tp, end in ends.items() if tp in beginnings}


def _look(feed: Feed) -> _Before:
    return _Before(feed.head(), feed.acknowledged(), feed.captures())


def owner(topic: str, feeds: Sequence[Feed]) -> Feed | None:
    """Whose *topic* is: of several sources whose names it fits, the one with the longest prefix.

    Raises:
        ConfigError: two sources claim it with the same prefix.
    """
    fitting = [feed for feed in feeds if feed.claims(topic)]
    if not fitting:
        return None
    longest = max(len(feed.settings.prefix) for feed in fitting)
    found = [feed for feed in fitting if len(feed.settings.prefix) == longest]
    if len(found) > 1:
        names = " and ".join(feed.settings.name for feed in found)
        raise ConfigError(f"topic {topic} is claimed by {names}; give them prefixes of their own")
    return found[0]


def tell_gone(chosen: Plan, made: Mark) -> None:
    """Told once it is committed: a round that commits nothing would say it again."""
    for gap in chosen.doubts:
        if f"{gap.id}@{made.batch}" not in made.gaps:
            at = TopicPartition(gap.topic, gap.partition)
            what = f"{at} is gone; it had been landed to its end at {gap.first}"
            log.info("partition gone", lane=made.lane, batch=made.batch, what=what)
