"""Lists what there is to land: heads, acknowledgements and ends, in the order of the proof.

A source appears here as landing sees it: its server, collector, topics and format.

An acknowledgement counts once W, the landed position, has reached the end offsets that were listed
after it, and not before. While batches are capped, W is always behind the newest ends. So one
listing is kept until W has reached it. Positions of two source logs prove nothing about each other.
An acknowledgement of a log that is no longer read, or that was given while the log changed, never
counts. After a failover the stored offset may still be that of the old server, and may be a
plausible position of the new one.

Losses that were noticed at a source, and that no log shows, are reported each round. They make
a batch due, and reporting ends once a batch that records them is committed. Later reports would
be wrong: a table with a new base since is missing nothing.

Rows arrive in a topic that is named after their shard, unless they are routed. It is not known
which routed rows go where. Where topics of a source are configured one by one, any of its
shards may be sent into any of them. Otherwise, a shard that never had a topic of its own may be
sent into a topic that matches no shard. Lost statements concern all shards of their source, and
no other.
"""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TypeVar

import structlog

from pipeline.checkpoint import Checkpoint, Epoch, shard_exists
from pipeline.collectors.collector import Collector
from pipeline.collectors.mirrormaker import Mirrored
from pipeline.errors import ConfigError, SluiceError, UnreachableError
from pipeline.finding import Finding
from pipeline.formats.format import Format
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.plan import Ends, Plan
from pipeline.model import (
    Acknowledged,
    CaptureScope,
    Head,
    Missing,
    PartitionEnd,
    Shard,
    ShardId,
    TopicPartition,
    combine_scopes,
)
from pipeline.parallel import Answer, DeadlinePool
from pipeline.schema.history import SchemaReader
from pipeline.schema.model import Dialect
from pipeline.settings import SourceSettings
from pipeline.sources.positions import explain_overrun, names_transactions
from pipeline.sources.source import Source
from pipeline.transports.topics import (
    WHERE,
    TopicFacts,
    find_topic_hazards,
    spell_topic,
    topic_endings,
    undescribed_parts,
    undescribed_text,
)
from pipeline.transports.transport import Transport


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of a source's topics.

    ``statements`` is that of its schema changes; ``others`` hold no row of any table. ``routed`` is
    True if its topics were configured one by one, which is required if tables share a topic.
    """

    source: str
    statements: str
    others: frozenset[str] = frozenset()
    routed: bool = False


@dataclass(frozen=True, eq=False)  # without slots: the texts are sorted once, for all its topics
class _Group:
    """Shards that may be sent into the same topics."""

    shards: Collection[Shard] = ()

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return tuple(sorted(map(str, self.shards)))


_NO_SHARDS = _Group()


@dataclass(frozen=True)  # without slots: its properties are cached, and used only after a loss
class TopicShards:
    """Maps topics to *shards*; ``names_of`` returns a topic's source, None if it has no source."""

    checkpoint: Checkpoint
    shards: Collection[Shard]
    names_of: Callable[[str], TopicNames | None]

    def lost_with(self, topic: str) -> tuple[str, ...]:
        """Return the texts of the shards that may miss changes lost from *topic*, sorted.

        These are all shards of its source if none is known to be sent into it.
        """
        names = self.names_of(topic)
        return self._into(topic, names).texts or self._all(names).texts

    def concerns_nobody(self, topic: str) -> bool:
        """Return whether its source has no shard yet, and *topic* holds no rows of one."""
        names = self.names_of(topic)
        if names is None or self._all(names).shards:
            return False
        return topic == names.statements or topic in names.others

    def is_needed(self, topic: str) -> bool:
        """Return whether an existing shard may be sent into *topic*, with a base or without one.

        A missing base may be waived. That waiver does not cover what is lost meanwhile.
        """
        return any(map(self._is_awaited, self._into(topic, self.names_of(topic)).shards))

    def _into(self, topic: str, names: TopicNames | None) -> _Group:
        carries_any = names is not None and topic not in names.others
        if names is not None and (topic == names.statements or (carries_any and names.routed)):
            return self._all(names)
        named = {shard for end in topic_endings(topic) for shard in self._named.get(end, ())}
        found = {shard for shard in named if names is None or shard.source == names.source}
        if names is not None and carries_any and not found:
            return self._strays.get(names.source, _NO_SHARDS)
        return _Group(found)

    def _all(self, names: TopicNames | None) -> _Group:
        """Return the shards of a source, or of all sources."""
        return self._any if names is None else self._every.get(names.source, _NO_SHARDS)

    def _is_awaited(self, shard: Shard) -> bool:
        there = self.checkpoint.shards.get(shard) is not None
        return there and shard_exists(self.checkpoint, shard)

    @cached_property
    def _any(self) -> _Group:
        return _Group(self.shards)

    @cached_property
    def _every(self) -> Mapping[str, _Group]:
        """Group the shards by source."""
        return _group_by_source(self.shards)

    @cached_property
    def _named(self) -> Mapping[str, list[Shard]]:
        """Group the shards by their names in topics."""
        found: dict[str, list[Shard]] = {}
        for shard in self.shards:
            found.setdefault(spell_topic(shard.name), []).append(shard)
        return found

    @cached_property
    def _strays(self) -> Mapping[str, _Group]:
        """Return the shards of each source without a listed topic of their own."""
        topics = {at.topic for at in (*self.checkpoint.offsets, *self.checkpoint.gone)}
        owned = [(names.source, t) for t in topics if (names := self.names_of(t)) is not None]
        ends = {(source, end) for source, topic in owned for end in topic_endings(topic)}
        return _group_by_source(
            shard for shard in self.shards if (shard.source, spell_topic(shard.name)) not in ends
        )


