"""What a stand stands on: servers, the shop's own among them, and how its rows are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from demo.connect import Connect
from demo.kafka import Kafka
from demo.oracle.rows import Source, read_sources
from demo.servers import Servers
from demo.shop.link import Address
from demo.shop.schema import MIRRORS
from demo.shop.server import ShopServer
from demo.story.service import whereabouts


class Site(Protocol):
    """Servers that are started and stopped as one."""

    @property
    def kafka(self) -> Kafka: ...
    @property
    def connect(self) -> Connect: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class System(Protocol):
    """Named when it is made; nothing is started."""

    @property
    def site(self) -> Site: ...
    @property
    def address(self) -> ShopServer: ...
    @property
    def environment(self) -> Mapping[str, str]:
        """Where the servers are, as the service's config asks for it."""
        ...

    def sources(self) -> dict[str, Source]:
        """What the shop holds now, by mirror."""
        ...


@dataclass(frozen=True)  # without slots: its servers are named once
class MySQLSystem:
    """The demo's."""

    home: Path

    @cached_property
    def site(self) -> Servers:
        return Servers.create(self.home)

    @property
    def address(self) -> Address:
        return Address(self.site.mysql.host, self.site.mysql.port)

    @property
    def environment(self) -> Mapping[str, str]:
        return whereabouts(self.site)

    def sources(self) -> dict[str, Source]:
        return read_sources(self.address, MIRRORS)
