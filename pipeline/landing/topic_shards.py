"""Which shards may be sent into a topic, and so lack something once part of it is lost?

Rows come in a topic named after their shard, unless somebody routes them: then what is sent where
is not known.  Any shard of a source whose topics are named one by one may be sent into any of them,
whatever was listed of it before; of another source, one of which no topic was.  What is lost of a
source's statements concerns all shards of that source, and of no other.  Pure.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from pipeline.checkpoint import Mark, is_there, source_of
from pipeline.model import Shard, TopicPartition
from pipeline.transports.topics import endings, spelled


@dataclass(frozen=True, slots=True)
class TopicNames:
    """What a source calls its topics.

    ``statements`` is that of its schema changes; ``others`` hold no row of any table.  ``routed``
    if its topics were named one by one, as those must be into which tables are sent together.
    """

    source: str
    statements: str
    others: frozenset[str] = frozenset()
    routed: bool = False


@dataclass(frozen=True)  # without slots: it is sorted out once, and only where something is lost
class TopicShards:
    """Those of *shards*; ``names_of`` tells whose a topic is, None if that is nobody's."""

    mark: Mark
    shards: Collection[str]
    names_of: Callable[[str], TopicNames | None]

    def lost_with(self, topic: str) -> tuple[str, ...]:
        """Those that may be short of what is lost of *topic*, sorted.

        Every one of its source where none is known to be sent into it.
        """
        names = self.names_of(topic)
        every = self._every.get(names.source, ()) if names else sorted(self.shards)
        return self._into(topic, names) or tuple(every)

    def concerns_nobody(self, topic: str) -> bool:
        """Whether its source has no shard yet, and *topic* holds no rows of one."""
        names = self.names_of(topic)
        if names is None or self._every.get(names.source):
            return False
        return topic == names.statements or topic in names.others

    def is_needed(self, topic: str) -> bool:
        """Whether a shard that is there may be sent into *topic*, with a base or without one.

        That it has none may be waived, and what it loses meanwhile is not waived with it.
        """
        return any(map(self._is_awaited, self._into(topic, self.names_of(topic))))

    def _into(self, topic: str, names: TopicNames | None) -> tuple[str, ...]:
        if names is not None and topic == names.statements:
            return tuple(self._every.get(names.source, ()))
        found = {name for end in endings(topic) for name in self._named.get(end, ())}
        if names is not None:
            found = {name for name in found if source_of(name) == names.source}
            if topic not in names.others and names.routed:
                found.update(self._every.get(names.source, ()))
            elif topic not in names.others and not found:
                found.update(self._strays.get(names.source, ()))
        return tuple(sorted(found))

    def _is_awaited(self, name: str) -> bool:
        return self.mark.shards.get(name) is not None and is_there(self.mark, name)

    @cached_property
    def _every(self) -> Mapping[str, list[str]]:
        """By source, sorted."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.shards):
            found.setdefault(source_of(name), []).append(name)
        return found

    @cached_property
    def _named(self) -> Mapping[str, list[str]]:
        """By what topics call them."""
        found: dict[str, list[str]] = {}
        for name in self.shards:
            found.setdefault(spelled(Shard.parse(name).name), []).append(name)
        return found

    @cached_property
    def _strays(self) -> Mapping[str, list[str]]:
        """By source, those of which no topic of their own was ever listed."""
        topics = {TopicPartition.parse(n).topic for n in (*self.mark.offsets, *self.mark.gone)}
        owned = [(names.source, t) for t in topics if (names := self.names_of(t)) is not None]
        ends = {(source, end) for source, topic in owned for end in endings(topic)}
        found: dict[str, list[str]] = {}
        for name in self.shards:
            source = source_of(name)
            if (source, spelled(Shard.parse(name).name)) not in ends:
                found.setdefault(source, []).append(name)
        return found
