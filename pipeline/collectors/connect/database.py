"""Defines what Debezium's connector for one kind of database has of its own.

Each kind has a module beside this one, named by the kind's config key, with its class as
`CONNECTED`. A kind that is defined elsewhere has the class in the module of its source.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import ClassVar, Protocol, cast

from pipeline import plugins
from pipeline.collectors import connect
from pipeline.collectors.collector import CollectionScope
from pipeline.collectors.connect.requirements import LeastVersion
from pipeline.finding import Demand, Finding
from pipeline.model import Acknowledged, Missing
from pipeline.settings import SourceSettings

USUAL = "mysql"  # where a source names no kind
# What the drivers of Postgres, MySQL and MariaDB call their settings for TLS and its sockets.
_TLS = re.compile("ssl|tls|trust|keystore|verif|certificate|servercert|socketfactory", re.I)


class ConnectedDatabase(Protocol):
    """One kind of database for Debezium's connectors; its module exports it as ``CONNECTED``.

    ``classes`` are those that Sluice reads, the one that it registers first.  ``lists`` names the
    outer part of a table's name as the lists of what is included call it; what is ``built_in`` of
    these is never sent.  ``pace`` holds settings that are wanted, and not demanded.  ``least``
    lists the versions before which a known defect of the connector loses changes.  ``verified`` is
    demanded of a source that must speak TLS; of ``alternatives``, settings for TLS, one is enough.
    ``files`` are its settings for TLS without dots that name files and passwords.
    """

    classes: ClassVar[tuple[str, ...]]
    port: ClassVar[int]
    lists: ClassVar[str]
    built_in: ClassVar[tuple[str, ...]]
    demands: ClassVar[tuple[Demand, ...]]
    pace: ClassVar[Mapping[str, str]]
    least: ClassVar[tuple[LeastVersion, ...]]
    verified: ClassVar[tuple[Demand, ...]]
    alternatives: ClassVar[frozenset[str]]
    files: ClassVar[frozenset[str]]

    def acknowledged(self, offset: Mapping[str, object]) -> Acknowledged | Missing | None:
        """Read a stored *offset*; None if it is not of this kind of database."""
        ...

    def settings(self, scope: CollectionScope) -> Mapping[str, str]:
        """What no other kind's connector has, beside demands: names, and topics of its own.

        Raises:
            ConfigError: the settings of the source lack something.
        """
        ...

    def transforms(self, config: Mapping[str, str]) -> Mapping[str, str]:
        """Settings of transforms that a connector with *config* needs before any others."""
        ...

    def own_transforms(self, config: Mapping[str, str]) -> Collection[str]:
        """Of the transforms in *config* those of ``transforms``, which change no row."""
        ...

    def hazards(self, config: Mapping[str, str], where: str) -> list[Finding]:
        """What in *config* drops, rewrites or delays changes, beside ``demands``."""
        ...

    def findings(
        self, config: Mapping[str, str], source: SourceSettings, where: str
    ) -> list[Finding]:
        """Findings on *config* beside ``demands``."""
        ...


def variable_reference(name: str, what: str) -> str:
    """Reference to the worker's variable for *what* of *name*, such as ``${env:SHOP_DATABASE_CA}``.

    Every shell can set it: a word of ASCII that begins with no digit.
    """
    word = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII).upper()
    return f"${{env:{word}_{what}}}"


@cache
def database_of_kind(kind: str) -> ConnectedDatabase:
    """What connectors for sources of *kind* have of their own, the usual one where it is empty.

    Raises:
        ConfigError: nothing is known of them; lists the kinds that are.
    """
    return cast("ConnectedDatabase", plugins.find_class(connect, "CONNECTED", kind or USUAL)())


def every_database() -> tuple[ConnectedDatabase, ...]:
    """All that lie here."""
    return tuple(database_of_kind(kind) for kind in plugins.list_keys(connect, "CONNECTED"))


def weakens_tls(name: str, database: ConnectedDatabase) -> bool:
    """Whether the setting of that *name* may say, past those demanded, whom the driver believes.

    Debezium hands ``database.*`` and ``driver.*`` to the JDBC driver, whose settings have no dots.
    """
    given, _, its = name.partition(".")
    demanded = {one.name for one in database.verified}
    passed = given == "driver" or (given == "database" and "." not in its)
    return passed and name not in database.files | demanded and bool(_TLS.search(its))


def database_of_connector(config: Mapping[str, str]) -> ConnectedDatabase:
    """The database that a connector with *config* reads, by its class."""
    of = config.get("connector.class", "")
    return next((one for one in every_database() if of in one.classes), database_of_kind(USUAL))
