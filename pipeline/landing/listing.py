"""What there is to land now: heads, acknowledgements and ends, asked in the order of the proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.errors import ConfigError
from pipeline.landing.feed import Feed
from pipeline.model import Acknowledged, Head, PartitionEnd, TopicPartition


class Transport(Protocol):
    """The topics' offsets, and bounded reads of them."""

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Topics whose whole name matches, with their ids."""
        ...

    def ends(self, topics: Sequence[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Next offset of each partition."""
        ...

    def beginnings(self, topics: Sequence[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """First offset of each partition that still exists."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """One look at everything upstream.

    ``heads`` holds (before, after) listing the ends, only of servers that answered both times.
    ``acknowledged`` was read before the ends were listed; sources that did not say are absent.
    """

    heads: Mapping[str, tuple[Head, Head]]
    acknowledged: Mapping[str, Acknowledged]
    source_of: Mapping[str, str]
    beginnings: Mapping[TopicPartition, PartitionEnd]
    ends: Mapping[TopicPartition, PartitionEnd]


def list_ends(feeds: Sequence[Feed], transport: Transport) -> Listing:
    """Ask heads, acknowledgements, ends, heads, in this order.

    Raises:
        UnreachableError: Kafka did not answer.
        ConfigError: two sources claim one topic.
    """
    before = {feed.settings.name: feed.head() for feed in feeds}
    said = {feed.settings.name: feed.acknowledged() for feed in feeds}
    source_of: dict[str, str] = {}
    for feed in feeds:
        for topic in transport.topics(feed.settings.every_topic):
            other = source_of.setdefault(topic, feed.settings.name)
            if other != feed.settings.name:
                raise ConfigError(f"topic {topic} is claimed by {other} and {feed.settings.name}")
    ends = transport.ends(sorted(source_of))
    beginnings = transport.beginnings(sorted(source_of))
    heads: dict[str, tuple[Head, Head]] = {}
    for feed in feeds:
        first, second = before[feed.settings.name], feed.head()
        if first is not None and second is not None:
            heads[feed.settings.name] = (first, second)
    acknowledged = {n: a for n, a in said.items() if isinstance(a, Acknowledged)}
    ends = {tp: end for tp, end in ends.items() if tp in beginnings}
    return Listing(heads, acknowledged, source_of, beginnings, ends)
