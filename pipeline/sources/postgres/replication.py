"""Determines the database, publication and slot from which a source is replicated.

They come from the config of the source. Its collector is configured with the same names.
Import no driver here: connectors of other servers are examined without one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import ConfigError
from pipeline.settings import SourceSettings

Row = Mapping[str, Any]
"""A row of a result: values by column."""

PUBLICATION = "sluice"
LONGEST = 63  # bytes of a name; Postgres silently truncates longer ones


@dataclass(frozen=True, slots=True)
class Replication:
    """A database of the server, the publication that names its tables, and the connector's slot."""

    database: str
    publication: str
    slot: str


def read_replication(settings: SourceSettings) -> Replication:
    """The names in the options of a source's *settings*, or their defaults.

    Raises:
        ConfigError: no database is named, or Postgres does not accept the slot's name.
    """
    options = {name: str(settings.options.get(name) or "") for name in ("database", "slot")}
    if not options["database"]:
        raise ConfigError("options.database: is required; one source is one database of a server")
    publication = str(settings.options.get("publication") or PUBLICATION)
    return name_replication(settings.name, options["database"], publication, options["slot"])


def name_replication(source: str, database: str, publication: str, slot: str) -> Replication:
    """The names for the source called *source*; an empty *slot* means the default.

    Raises:
        ConfigError: Postgres does not accept the slot's name.
    """
    slot = slot or default_slot(source)
    if not re.fullmatch(rf"[a-z0-9_]{{1,{LONGEST}}}", slot):
        msg = f"options.slot: {slot!r} is not a valid slot name; use a-z, 0-9 and _"
        raise ConfigError(msg)
    return Replication(database, publication, slot)


def default_slot(source: str) -> str:
    """The slot of the source called *source*, unless the config names another."""
    return re.sub(r"[^a-z0-9_]", "_", f"sluice_{source.lower()}")[:LONGEST]