def _group_by_source(shards: Iterable[Shard]) -> dict[str, _Group]:
    found: dict[str, list[Shard]] = {}
    for shard in shards:
        found.setdefault(shard.source, []).append(shard)
    return {source: _Group(own) for source, own in found.items()}


LINGER = 60.0  # seconds that a hazard is kept after the first look that did not see it
TOPICS = 30.0  # seconds between two looks at the settings of its topics
QUICK = 1.0  # seconds; a collector that fails within them is asked the next question, too
log = structlog.get_logger(__name__)

Describe = Callable[[str], Iterable[TopicFacts]]
"""Returns topics whose whole name matches a pattern, with their settings."""


@dataclass(eq=False)
class LandingSource:
    """Asks a source and its collector, and turns silence into ``None`` or ``Missing``.

    The server asked is the one that the *collector* is connected to: after a fail-over by
    reconfiguration the configured address may be the old server, whose log no longer matters.
    ``arrived`` is set if a mirror copies the collector's topics to ours, ``registry`` if its format
    needs schemas. ``describe`` returns its topics and their settings.
    """

    settings: SourceSettings
    collector: Collector
    format: Format
    connect: Callable[[SourceSettings], Source]
    dialect: Dialect
    arrived: Mirrored | None = None
    registry: SchemaRegistry | None = None
    describe: Describe | None = None
    _servers: dict[tuple[str, int], Source] = field(default_factory=dict)
    _last: CaptureScope | None = None
    _silence: str = ""
    _hangs: bool = False  # the collector hung when it was asked what it has handed over
    clock: Callable[[], float] = time.monotonic
    _hazards: dict[Finding, float] = field(default_factory=dict)  # seen -> when first gone
    _missed: set[Finding] = field(default_factory=set)  # seen by a look without all answers
    _unsaid: set[Finding] = field(default_factory=set)  # seen, and in no committed checkpoint yet
    _began: float | None = None  # time of the first look of this process
    _described: float = -math.inf  # time when the settings of its topics were last requested
    _answering: float = math.inf  # since when each request got an answer
    _of_topics: frozenset[Finding] = frozenset()
    _facts: dict[str, TopicFacts] = field(default_factory=dict)  # last description of each topic
    # topic that Kafka did not describe -> when it was described again; infinite: not yet
    _undescribed: dict[str, float] = field(default_factory=dict)

    @property
    def reading(self) -> SchemaReader:
        """Return the reader of schema changes in its topics."""
        return SchemaReader(self.format.schema_change, self.dialect)

    @property
    def sent_once(self) -> bool:
        """Return whether its format shows that no read change is sent again; most do not."""
        return getattr(self.format, "sent_once", False)

    @cached_property
    def topics(self) -> str:
        """Return a regular expression that matches the whole name of each of its topics."""
        return self.settings.every_topic(self.format.added_topics(self.settings.prefix))

    @cached_property
    def names(self) -> TopicNames:
        """Return the names of its topics."""
        own, prefix = self.settings, self.settings.prefix
        others = {*self.format.added_topics(prefix), self.heartbeats}
        return TopicNames(own.name, prefix, frozenset(others), routed=bool(own.topics))

    @property
    def heartbeats(self) -> str:
        """Return the topic of the heartbeat table, unless a user routes that table."""
        return f"{self.settings.prefix}.{spell_topic(self.settings.heartbeat)}"

    def claims(self, topic: str) -> bool:
        """Return whether changes of this source arrive in *topic*."""
        return re.fullmatch(self.topics, topic) is not None

    def acknowledged(self) -> Acknowledged | Missing:
        """Return what the collector handed over and has arrived; ``Missing`` if it is silent."""
        self._silence, asked = "", self.clock()
        try:
            return (self.arrived or self.collector).acknowledged()
        except UnreachableError as error:
            self._silence = str(error)
            self._hangs = self.arrived is None and self.clock() - asked > QUICK
            return Missing(str(error))

    @property
    def last_scope(self) -> CaptureScope | None:
        """Return the last answer about which tables are sent; None before the first."""
        return self._last

    def captures(self) -> CaptureScope | Missing:
        """Return the lists of collector and server now; ``Missing`` if either does not answer."""
        if self._silence:
            self._look()
            return Missing(self._silence)
        try:
            lists = self.collector.captures()
            self._missed |= set(lists.hazards)  # noted even if its server does not answer
            scope = combine_scopes(lists, self.server().sends())
            found = self._lasting((*scope.hazards, *self._topic_findings()))
            self._last = replace(
                scope,
                hazards=found,
                steady=self._is_steady(),
                unanswered=self._unanswered(),
                unreported=self._undescribed_parts(),
            )
        except UnreachableError as error:
            log.warning("collector_silent", source=self.settings.name, error=str(error))
            return Missing(str(error))
        return self._last

    @property
    def unsaid(self) -> frozenset[Finding]:
        """Return hazards that were seen, and that no committed checkpoint has yet."""
        return frozenset(self._unsaid | self._missed)

    def remind(self, hazards: Iterable[Finding]) -> None:
        """Report *hazards* of the previous process again: perhaps no checkpoint has them."""
        self._missed |= set(hazards)

    def recorded(self, scope: CaptureScope) -> None:
        """Note that a committed checkpoint has all hazards of these lists."""
        self._unsaid -= set(scope.hazards)

    def _look(self) -> None:
        """Collect hazards from the server and the collector, to report them later.

        The server is the last one that was asked. A collector that hung is left out: each question
        to it would cost all sources its time-out.
        """
        asked: list[Callable[[], CaptureScope | None]] = [
            one.sends for one in self._servers.values()
        ]
        if not self._hangs:
            asked.append(self.collector.captures)
        for ask in asked:
            with suppress(SluiceError):
                scope = ask()
                self._missed |= set() if scope is None else set(scope.hazards)

    def _topic_findings(self) -> frozenset[Finding]:
        """Return hazards of topic settings; the last known ones if Kafka does not answer."""
        at = self.clock()
        if self.describe is not None and at - self._described >= TOPICS:
            self._described = at
            own, prefix = self.names, self.settings.prefix
            try:
                facts = [one for one in self.describe(self.topics) if self.claims(one.name)]
            except UnreachableError as error:
                log.warning("topics_not_described", source=own.source, error=str(error))
                self._answering = math.inf
                return self._of_topics
            self._answering = min(self._answering, at)
            self._note_undescribed(
                {one.name for one in facts if not one.is_described} - own.others, at
            )
            self._facts = {
                one.name: one if one.is_described else self._facts.get(one.name, one)
                for one in facts
            }
            found = find_topic_hazards(self._facts.values(), prefix, own.others, routed=own.routed)
            self._of_topics = frozenset(found)
        return self._of_topics

    def _note_undescribed(self, names: set[str], at: float) -> None:
        """Remember which topics Kafka does not describe; log each change."""
        before = {name for name, since in self._undescribed.items() if since == math.inf}
        if names != before:
            source, undescribed = self.settings.name, sorted(names)
            if undescribed:
                why = undescribed_text(undescribed)
                log.warning("topics_not_described", source=source, error=why, topics=undescribed)
            else:
                log.info("topics_described", source=source)
        self._undescribed = {
            **{name: min(since, at) for name, since in self._undescribed.items()},
            **dict.fromkeys(names, math.inf),
        }

    def _undescribed_parts(self) -> Callable[[Finding], frozenset[str]]:
        """Return the parts of a hazard whose topics Kafka has not described for long enough."""
        now, own = self.clock(), self.names
        self._undescribed = {
            n: since for n, since in self._undescribed.items() if now - since <= LINGER
        }
        names = frozenset(self._undescribed)
        return partial(
            undescribed_parts, undescribed=names, prefix=self.settings.prefix, routed=own.routed
        )

    def _lasting(self, now: Iterable[Finding]) -> tuple[Finding, ...]:
        """Keep hazards for a while after they are gone: tasks that started with them may continue.

        Keep them also until a checkpoint has them, however long no batch can be committed.
        """
        at = self.clock()
        seen = {*now, *self._missed}
        self._missed.clear()
        self._unsaid |= seen
        ends = dict.fromkeys(seen, math.inf)
        ends |= {one: min(gone, at) for one, gone in self._hazards.items() if one not in seen}
        kept = {one for one, gone in ends.items() if at - gone <= LINGER} | self._unsaid
        self._hazards = {one: gone for one, gone in ends.items() if one in kept}
        return tuple(self._hazards)

    def _is_steady(self) -> bool:
        """Return whether looks have lasted longer than a hazard is kept after it is gone."""
        at = self.clock()
        self._began = at if self._began is None else self._began
        return at - self._began > LINGER

    def _unanswered(self) -> frozenset[str]:
        """Return Kafka until it has described the topics for long enough.

        For other reporters one look is enough.
        """
        lately = self.clock() - self._answering <= LINGER
        return frozenset({WHERE} if self.describe is not None and lately else ())

    def head(self) -> Head | None:
        """Return the head of the connected server's log; None if the server does not answer."""
        try:
            return self.server().head()
        except UnreachableError:
            return None

    def connected(self) -> SourceSettings:
        """Return the settings with the address of the connected server.

        Raises:
            UnreachableError: the collector does not report the address.
        """
        if not self.settings.follow_collector:
            return self.settings
        return self.settings.at(*self.collector.address())

    def server(self) -> Source:
        """Return a client of the connected server; it is kept while the address stays the same.

        Raises:
            UnreachableError: the collector reads a server that the config does not name.
        """
        address = (self.settings.host, self.settings.port)
        if self.settings.follow_collector:
            try:
                address = self.collector.address()
            except UnreachableError:
                address = next(iter(self._servers), address)
        settings = self.settings.at(*address)
        if address not in self._servers:
            for left in self._servers.values():
                left.close()
            self._servers.clear()
            self._servers[address] = self.connect(settings)
        return self._servers[address]


