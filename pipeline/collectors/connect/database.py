"""Defines what differs between Debezium's connectors for kinds of database.

Each kind has a module in this package, named by the kind's config key, with its class as
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

USUAL = "mysql"  # the kind if a source names none
# Matches the drivers' settings for TLS and its sockets: Postgres, MySQL and MariaDB.
_TLS = re.compile("ssl|tls|trust|keystore|verif|certificate|servercert|socketfactory", re.I)


class ConnectedDatabase(Protocol):
    """One kind of database for Debezium's connectors; its module exports it as ``CONNECTED``.

    ``classes`` are the connector classes that Sluice supports; it registers the first.  ``port``
    is the database's default port.  ``lists`` is the word for the first part of a table's name in
    the names of the include lists: ``database`` or ``schema``.  Those in ``built_in`` are never
    sent.  ``pace`` are settings that Sluice sets but does not demand.  ``least`` are the versions
    before which a known defect of the connector loses changes.  ``verified`` are demands for a
    source that requires TLS; one of ``alternatives``, settings for TLS, is enough.  ``files`` are
    settings of the driver that name TLS files and passwords.
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
        """Settings that only this kind's connector has, without demands: names and own topics.

        Raises:
            ConfigError: the source's settings are incomplete.
        """
        ...

    def transforms(self, config: Mapping[str, str]) -> Mapping[str, str]:
        """Settings of the transforms that a connector with *config* needs before all others."""
        ...

    def own_transforms(self, config: Mapping[str, str]) -> Collection[str]:
        """Aliases in *config* that are those of ``transforms``, which change no row."""
        ...

    def hazards(self, config: Mapping[str, str], where: str) -> list[Finding]:
        """Findings on settings that drop, rewrite or delay changes, without ``demands``."""
        ...

    def findings(
        self, config: Mapping[str, str], source: SourceSettings, where: str
    ) -> list[Finding]:
        """Findings on *config*, hazards included, without ``demands``."""
        ...


def variable_reference(name: str, what: str) -> str:
    """Reference to the worker's variable for *what* of *name*, such as ``${env:SHOP_DATABASE_CA}``.

    The variable is an ASCII word that does not begin with a digit, so every shell can set it.
    """
    word = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII).upper()
    return f"${{env:{word}_{what}}}"


@cache
def database_of_kind(kind: str) -> ConnectedDatabase:
    """The database of *kind*; an empty *kind* means `USUAL`.

    Raises:
        ConfigError: the kind is unknown; the message lists the known ones.
    """
    return cast("ConnectedDatabase", plugins.find_class(connect, "CONNECTED", kind or USUAL)())


def every_database() -> tuple[ConnectedDatabase, ...]:
    """All databases that have a module in this package."""
    return tuple(database_of_kind(kind) for kind in plugins.list_keys(connect, "CONNECTED"))


def weakens_tls(name: str, database: ConnectedDatabase) -> bool:
    """Whether the setting *name* may make the driver trust other servers, despite the demands.

    Debezium passes ``database.*`` and ``driver.*`` to the JDBC driver, whose settings have no dots.
    """
    given, _, its = name.partition(".")
    demanded = {one.name for one in database.verified}
    passed = given == "driver" or (given == "database" and "." not in its)
    return passed and name not in database.files | demanded and bool(_TLS.search(its))


def database_of_connector(config: Mapping[str, str]) -> ConnectedDatabase:
    """The database of a connector with *config*, by its class; an unknown class means `USUAL`."""
    of = config.get("connector.class", "")
    return next((one for one in every_database() if of in one.classes), database_of_kind(USUAL))
