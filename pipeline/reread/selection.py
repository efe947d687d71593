"""Which rows of a shard are wished for, and in which stretches are they read?

First its ranges, a stretch each, then its keys, all in one; without either the whole shard along
its key.  What a task gets is worked out anew each time: the mark remembers no keys.  Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import starmap

from pipeline.backfill_state import KeyStretch, RowsWished, WishedKey, WishedRange, WishedReread
from pipeline.errors import ConfigError
from pipeline.model import Shard, Table
from pipeline.sources.row_reader import KeyTexts


@dataclass(frozen=True, slots=True)
class StretchRows:
    """What one stretch asks for: rows under ``keys``, or of ``span``; None: whatever is there."""

    keys: tuple[str, ...] = ()
    span: tuple[int, int] | None = None


def stretches(
    wish: WishedReread, shard: Shard, table: Table, bounds: Callable[[], Sequence[KeyTexts]]
) -> tuple[KeyStretch, ...]:
    """Where reading begins and ends; none if no row of *shard* is wished for.

    Raises:
        ConfigError: ranges are asked for of a table whose key is not one integer.
    """
    rows = wish.rows
    if not rows.some:
        cuts = tuple(bounds())
        return tuple(starmap(KeyStretch, zip((*cuts, None), (None, *cuts), strict=True)))
    if rows.ranges and table.key != (table.id_column,):
        msg = f"the key of {table.name} is not one integer column, so it has no ranges"
        raise ConfigError(f"{msg}; name the keys (--keys)")
    found = [KeyStretch((str(one.last),), (str(one.first - 1),)) for one in _ranges(rows, shard)]
    return (*found, KeyStretch()) if _keys(rows, shard) else tuple(found)


def stretch_rows(wish: WishedReread, shard: Shard, number: int) -> StretchRows:
    """What the stretch of that *number* asks for."""
    ranges = _ranges(wish.rows, shard)
    if not wish.rows.some:
        return StretchRows()
    if number < len(ranges):
        return StretchRows(span=(ranges[number].first, ranges[number].last))
    return StretchRows(tuple(one.values for one in _keys(wish.rows, shard)))


def require_few(wish: WishedReread, rows: int) -> None:
    """Refuse what has come to more rows than its wish allows.

    Raises:
        ConfigError: says how many, and what now.
    """
    most = wish.rows.most
    if most is not None and rows > most:
        msg = f"{rows} rows or more of {wish.table} are asked for, {most} may be (--most)"
        raise ConfigError(f"{msg}; ask for fewer, or take a new base: sluice bootstrap")


def _ranges(rows: RowsWished, shard: Shard) -> tuple[WishedRange, ...]:
    return tuple(one for one in rows.ranges if one.shard in ("", str(shard)))


def _keys(rows: RowsWished, shard: Shard) -> tuple[WishedKey, ...]:
    return tuple(one for one in rows.keys if one.shard in ("", str(shard)))
