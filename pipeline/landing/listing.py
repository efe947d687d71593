"""What there is to land now: heads, acknowledgements and ends, asked in the order of the proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.collectors.collector import Capture
from pipeline.errors import ConfigError
from pipeline.landing.source_feed import Feed
from pipeline.model import Acknowledged, Head, PartitionEnd, TopicPartition
from pipeline.transports.transport import Transport


@dataclass(frozen=True, slots=True)
class Listing:
    """One look at everything upstream.

    ``heads`` holds (before, after) listing the ends, only of servers that answered both times.
    ``acknowledged`` was read before the ends were listed; sources that did not say are absent.
    ``captures`` was read after that: what was acknowledged by then was sent by these lists, or by
    others before them.  Nothing is acknowledged of a source that does not tell them.
    ``hidden`` are topics that were read and that we may not see any more, there or not.
    ``epoch_ends`` holds where the leader epoch of W ends, of partitions with another leader now.
    """

    heads: Mapping[str, tuple[Head, Head]]
    acknowledged: Mapping[str, Acknowledged]
    source_of: Mapping[str, str]
    beginnings: Mapping[TopicPartition, PartitionEnd]
    ends: Mapping[TopicPartition, PartitionEnd]
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    captures: Mapping[str, Capture] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()


def list_ends(
    feeds: Sequence[Feed], transport: Transport, w: Mapping[str, PartitionEnd]
) -> Listing:
    """Ask heads, acknowledgements, lists, ends, heads, in this order; *w* is how far landing came.

    Raises:
        UnreachableError: Kafka did not answer.
        ConfigError: two sources claim one topic.
    """
    before = {feed.settings.name: feed.head() for feed in feeds}
    said = {feed.settings.name: feed.acknowledged() for feed in feeds}
    lists = {feed.settings.name: feed.captures() for feed in feeds}
    captures = {name: told for name, told in lists.items() if isinstance(told, Capture)}
    every = "|".join(f"(?:{feed.topics})" for feed in feeds)
    claims = {topic: owner(topic, feeds) for topic in transport.topics(every)}
    source_of = {topic: feed.settings.name for topic, feed in claims.items() if feed is not None}
    ends = transport.ends(sorted(source_of))
    beginnings = transport.beginnings(sorted(source_of))
    heads: dict[str, tuple[Head, Head]] = {}
    for feed in feeds:
        first, second = before[feed.settings.name], feed.head()
        if first is not None and second is not None:
            heads[feed.settings.name] = (first, second)
    acknowledged = {n: a for n, a in said.items() if isinstance(a, Acknowledged) and n in captures}
    ends = {tp: end for tp, end in ends.items() if tp in beginnings}
    changed = {
        at: known.leader_epoch
        for at, end in ends.items()
        if (known := w.get(str(at))) is not None and 0 <= known.leader_epoch != end.leader_epoch
    }
    epoch_ends = transport.epoch_ends(changed)
    absent = {TopicPartition.parse(name).topic for name in w.keys() - {str(at) for at in ends}}
    hidden = transport.hidden(absent) if absent else frozenset()
    return Listing(heads, acknowledged, source_of, beginnings, ends, epoch_ends, captures, hidden)


def owner(topic: str, feeds: Sequence[Feed]) -> Feed | None:
    """Whose *topic* is: of several sources whose names it fits, the one with the longest prefix.

    Raises:
        ConfigError: two sources claim it with the same prefix.
    """
    fitting = [feed for feed in feeds if feed.claims(topic)]
    longest = max((len(feed.settings.prefix) for feed in fitting), default=0)
    found = [feed for feed in fitting if len(feed.settings.prefix) == longest]
    if len(found) > 1:
        names = " and ".join(feed.settings.name for feed in found)
        raise ConfigError(f"topic {topic} is claimed by {names}; give them prefixes of their own")
    return found[0] if found else None