PATIENCE = timedelta(seconds=20)  # the time-outs of a server and of a collector, and some more
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing:
    """One look at everything upstream.

    ``heads`` holds the heads before and after the ends were listed, for servers that answered both
    times. ``acknowledged`` was read before the ends were listed; sources that did not answer are
    absent. ``captures`` was read after ``acknowledged``: what was acknowledged was sent by these
    lists, or by earlier ones. A source that does not report its lists has no acknowledgement.
    ``hidden`` are topics that were read and that Sluice may not see any more, whether they exist or
    not. ``epoch_ends`` holds where the leader epoch of W ends, for partitions with another leader
    now. ``once`` are sources that never send a read change again.
    """

    heads: Mapping[str, tuple[Head, Head]]
    acknowledged: Mapping[str, Acknowledged]
    source_of: Mapping[str, str]
    beginnings: Mapping[TopicPartition, PartitionEnd]
    ends: Mapping[TopicPartition, PartitionEnd]
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    captures: Mapping[str, CaptureScope] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Before:
    """The answers of one feed before the ends are listed, in the order of the questions."""

    head: Head | None
    acknowledged: Acknowledged | Missing
    lists: CaptureScope | Missing


@dataclass(eq=False)
class Upstream:
    """Asks sources and collectors in parallel: one that hangs delays the others only once.

    An answer that is late for one listing is not used for the next, as the next ends may be newer.
    """

    feeds: Sequence[LandingSource]
    transport: Transport
    before: DeadlinePool[_Before]
    after: DeadlinePool[Head | None]
    _silent: dict[str, frozenset[str]] = field(default_factory=dict)
    _owners: Mapping[str, LandingSource | None] = field(default_factory=dict)  # of the last listing

    @classmethod
    def of(
        cls, feeds: Sequence[LandingSource], transport: Transport, clock: Callable[[], datetime]
    ) -> "Upstream":
        """Return an instance that waits for its feeds up to the sum of their own time-outs."""
        never = -timedelta.resolution
        return cls(
            feeds,
            transport,
            DeadlinePool(clock, never, PATIENCE),
            DeadlinePool(clock, never, PATIENCE / 2),
        )

    def list(self, w: Mapping[TopicPartition, PartitionEnd]) -> Listing:
        """Ask heads, acknowledgements, lists, ends, heads, in this order; *w* is what has landed.

        Raises:
            UnreachableError: Kafka did not answer.
            ConfigError: two sources claim one topic.
        """
        looks = {feed.settings.name: partial(_look, feed) for feed in self.feeds}
        reported = self._answered("before", self.before, looks)
        acknowledged = {
            name: one.acknowledged
            for name, one in reported.items()
            if isinstance(one.acknowledged, Acknowledged) and isinstance(one.lists, CaptureScope)
        }
        captures = {
            n: one.lists for n, one in reported.items() if isinstance(one.lists, CaptureScope)
        }
        source_of, beginnings, ends = self._listed()
        first = {name: one.head for name, one in reported.items() if one.head is not None}
        again = {f.settings.name: f.head for f in self.feeds if f.settings.name in first}
        later = self._answered("after", self.after, again)
        heads = {n: (first[n], head) for n, head in later.items() if head is not None}
        changed = {
            at: known.leader_epoch
            for at, end in ends.items()
            if (known := w.get(at)) is not None and 0 <= known.leader_epoch != end.leader_epoch
        }
        absent = {at.topic for at in w.keys() - ends.keys()}
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
        """Return the topic names of the source of *topic*; None if it belongs to no source."""
        feed = self._owner(topic)
        return None if feed is None else feed.names

    def _owner(self, topic: str) -> LandingSource | None:
        """Return the owner of *topic*; the patterns of all sources are tried once for each name."""
        known = self._owners
        return known[topic] if topic in known else find_owner(topic, self.feeds)

    def _answered(
        self, when: str, asking: DeadlinePool[T], questions: Mapping[str, Callable[[], T]]
    ) -> dict[str, T]:
        """Return the answers in time; log a silent source once, until it answers again.

        A source that was not asked has not answered yet.
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
        """Return the source of each topic, and where its partitions begin and end."""
        every = "|".join(f"(?:{feed.topics})" for feed in self.feeds)
        claims = {topic: self._owner(topic) for topic in self.transport.topics(every)}
        self._owners = claims
        mine = {topic: feed.settings.name for topic, feed in claims.items() if feed is not None}
        ends = self.transport.ends(sorted(mine))
        beginnings = self.transport.beginnings(sorted(mine))
        return mine, beginnings, {tp: end for tp, end in ends.items() if tp in beginnings}


def _look(feed: LandingSource) -> _Before:
    return _Before(feed.head(), feed.acknowledged(), feed.captures())


def find_owner(topic: str, feeds: Sequence[LandingSource]) -> LandingSource | None:
    """Return the owner of *topic*: of several sources that match, the one with the longest prefix.

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


