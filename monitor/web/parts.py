"""What do the routes answer from?  The parts of the application that was asked.

FastAPI reads a route's parameters once, when a router is made: so routers know no parts, and get
those of their application with each question.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, cast

from fastapi import Depends, Request

from monitor.bearers import Bearers
from monitor.board import CurrentBoard
from monitor.error_table import ErrorTable
from monitor.gate import Decision, Gate, GateQuestion
from monitor.lineage import Lineage
from monitor.nearest import alike
from monitor.right_of_way import RightOfWay
from monitor.store.store import ServiceStore
from monitor.web.scrape import Scrape
from monitor.web.server import most_connections
from monitor.web.trusted import Access
from monitor.web.waiting_room import WaitingRoom
from pipeline.errors import ConfigError, UnknownNameError
from pipeline.model import Table
from pipeline.sources.source import SourceArrivals

GateRoom = WaitingRoom[GateQuestion, Decision]


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the API answers from; ``estimates``: source -> about how many rows each shard has.

    ``errors`` reads what is quarantined, ``links`` which columns are which; None without a lake.
    ``arrivals`` are of sources whose rows come in partitions.
    """

    gate: Gate
    current: CurrentBoard
    store: ServiceStore
    clock: Callable[[], datetime]
    stopping: Callable[[], bool]
    access: Access = field(default_factory=Access)
    way: RightOfWay = field(default_factory=RightOfWay)
    estimates: Callable[[str], Mapping[str, int]] = lambda _: {}
    errors: ErrorTable | None = None
    links: Lineage | None = None
    arrivals: Mapping[str, SourceArrivals] = field(default_factory=dict)
    scrape: Scrape = field(init=False)

    def __post_init__(self) -> None:
        """Make the registry that Prometheus scrapes."""
        object.__setattr__(self, "scrape", Scrape(self.current, self.clock))

    def borne(self, name: str) -> bool:
        """Whether anything has this id now."""
        return Bearers(self.gate, self.store.outbox).bear(name)

    def table(self, name: str) -> Table:
        """The table of that name, to be written about.

        Raises:
            UnknownNameError: there is none now.
        """
        found = self.gate.roster.table(name)
        if found is None:
            raise UnknownNameError(f"no table {name!r}; nothing was recorded; {self._named(name)}")
        return found

    def require_known(self, name: str) -> None:
        """Refuse a name of which nothing is kept, unless it is that of a table, or was.

        Raises:
            UnknownNameError: there was never one; before anything has landed nobody can say so.
        """
        roster, retired = self.gate.roster, self.current.board.retired
        if roster.known and not roster.table(name) and name not in {one.table for one in retired}:
            raise UnknownNameError(f"no table {name!r}; {self._named(name)}")

    def _named(self, name: str) -> str:
        return f"known: {alike(name, [table.name for table in self.gate.roster.tables()])}"

    def error_table(self) -> ErrorTable:
        """What reads what is quarantined.

        Raises:
            ConfigError: there is none here.
        """
        if self.errors is None:
            raise ConfigError("this service reads no change log, so it knows of no error table")
        return self.errors

    def lineage(self) -> Lineage:
        """What reads which columns are which.

        Raises:
            ConfigError: there is none here.
        """
        if self.links is None:
            raise ConfigError("this service reads no change log, so it knows of no columns")
        return self.links

    def room(self) -> GateRoom:
        """A new room for those who wait at the gate."""
        gate = self.gate
        most = most_connections() // 2  # the others are for health checks and plain questions
        return GateRoom(
            lambda asked: gate.decide(*asked), self.way, gate.hopeful, self.stopping, most
        )


async def _parts(request: Request) -> ApiParts:
    return cast(ApiParts, request.app.state.parts)


async def _room(request: Request) -> GateRoom:
    return cast(GateRoom, request.app.state.room)


Parts = Annotated[ApiParts, Depends(_parts)]
Room = Annotated[GateRoom, Depends(_room)]
