"""One source as the landing loop sees it: its server, its collector, its topics, its format."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import structlog

from pipeline.errors import UnreachableError
from pipeline.formats.format import Format
from pipeline.model import Acknowledged, Head, Missing, ShardId
from pipeline.schema.dialect import Dialect
from pipeline.schema.reading import SchemaReading
from pipeline.settings import SourceSettings

log = structlog.get_logger(__name__)


class Server(Protocol):
    """The connected database server."""

    def head(self) -> Head:
        """Identity and position of its log now."""
        ...


class FeedCollector(Protocol):
    """What reads the server's log into topics."""

    def acknowledged(self) -> Acknowledged | Missing:
        """What it has durably handed over."""
        ...

    def address(self) -> tuple[str, int]:
        """Host and port of the server it is connected to."""
        ...

    def captures(self) -> Callable[[ShardId], bool]:
        """Says of a table whether its rows are sent."""
        ...


class Arrived(Protocol):
    """What knows how much of a collector's work has come through a mirror."""

    def acknowledged(self) -> Acknowledged | Missing:
        """What was handed over durably, and carried here."""
        ...


@dataclass(eq=False)
class Feed:
    """Ask a source and its collector, turning silence into ``None`` or ``Missing``.

    The server asked is the one the *collector* is connected to: after a fail-over by
    reconfiguration the configured address may be the old server, whose log no longer matters.
    ``arrived`` is there if a mirror stands between the collector's topics and ours.
    """

    settings: SourceSettings
    collector: FeedCollector
    format: Format
    connect: Callable[[SourceSettings], Server]
    dialect: Dialect
    arrived: Arrived | None = None
    _servers: dict[tuple[str, int], Server] = field(default_factory=dict)
    _captures: Callable[[ShardId], bool] | None = None

    @property
    def reading(self) -> SchemaReading:
        """How schema changes in its topics are read."""
        return SchemaReading(self.format.schema_change, self.dialect)

    @cached_property
    def topics(self) -> str:
        """Regular expression for the whole name of each of its topics."""
        return self.settings.every_topic(self.format.added_topics(self.settings.prefix))

    def claims(self, topic: str) -> bool:
        """Whether *topic* is one that this source's changes arrive in."""
        return re.fullmatch(self.topics, topic) is not None

    def acknowledged(self) -> Acknowledged | Missing:
        """What the collector has handed over and has come here; ``Missing`` if nobody says."""
        try:
            return (self.arrived or self.collector).acknowledged()
        except UnreachableError as error:
            return Missing(str(error))

    def captured(self, shards: Iterable[str]) -> frozenset[str]:
        """Those of *shards* whose rows the collector sends, by what it told last; or none."""
        try:
            self._captures = self.collector.captures()
        except UnreachableError as error:
            log.warning("collector_silent", source=self.settings.name, error=str(error))
        if self._captures is None:
            return frozenset()
        return frozenset(one for one in shards if self._captures(ShardId.parse(one)))

    def head(self) -> Head | None:
        """Head of the connected server's log; None when it does not answer."""
        try:
            return self.server().head()
        except UnreachableError:
            return None

    def server(self) -> Server:
        """A client of the connected server, kept while its address stays."""
        address = (self.settings.host, self.settings.port)
        if self.settings.follow_collector:
            try:
                address = self.collector.address()
            except UnreachableError:
                address = next(iter(self._servers), address)
        if address not in self._servers:
            self._servers.clear()
            host, port = address
            self._servers[address] = self.connect(replace(self.settings, host=host, port=port))
        return self._servers[address]
