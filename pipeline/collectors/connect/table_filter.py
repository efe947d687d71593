r"""Of which tables does a connector of Debezium send the rows?  As its lists of patterns say.

The lists hold regular expressions of Java's between commas, each for a whole name, in letters of
any size; a comma within one is written ``\,``.  Debezium tells the schema of every table, captured
or not.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.collectors.collector import Capture
from pipeline.collectors.connect.java_patterns import compiled
from pipeline.model import ShardId

BUILT_IN = ("mysql", "performance_schema", "sys", "information_schema")
Patterns = tuple[re.Pattern[str], ...] | None
_BETWEEN_COMMAS = re.compile(r"(?:[^\\,]|\\.|\\$)+")


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A list that is absent is None.  One that cannot be read here lets nothing in."""

    databases: Patterns = None
    no_databases: Patterns = None
    tables: Patterns = None
    no_tables: Patterns = None

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "TableFilter":
        """The filter of a connector with *config*."""
        try:
            return cls(*(patterns(config.get(name, "")) for name in _LISTS))
        except re.error:
            return NOTHING

    def captures(self, shard: ShardId) -> bool:
        """Whether rows of *shard* are sent."""
        if shard.database.lower() in BUILT_IN:
            return False
        name = f"{shard.database}.{shard.relation}"
        inside = passes(shard.database, self.databases, self.no_databases)
        return inside and passes(name, self.tables, self.no_tables)


NOTHING = TableFilter(tables=())
_LISTS = tuple(
    f"{what}.{how}.list" for what in ("database", "table") for how in ("include", "exclude")
)


def capture(config: Mapping[str, str]) -> Capture:
    """Of which tables a connector with *config* sends the rows."""
    found, told = TableFilter.of(config), {name: config.get(name, "") for name in _LISTS}
    return Capture(found.captures, json.dumps(told), known=found is not NOTHING)


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
    texts = (part.strip().replace("\\,", ",") for part in parts if part.strip())
    return tuple(compiled(text) for text in texts)
