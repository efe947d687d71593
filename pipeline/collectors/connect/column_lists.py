"""Which columns does a connector of Debezium leave out, or send otherwise than its source has them?

As its settings say: lists of patterns as those of tables are, each for ``database.table.column``
(Postgres: ``schema.table.column``).  A list that cannot be read here is taken to mean every column.
The names of some settings hold a salt, which is told to nobody.  Pure.
"""

import re
from collections.abc import Callable, Mapping

from pipeline.collectors.connect.table_filter import Patterns, patterns

INCLUDED, EXCLUDED = "column.include.list", "column.exclude.list"
CHANGING = ("column.mask.", "column.truncate.to.")
EVERY = (re.compile(".*", re.DOTALL),)


def altering(config: Mapping[str, str]) -> Callable[[str], str] | None:
    """What tells of a column which setting it is altered by, empty if none; None without any."""
    lists = [(EXCLUDED, _read(config.get(EXCLUDED, ""), EVERY))]
    for begins in CHANGING:
        own = [text for name, text in config.items() if name.startswith(begins)]
        lists += [(f"{begins}*", _read(text, EVERY)) for text in own]
    included = _read(config.get(INCLUDED, ""), ())
    named = [(name, some) for name, some in lists if some is not None]
    if not named and included is None:
        return None

    def told(column: str) -> str:
        for name, some in named:
            if any(pattern.fullmatch(column) for pattern in some):
                return name
        left_out = included is not None and not any(one.fullmatch(column) for one in included)
        return INCLUDED if left_out else ""

    return told


def _read(text: str, otherwise: Patterns) -> Patterns:
    try:
        return patterns(text)
    except re.error:
        return otherwise
