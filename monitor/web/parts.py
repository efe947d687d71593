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
from monitor.right_of_way import RightOfWay
from monitor.store.store import ServiceStore
from monitor.web.scrape import Scrape
from monitor.web.trusted import Access
from monitor.web.waiting_room import WaitingRoom
from pipeline.errors import ConfigError
from pipeline.sources.arrivals import SourceArrivals

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
        return GateRoom(lambda asked: gate.decide(*asked), self.way, gate.hopeful, self.stopping)


async def _parts(request: Request) -> ApiParts:
    return cast(ApiParts, request.app.state.parts)


async def _room(request: Request) -> GateRoom:
    return cast(GateRoom, request.app.state.room)


Parts = Annotated[ApiParts, Depends(_parts)]
Room = Annotated[GateRoom, Depends(_room)]