def tell_gone(chosen: Plan, made: Checkpoint) -> None:
    """Log partitions that are gone, after the commit: a round without one would repeat the line."""
    for gap in chosen.doubts:
        if f"{gap.id}@{made.batch}" not in made.gaps:
            at = TopicPartition(gap.topic, gap.partition)
            what = f"{at} is gone; it had landed up to its end, {gap.first}"
            log.info("partition gone", lane=made.lane, batch=made.batch, what=what)


@dataclass(frozen=True, slots=True)
class Promise:
    """An acknowledgement, and the ends that were listed after it."""

    acknowledged: Acknowledged
    ends: Ends

    def broken(self, ends: Ends) -> bool:
        """Return whether W can never get there: a partition is gone, recreated or truncated."""
        return any(
            (now := ends.get(tp)) is None or now.topic_id != end.topic_id or now.offset < end.offset
            for tp, end in self.ends.items()
        )

    def kept(self, chosen: Plan) -> bool:
        """Return whether W has reached all ends once *chosen* has landed."""
        w = chosen.offsets
        return all(tp in w and w[tp].offset >= at.offset for tp, at in self.ends.items())


@dataclass(eq=False)
class Acknowledgements:
    """The oldest listing of each source that W has not reached, with the acknowledgement before it.

    ``_stale`` is the first acknowledgement in an epoch by a collector that names no transactions.
    It may be of the log before; a different one after it is not.
    """

    _waiting: dict[str, Promise] = field(default_factory=dict)
    _stale: dict[tuple[str, int], Acknowledged] = field(default_factory=dict)

    def passed(
        self, listing: Listing, chosen: Plan, checkpoint: Checkpoint, epochs: Mapping[str, Epoch]
    ) -> dict[str, Acknowledged]:
        """Return what counts once W has reached *chosen*; *checkpoint* is before, *epochs* now.

        A promise that can no longer be kept is replaced by one from this listing.
        """
        before = checkpoint.epochs
        moved = {n for n, e in epochs.items() if n not in before or before[n].number != e.number}
        for source, promise in list(self._waiting.items()):
            if source in moved or promise.broken(listing.ends):
                del self._waiting[source]
        for source in listing.acknowledged.keys() - moved - self._waiting.keys():
            if source in epochs and self._credible(source, listing, checkpoint, epochs[source]):
                self._waiting[source] = _promise(source, listing)
        found = {name: one for name, one in self._waiting.items() if one.kept(chosen)}
        for source in found:
            del self._waiting[source]
        return {source: promise.acknowledged for source, promise in found.items()}

    def _credible(
        self, source: str, listing: Listing, checkpoint: Checkpoint, epoch: Epoch
    ) -> bool:
        said = listing.acknowledged[source]
        heads = listing.heads.get(source)
        end = heads[1].position if heads else epoch.position
        if explain_overrun(said.position, end) is not None:
            return False
        both_name = names_transactions(said.position) and names_transactions(end)
        if epoch.number == 1 or source in checkpoint.acknowledged or both_name:
            return True
        if checkpoint.heartbeats.get(source, -1) <= epoch.heartbeat:
            return False  # nothing shows that the collector reads this log already
        return self._stale.setdefault((source, epoch.number), said) != said


