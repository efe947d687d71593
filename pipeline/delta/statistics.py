"""Computes the file statistics of an `add`, and rejects Parquet files with legacy times.

Readers skip files by these bounds, so no value may be outside them, however a reader interprets
them. Times are in milliseconds, decimals are exact, long texts are truncated. If no such bound
exists, none is written. Column names are those in files.

Files of old Spark versions may have dates and times of the legacy calendar, or INT96 times that
wrap around outside the years 1677 to 2262. Only Spark reads them as intended.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.log import Metadata
from pipeline.delta.protocol import fields_in_files
from pipeline.delta.types import physical_name
from pipeline.errors import HeldError

_PREFIX = 32  # characters of a text in a bound, as in Spark
_LAST = "\U0010ffff"  # the highest character
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - only some columns have a time zone
_MILLISECOND = timedelta(milliseconds=1)
_COLUMNS = "delta.dataSkippingNumIndexedCols"
_NAMED = "delta.dataSkippingStatsColumns"
_NAME = re.compile(r"\s*((?:`(?:[^`]|``)*`|[^`,.\s][^,.`]*)(?:\.(?:`(?:[^`]|``)*`|[^,.`]+))*)\s*")
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")

Path = tuple[str, ...]


def collect_statistics(table: pa.Table, metadata: Metadata) -> dict[str, Any]:
    """Statistics of a new file with these rows, for columns that the table's properties select.

    *table* has all columns except partition columns, by their names in the table.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for logical, physical in _indexed(metadata):
        values = _column(table, logical)
        _put(nulls, physical, values.null_count)
        below, above = _bounds(values)
        if below is not None:
            _put(low, physical, below)
        if above is not None:
            _put(high, physical, above)
    return {
        "numRecords": table.num_rows,
        "minValues": low,
        "maxValues": high,
        "nullCount": nulls,
        "tightBounds": True,
    }


def encode_statistics(stats: Mapping[str, Any]) -> str:
    """Statistics as the JSON text of an ``add``; decimals keep all digits."""
    return msgspec.json.encode(_digits(stats)).decode()


def loosen_statistics(stats: Mapping[str, Any], records: int) -> dict[str, Any]:
    """Statistics of a file with a deletion vector: deleted rows may be the only ones at a bound."""
    return {**stats, "numRecords": records, "tightBounds": False}


def _indexed(metadata: Metadata) -> list[tuple[Path, Path]]:
    """Paths of the columns that get statistics, as pairs: in the table, in files."""
    leaves = [pair for one in fields_in_files(metadata) for pair in _leaves(one)]
    named = metadata.configuration.get(_NAMED)
    if named is not None:
        wanted = [_path(name) for name in _NAME.findall(named)]
        return [pair for pair in leaves if any(pair[0][: len(one)] == one for one in wanted)]
    number = int(metadata.configuration.get(_COLUMNS, "32"))
    return leaves if number < 0 else leaves[:number]


def _leaves(field: Mapping[str, Any]) -> Iterator[tuple[Path, Path]]:
    name, physical, kind = str(field["name"]), physical_name(field), field["type"]
    if not isinstance(kind, dict) or kind["type"] != "struct":
        yield (name,), (physical,)
        return
    for inner in kind["fields"]:
        for logical_path, physical_path in _leaves(inner):
            yield (name, *logical_path), (physical, *physical_path)


def _path(name: str) -> Path:
    return tuple(
        match[1].replace("``", "`") if match[1] is not None else match[2].strip()
        for match in _PART.finditer(name)
    )


def _column(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """Values of a column or struct field; a field of a NULL struct is NULL."""
    column = table[path[0]]
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _bounds(values: pa.ChunkedArray) -> tuple[Any, Any]:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())  # Arrow has no minimum of views
    kind = values.type
    if not _bounded(values):
        return None, None
    found = pc.min_max(values)
    if pa.types.is_timestamp(kind):
        return _instants(found, zoned=kind.tz is not None)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is None:
        return None, None
    if isinstance(low, str):
        return low[:_PREFIX], _above(high)
    if type(low) is date:
        return low.isoformat(), high.isoformat()
    return low, high


def _bounded(values: pa.ChunkedArray) -> bool:
    """Whether bounds exist: not for booleans, bytes, lists, NaN or infinity."""
    kind = values.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(values), min_count=0).as_py() is True
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    moment = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return bool(text or number or moment)


def _above(value: str) -> str | None:
    """A short text not below *value*: its prefix and the highest character; None if none exists."""
    if len(value) <= _PREFIX:
        return value
    return None if value[_PREFIX] == _LAST else value[:_PREFIX] + _LAST


def _instants(found: pa.StructScalar, *, zoned: bool) -> tuple[str | None, str | None]:
    """Bounds truncated to milliseconds, the upper one plus 1 ms; None outside years 1 to 9999."""
    low, high = (found[end].cast(pa.timestamp("us")).value for end in ("min", "max"))
    if low is None:
        return None, None
    below, above = _instant(low // 1_000), _instant(high // 1_000 + 1)
    suffix = "Z" if zoned else ""
    return (
        None if below is None else below + suffix,
        None if above is None else above + suffix,
    )


def _instant(milliseconds: int) -> str | None:
    try:
        at = _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return None
    return at.isoformat(timespec="milliseconds")


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _digits(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _digits(inner) for name, inner in value.items()}
    # not str(value), which may be 0E-10 for zero
    return msgspec.Raw(format(value, "f").encode()) if isinstance(value, Decimal) else value


_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def footer_fits(footer: Any, name: str) -> None:
    """Raise if the file has legacy dates or INT96 times; *footer* is pyarrow's.

    Raises:
        HeldError: ``file_format``, the message names the file and the column or Spark's key.
    """
    metadata = footer.metadata or {}
    for key in _LEGACY:
        if key in metadata:
            raise _refused(name, f"Spark wrote it with its legacy calendar ({key.decode()})")
    schema = footer.schema
    for i in range(len(schema)):
        column = schema.column(i)
        if column.physical_type == "INT96":
            raise _refused(name, f"column {column.path} holds INT96 times")


def _refused(name: str, why: str) -> HeldError:
    return HeldError(
        "file_format",
        f"{name}: {why}; rewrite the table in Spark with "
        "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS, or rebuild it",
    )
