"""One source as the landing loop sees it: its server, its collector, its topics, its format."""

import math
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import structlog

from pipeline.collectors.collector import Collector
from pipeline.collectors.mirrormaker import Mirrored
from pipeline.errors import SluiceError, UnreachableError
from pipeline.finding import Finding
from pipeline.formats.format import Format
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.topic_shards import TopicNames
from pipeline.model import Acknowledged, Capture, Head, Missing, both
from pipeline.schema.history import SchemaReading
from pipeline.schema.model import Dialect
from pipeline.settings import SourceSettings
from pipeline.sources.source import Source
from pipeline.transports.topics import (
    WHERE,
    TopicFacts,
    hazards,
    spelled,
    untold_parts,
    untold_text,
)

LINGER = 60.0  # seconds that a hazard is told for after the first look that did not see it
TOPICS = 30.0  # seconds from one look at the settings of its topics to the next
QUICK = 1.0  # seconds; who says within them that it cannot answer is there for another question
log = structlog.get_logger(__name__)

Describe = Callable[[str], Iterable[TopicFacts]]
"""Topics whose whole name fits a pattern, with their settings."""


@dataclass(eq=False)
class Feed:
    """Ask a source and its collector, turning silence into ``None`` or ``Missing``.

    The server asked is the one the *collector* is connected to: after a fail-over by
    reconfiguration the configured address may be the old server, whose log no longer matters.
    ``arrived`` is there if a mirror stands between the collector's topics and ours, ``registry`` if
    its format needs schemas.  ``describe`` tells of its topics.
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
    _last: Capture | None = None
    _silence: str = ""
    _hangs: bool = False  # the collector, when it was asked what it has handed over
    clock: Callable[[], float] = time.monotonic
    _hazards: dict[Finding, float] = field(default_factory=dict)  # seen -> when first not so
    _missed: set[Finding] = field(default_factory=set)  # by a look that was not answered whole
    _unsaid: set[Finding] = field(default_factory=set)  # seen, and in no committed mark yet
    _began: float | None = None  # of the looks of this life
    _described: float = -math.inf  # when the settings of its topics were asked for
    _answering: float = math.inf  # since when each time with an answer
    _of_topics: frozenset[Finding] = frozenset()
    _facts: dict[str, TopicFacts] = field(default_factory=dict)  # as each topic was told last
    _untold: dict[str, float] = field(default_factory=dict)  # topic -> since when told again

    @property
    def reading(self) -> SchemaReading:
        """How schema changes in its topics are read."""
        return SchemaReading(self.format.schema_change, self.dialect)

    @property
    def sent_once(self) -> bool:
        """Whether nothing of its log is sent again that was read; most formats say nothing."""
        return getattr(self.format, "sent_once", False)

    @cached_property
    def topics(self) -> str:
        """Regular expression for the whole name of each of its topics."""
        return self.settings.every_topic(self.format.added_topics(self.settings.prefix))

    @cached_property
    def names(self) -> TopicNames:
        """What they are called."""
        own, prefix = self.settings, self.settings.prefix
        others = {*self.format.added_topics(prefix), self.heartbeats}
        return TopicNames(own.name, prefix, frozenset(others), routed=bool(own.topics))

    @property
    def heartbeats(self) -> str:
        """The topic of the heartbeat's table, unless somebody routes it."""
        return f"{self.settings.prefix}.{spelled(self.settings.heartbeat)}"

    def claims(self, topic: str) -> bool:
        """Whether *topic* is one that this source's changes arrive in."""
        return re.fullmatch(self.topics, topic) is not None

    def acknowledged(self) -> Acknowledged | Missing:
        """What the collector has handed over and has come here; ``Missing`` if nobody says."""
        self._silence, asked = "", self.clock()
        try:
            return (self.arrived or self.collector).acknowledged()
        except UnreachableError as error:
            self._silence = str(error)
            self._hangs = self.arrived is None and self.clock() - asked > QUICK
            return Missing(str(error))

    @property
    def told(self) -> Capture | None:
        """Of which tables rows are sent, as was told last; None if it never was."""
        return self._last

    def captures(self) -> Capture | Missing:
        """The same as it and its server tell now; ``Missing`` if either is silent."""
        if self._silence:
            self._look()
            return Missing(self._silence)
        try:
            lists = self.collector.captures()
            self._missed |= set(lists.hazards)  # also if its server does not answer
            told = both(lists, self.server().sends())
            found = self._lasting((*told.hazards, *self._topics_told()))
            self._last = replace(
                told,
                hazards=found,
                steady=self._is_steady(),
                unanswered=self._unanswered(),
                untold=self._untold_parts(),
            )
        except UnreachableError as error:
            log.warning("collector_silent", source=self.settings.name, error=str(error))
            return Missing(str(error))
        return self._last

    @property
    def unsaid(self) -> frozenset[Finding]:
        """Hazards that were seen, and that no committed mark has yet."""
        return frozenset(self._unsaid | self._missed)

    def remind(self, hazards: Iterable[Finding]) -> None:
        """Tell *hazards*, which were seen in the life before: no mark may have them."""
        self._missed |= set(hazards)

    def recorded(self, told: Capture) -> None:
        """A mark is committed that has all hazards of what was *told*."""
        self._unsaid -= set(told.hazards)

    def _look(self) -> None:
        """Let those who may still answer notice what no log tells of; it is told later.

        They are the server that was asked last, and the collector, unless it may hang: each
        question would cost all sources its time-out.
        """
        asked: list[Callable[[], Capture | None]] = [one.sends for one in self._servers.values()]
        if not self._hangs:
            asked.append(self.collector.captures)
        for ask in asked:
            with suppress(SluiceError):
                told = ask()
                self._missed |= set() if told is None else set(told.hazards)

    def _topics_told(self) -> frozenset[Finding]:
        """What the settings of its topics drop; as told before where Kafka is silent or refuses."""
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
            self._note_untold({one.name for one in facts if not one.told} - own.others, at)
            self._facts = {
                one.name: one if one.told else self._facts.get(one.name, one) for one in facts
            }
            found = hazards(self._facts.values(), prefix, own.others, routed=own.routed)
            self._of_topics = frozenset(found)
        return self._of_topics

    def _note_untold(self, names: set[str], at: float) -> None:
        """Remember which topics Kafka does not describe; log each change."""
        before = {name for name, since in self._untold.items() if since == math.inf}
        if names != before:
            source, untold = self.settings.name, sorted(names)
            if untold:
                why = untold_text(untold)
                log.warning("topics_not_described", source=source, error=why, topics=untold)
            else:
                log.info("topics_described", source=source)
        self._untold = {
            **{name: min(since, at) for name, since in self._untold.items()},
            **dict.fromkeys(names, math.inf),
        }

    def _untold_parts(self) -> Callable[[Finding], frozenset[str]]:
        """What of a hazard is of topics that Kafka has not told of for long enough."""
        now, own = self.clock(), self.names
        self._untold = {n: since for n, since in self._untold.items() if now - since <= LINGER}
        names = frozenset(self._untold)
        return partial(untold_parts, untold=names, prefix=self.settings.prefix, routed=own.routed)

    def _lasting(self, now: Iterable[Finding]) -> tuple[Finding, ...]:
        """They are told for a while after they are gone: what was started by them may go on.

        And until a mark has them, however long no batch can be committed.
        """
        at = self.clock()
        seen = {*now, *self._missed}
        self._missed.clear()
        self._unsaid |= seen
        told = dict.fromkeys(seen, math.inf)
        told |= {one: min(gone, at) for one, gone in self._hazards.items() if one not in seen}
        kept = {one for one, gone in told.items() if at - gone <= LINGER} | self._unsaid
        self._hazards = {one: gone for one, gone in told.items() if one in kept}
        return tuple(self._hazards)

    def _is_steady(self) -> bool:
        """Whether it would have told by now what was gone at the first look of this life."""
        at = self.clock()
        self._began = at if self._began is None else self._began
        return at - self._began > LINGER

    def _unanswered(self) -> frozenset[str]:
        """Kafka, until it has told of the topics for long enough; of others one look is whole."""
        lately = self.clock() - self._answering <= LINGER
        return frozenset({WHERE} if self.describe is not None and lately else ())

    def head(self) -> Head | None:
        """Head of the connected server's log; None when it does not answer."""
        try:
            return self.server().head()
        except UnreachableError:
            return None

    def connected(self) -> SourceSettings:
        """The settings with the address of the connected server; UnreachableError if untold."""
        if not self.settings.follow_collector:
            return self.settings
        return self.settings.at(*self.collector.address())

    def server(self) -> Source:
        """A client of the connected server, kept while its address stays.

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