def _promise(source: str, listing: Listing) -> Promise:
    own = {tp: end for tp, end in listing.ends.items() if listing.source_of[tp.topic] == source}
    return Promise(listing.acknowledged[source], own)


NEVER = float("-inf")


@dataclass(eq=False)
class CaptureNotices:
    """The notices and hazards of each source that checkpoints have, and its last answers."""

    _said: dict[str, float] = field(default_factory=dict)
    _hazards: dict[str, frozenset[Finding]] = field(default_factory=dict)
    _answers: Mapping[str, CaptureScope] = field(default_factory=dict)

    def unsaid(self, listing: Listing) -> Listing:
        """Return *listing* without the notices that a checkpoint has."""
        self._answers = listing.captures
        left = {n: one.after(self._said.get(n, NEVER)) for n, one in self._answers.items()}
        return replace(listing, captures=left)

    def is_due(self, checkpoint: Checkpoint) -> bool:
        """Return whether a notice or hazard is new and concerns a table that *checkpoint* knows."""
        news = {
            name
            for name, one in self._answers.items()
            if one.newest > self._said.get(name, NEVER) or self._unsaid_hazards(name)
        }
        return bool(news) and any(
            table is not None and self._is_news(shard)
            for shard, table in checkpoint.shards.items()
            if shard.source in news
        )

    def record(self, feeds: Iterable[LandingSource]) -> None:
        """Note that a committed batch records all of them, and report that to those of *feeds*."""
        self._said |= {name: one.newest for name, one in self._answers.items()}
        self._hazards |= {name: frozenset(one.hazards) for name, one in self._answers.items()}
        for feed in feeds:
            if feed.settings.name in self._answers:
                feed.recorded(self._answers[feed.settings.name])

    def _unsaid_hazards(self, source: str) -> set[Finding]:
        return set(self._answers[source].hazards) - self._hazards.get(source, frozenset())

    def _is_news(self, shard: Shard) -> bool:
        scope = self._answers[shard.source]
        began = NEVER if scope.broken is None else scope.broken.since
        seen = scope.replaced.get(ShardId.parse(shard.name), NEVER)
        if max(began, seen) > self._said.get(shard.source, NEVER):
            return True
        return any(one.affects(shard.name) for one in self._unsaid_hazards(shard.source))
