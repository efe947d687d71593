"""Counts rows of the change log by minute, table and op, where they are landed or merged anyway.

The minute is that of the change itself (`at`, as landed), in whole minutes since 1970 UTC. Landing
counts what it writes, and a merge counts what it read, each by its own rows. So a difference is a
row that one of them did not see. In the same way a merge counts the rows that it writes, and a copy
those that it applied.

In the change log only rows that came through a topic count. Rows that Sluice adds itself have none:
rows of a backfill, and the end of a base. Counts are text-keyed, because they are stored as JSON.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.model import Op

MinuteCounts = Mapping[str, Mapping[str, int]]
"""Minute (`NO_MINUTE` where a change has no time) -> op or term -> rows."""

Name = TypeVar("Name")

NO_MINUTE = ""
MOST_MINUTES = 500  # of one table in one batch or merge; larger counts are dropped, and are unknown
COUNTED_OPS = (
    Op.CREATE,
    Op.UPDATE,
    Op.DELETE,
    Op.READ,
    Op.TRUNCATE,
    Op.TOMBSTONE,
    Op.ERROR,
)
"""Ops of rows that a merge reads."""
_MINUTE = 60_000_000  # microseconds
_NO_TIME = np.iinfo(np.int64).min
MINUTES = _FIRST, _LAST = -1_035_593_280, 4_223_371_679
"""The first and the last minute of the years 1 to 9999, the range of a datetime."""


def count_minutes(rows: pa.Table) -> dict[str, dict[str, dict[str, int]]]:
    """Return table -> minute -> op -> rows that came through a topic.

    In: table, op, at, topic of ``CHANGES``. A row without a table does not count.
    """
    mask = pc.and_(
        pc.is_in(rows["op"], pa.array([str(op) for op in COUNTED_OPS], pa.string())),
        pc.and_(pc.is_valid(rows["table"]), pc.is_valid(rows["topic"])),
    )
    some = rows.select(["table", "op", "at"])
    some = some if pc.all(mask, min_count=0).as_py() else some.filter(mask)
    found: dict[str, dict[str, dict[str, int]]] = {}
    for table, op, minute, number in count_groups(some["table"], some["op"], minutes_of(some)):
        found.setdefault(table, {}).setdefault(minute_key(minute), {})[op] = number
    return found


def count_origins(origins: pa.ChunkedArray) -> dict[str, dict[str, int]]:
    """Return minute -> op -> rows, from the column ``_sluice``; op is empty where that is null."""
    ops = pc.fill_null(pc.struct_field(origins, "op").cast(pa.string()), "")
    minutes = minutes_of(pa.table({"at": pc.struct_field(origins, "at")}))
    found: dict[str, dict[str, int]] = {}
    for op, minute, number in count_groups(ops, minutes):
        found.setdefault(minute_key(minute), {})[op] = number
    return found


def count_groups(
    *columns: pa.Array | pa.ChunkedArray | npt.NDArray[np.int64],
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each group of equal rows, and the number of rows."""
    coded = [_encoded(pa.array(one) if isinstance(one, np.ndarray) else one) for one in columns]
    sizes = [len(one.dictionary) for one in coded]
    if not all(sizes):
        return
    # one number for each row: Arrow groups by three columns several times as slowly
    mixed = np.ravel_multi_index(tuple(one.indices.to_numpy() for one in coded), sizes)
    groups = pc.value_counts(pa.array(mixed))
    places = np.unravel_index(groups.field(0).to_numpy(), sizes)
    names = [one.dictionary.take(pa.array(at)) for one, at in zip(coded, places, strict=True)]
    yield from zip(*(one.to_pylist() for one in (*names, groups.field(1))), strict=True)


def _encoded(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    one = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return one.dictionary_encode()


def minutes_of(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return the minute of each row by its ``at``; see :func:`minute_key`.

    A time outside the years 1 to 9999 counts as no time.
    """
    times = pc.fill_null(rows["at"].cast(pa.int64()), _NO_TIME)
    found = np.asarray(times) // _MINUTE
    return np.where((found < _FIRST) | (found > _LAST), _NO_TIME, found)


def is_minute(minute: int) -> bool:
    """Whether *minute*, in whole minutes since 1970 UTC, is one of the years 1 to 9999."""
    return _FIRST <= minute <= _LAST


def minute_key(minute: int) -> str:
    """Return the key of a minute that :func:`minutes_of` found."""
    return NO_MINUTE if minute == _NO_TIME else str(minute)


def add_counts(counts: Iterable[MinuteCounts]) -> dict[str, dict[str, int]]:
    """Add up counts by minute and name."""
    found: dict[str, dict[str, int]] = {}
    for one in counts:
        for minute, named in one.items():
            found[minute] = add_named(found.get(minute, {}), named)
    return found


def add_named(*counts: Mapping[Name, int]) -> dict[Name, int]:
    """Add up counts by name."""
    found: dict[Name, int] = {}
    for one in counts:
        for name, number in one.items():
            found[name] = found.get(name, 0) + number
    return found


def add_tables(tables: Iterable[Mapping[str, MinuteCounts]]) -> dict[str, MinuteCounts]:
    """Add up counts by table."""
    parts: dict[str, list[MinuteCounts]] = {}
    for one in tables:
        for table, counts in one.items():
            parts.setdefault(table, []).append(counts)
    return {table: add_counts(own) for table, own in parts.items()}


def parse_counts(stored: object) -> dict[str, dict[str, int]] | None:
    """Check stored counts and return them; None if they are not valid."""
    if not isinstance(stored, dict):
        return None
    for minute, own in stored.items():
        dated = minute == NO_MINUTE or (
            minute.removeprefix("-").isdecimal() and is_minute(int(minute))
        )
        if not dated or not isinstance(own, dict):
            return None
        if not all(type(rows) is int and name.isprintable() for name, rows in own.items()):
            return None
    return stored


def bounded(counts: MinuteCounts | None) -> MinuteCounts | None:
    """Return *counts* if they are few enough to be stored, else None (unknown)."""
    return None if counts is None or len(counts) > MOST_MINUTES else counts
