r"""Of which tables does a connector of Debezium send the rows?  As its lists of patterns say.

The lists hold regular expressions of Java's between commas, each for a whole name, in letters of
any size; a comma within one is written ``\,``.  Debezium tells the schema of every table, captured
or not.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.collectors.connect.connected import read_by
from pipeline.collectors.connect.java_patterns import compiled_all
from pipeline.model import Capture, ShardId

TABLES = ("table.include.list", "table.exclude.list")
Patterns = tuple[re.Pattern[str], ...] | None
_BETWEEN_COMMAS = re.compile(r"(?:[^\\,]|\\.|\\$)+")


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A list that is absent is None.  One that cannot be read here lets nothing in.

    ``fault`` names that one, and says why.
    ``outer`` is about the outer part of a table's name: its database, or its schema.
    """

    outer: Patterns = None
    no_outer: Patterns = None
    tables: Patterns = None
    no_tables: Patterns = None
    built_in: tuple[str, ...] = ()
    fault: str = ""

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "TableFilter":
        """The filter of a connector with *config*."""
        database = read_by(config)
        found = list[Patterns]()
        for name in (*listed(database.lists), *TABLES):
            try:
                found.append(patterns(config.get(name, "")))
            except re.error as error:
                return cls(tables=(), fault=f"{name}: {error}")
        outer, no_outer, tables, no_tables = found
        return cls(outer, no_outer, tables, no_tables, database.built_in)

    def captures(self, shard: ShardId) -> bool:
        """Whether rows of *shard* are sent."""
        if shard.database.lower() in self.built_in:
            return False
        name = f"{shard.database}.{shard.relation}"
        inside = passes(shard.database, self.outer, self.no_outer)
        return inside and passes(name, self.tables, self.no_tables)


def listed(outer: str) -> tuple[str, str]:
    """Settings that include and exclude what is *outer*: ``database`` or ``schema``."""
    return f"{outer}.include.list", f"{outer}.exclude.list"


def capture(config: Mapping[str, str]) -> Capture:
    """Of which tables a connector with *config* sends the rows."""
    names = (*listed(read_by(config).lists), *TABLES)
    found, told = TableFilter.of(config), {name: config.get(name, "") for name in names}
    if found.fault:
        said_by = f"the collector's lists ({found.fault})"
        return Capture(found.captures, json.dumps(told), known=False, said_by=said_by)
    return Capture(found.captures, json.dumps(told))


def passes(name: str, include: Patterns, exclude: Patterns) -> bool:
    """Whether a list that includes, or one that excludes, lets *name* in."""
    if include is not None:
        return any(pattern.fullmatch(name) for pattern in include)
    return not any(pattern.fullmatch(name) for pattern in exclude or ())


def patterns(text: str) -> Patterns:
    """Read a list; None where it is empty.

    Raises:
        re.error: one of them cannot be read here.
    """
    if not text.strip():
        return None
    parts = _BETWEEN_COMMAS.findall(text)
    return compiled_all(part.strip().replace("\\,", ",") for part in parts if part.strip())
