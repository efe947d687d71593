"""Checks that a JSON lines, CSV or Parquet file is complete, and reads its columns and rows.

JSON lines and CSV may be compressed with gzip. The digest is that of the bytes as stored. A file is
opened once and identified by its descriptor from then on. Another file that takes its name
meanwhile is a different file.

The columns of a log only grow. A column that is missing in a file remains, and is null in its rows.
A column that has another type in a file keeps its earlier type. A value that does not fit that type
is held with its row, and never guessed.

The key of a message is its head, as JSON. All rows of a file share one head, and each row is the
value of its own message.
"""

import base64
import errno
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from pipeline.files.layout import PACKED, FileStamp

CHUNK = 2**20
UNREADABLE = (
    *(pa.ArrowException, ValueError, msgspec.MsgspecError, RecursionError),
    *(ArithmeticError, NotImplementedError, TypeError),  # values that Python cannot represent
    *(EOFError, zlib.error),  # of a compressed file
)
ROWS = 10_000
LONGEST = 16 * 2**20  # bytes of a row as text
SHORT = 40  # longest text of a number or a time
MOST_COLUMNS = 1_500  # of a file whose rule does not name its columns
OUTSIDE = "it is a link to a file outside of its log's folder; write a copy in place of the link"


@dataclass(frozen=True, slots=True)
class WholeFile:
    """The content of a complete file; ``columns`` are names and types as in the file."""

    stamp: FileStamp
    digest: str
    rows: int
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnfinishedFile:
    """A file that is not complete, or not yet; ``why`` is the reason."""

    why: str


@dataclass(frozen=True, slots=True)
class _Contents:
    rows: int
    columns: Mapping[str, str]


def empty_file(stamp: FileStamp) -> WholeFile:
    """Return what was read of a file without a byte."""
    return WholeFile(stamp, blake2b(digest_size=16).hexdigest(), 0, {})


def open_file(path: Path, base: Path) -> IO[bytes]:
    """Open a file below *base*.

    A folder directly below *base* may be a link, because logs may be on disks of their own. The
    open file itself is checked, so no link can change between the check and the reading.

    Raises:
        PermissionError: a link leads to a file outside of both folders.
        OSError: it cannot be opened.
    """
    file = path.open("rb")
    real = Path(f"/proc/self/fd/{file.fileno()}").readlink()
    log, *below = path.relative_to(base).parts
    roots = (base, base / log) if below else (base,)
    if not any(real.is_relative_to(one.resolve()) for one in roots):
        file.close()
        raise PermissionError(errno.EACCES, OUTSIDE)
    return file


def examine_file(path: Path, kind: str, base: Path, *, named: bool) -> WholeFile | UnfinishedFile:
    """Read a file of *kind* from start to end; ``columns`` are not read if *named* elsewhere.

    Raises:
        OSError: it cannot be read.
    """
    with open_file(path, base) as file:
        before = FileStamp.of(os.fstat(file.fileno()))
        try:
            found = KINDS[kind.removesuffix(PACKED)][0](_unpacked(file, kind), named)
        except (*UNREADABLE, OSError) as error:
            if _of_the_disk(error):
                raise
            return UnfinishedFile(_first_line(error))
        if isinstance(found, UnfinishedFile):
            return found
        digest = digest_of(file)
        if FileStamp.of(os.fstat(file.fileno())) != before or _other(path, before):
            return UnfinishedFile("it changed while it was read")
    return WholeFile(before, digest, found.rows, found.columns)


def digest_of(file: IO[bytes], size: int = sys.maxsize) -> str:
    """Return a digest of the bytes of an open file, or of its first *size* bytes.

    It does not move the position of the file, because Arrow reads ahead in it.
    """
    made, at = blake2b(digest_size=16), 0
    while block := os.pread(file.fileno(), min(CHUNK, size - at), at):
        made.update(block)
        at += len(block)
    return made.hexdigest()


def read_file_rows(file: IO[bytes], kind: str, first: int, until: int) -> Iterator[list[bytes]]:
    """Yield rows ``[first, until)`` of an open file as JSON texts, some at a time.

    A row of JSON lines is its line, even if that is no JSON.

    Raises:
        ValueError: the part that is read is not of *kind* any more.
    """
    file.seek(0)
    try:
        yield from KINDS[kind.removesuffix(PACKED)][1](_unpacked(file, kind), first, until)
    except (*UNREADABLE, OSError) as error:
        if _of_the_disk(error):
            raise
        raise ValueError(_first_line(error)) from error


def _unpacked(file: IO[bytes], kind: str) -> IO[bytes]:
    """Return a file of the uncompressed bytes; it can be read from the start several times."""
    if not kind.endswith(PACKED):
        return file
    if kind == f"parquet{PACKED}":
        raise ValueError(
            f"Parquet in {PACKED} is not read; write it uncompressed, as Parquet compresses itself"
        )
    return cast("IO[bytes]", io.BufferedReader(gzip.GzipFile(fileobj=file), CHUNK))


def _of_the_disk(error: BaseException) -> bool:
    """Return whether the disk raised it: Arrow's OSError for bad bytes has no error number."""
    return isinstance(error, OSError) and error.errno is not None


def _other(path: Path, known: FileStamp) -> bool:
    """Return whether another file has taken its name, or none has it."""
    try:
        return path.stat().st_ino != known.inode
    except FileNotFoundError:
        return True


def _lines(file: IO[bytes], named: bool) -> _Contents | UnfinishedFile:
    """Examine JSON lines: the last line must have a line end, or be a whole object."""
    count, line, fields = 0, b"\n", dict[str, str]()
    for line in _bounded_lines(file):
        count += 1
        if not named:
            _learn(fields, line)
    if not line.endswith(b"\n") and _object(line) is None:
        return UnfinishedFile(f"its last line, the {count}th, is no whole JSON object")
    return _Contents(count, {name: kind or "string" for name, kind in fields.items()})


def _learn(fields: dict[str, str], line: bytes) -> None:
    """Add the types of a line's fields; a field with different types in two lines is a text."""
    for name, value in (_object(line) or {}).items():
        known, kind = fields.get(name), _type_of(value)
        if known is None and len(fields) == MOST_COLUMNS:
            raise ValueError(
                f"its field {name[:60]!r} is one more than {MOST_COLUMNS:,} columns; write keys as"
                " values, or name the columns with `columns:`"
            )
        if known is None or known == "":
            fields[name] = kind
        elif kind not in ("", known):
            both = {known, kind}
            fields[name] = "double" if both == {"bigint", "double"} else "string"


def _type_of(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -(2**63) <= value < 2**63 else "string"
    return "double" if isinstance(value, float) else "string"


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        return _OBJECT.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _json_rows(file: IO[bytes], first: int, until: int) -> Iterator[list[bytes]]:
    some, size = list[bytes](), 0
    for line in islice(_bounded_lines(file), first, until):
        some.append(line)
        size += len(line)
        if len(some) >= ROWS or size >= LONGEST:
            yield some
            some, size = [], 0
    if some:
        yield some


def _bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines of bounded length: a compressed file of some kB may hold a line of many GB."""
    for number, line in enumerate(iter(partial(file.readline, LONGEST + 1), b""), start=1):
        if len(line) > LONGEST:
            raise ValueError(f"line {number} is larger than {LONGEST // 2**20} MiB; shorten it")
        yield line


def _csv(file: IO[bytes], named: bool) -> _Contents | UnfinishedFile:
    """Examine CSV with a header: the last row must end, and all must have as many fields."""
    quotes, last = _quotes(file)
    if last != b"\n":
        return UnfinishedFile("its last row has no line end; finish the file, or add the line end")
    if quotes % 2:
        return UnfinishedFile(
            "a quoted field has no closing quote; finish the file, or add the quote"
        )
    reader = _csv_reader(file)
    return _Contents(
        sum(len(batch) for batch in reader), dict.fromkeys(reader.schema.names, "string")
    )


def _quotes(file: IO[bytes]) -> tuple[int, bytes]:
    """Return the number of quotes in it, and its last byte."""
    count, last = 0, b""
    while block := file.read(CHUNK):
        count, last = count + block.count(b'"'), block[-1:]
    return count, last


def _csv_reader(file: IO[bytes]) -> pa_csv.CSVStreamingReader:
    file.seek(0)
    names = pa_csv.open_csv(file, read_options=pa_csv.ReadOptions(block_size=LONGEST)).schema.names
    if len(set(names)) != len(names):
        raise ValueError("two columns of its header have one name")
    file.seek(0)
    return pa_csv.open_csv(
        file,
        read_options=pa_csv.ReadOptions(block_size=LONGEST),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


def _csv_rows(file: IO[bytes], first: int, until: int) -> Iterator[list[bytes]]:
    return _of_batches(iter(_csv_reader(file)), first, until)


def _parquet(file: IO[bytes], named: bool) -> _Contents:
    """Examine Parquet: its footer must exist, and all that it names must be readable."""
    found = pq.ParquetFile(file)
    names = found.schema_arrow.names
    if len(set(names)) != len(names):
        raise ValueError("two of its columns have one name; rename one")
    count = sum(len(batch) for batch in _parquet_batches(file, found.schema))
    if count != found.metadata.num_rows:
        raise ValueError(f"it holds {count} rows, and its footer says {found.metadata.num_rows}")
    return _Contents(count, {one.name: _lake_type(one.type) for one in found.schema_arrow})


def _parquet_rows(file: IO[bytes], first: int, until: int) -> Iterator[list[bytes]]:
    return _of_batches(_parquet_batches(file, pq.ParquetFile(file).schema), first, until)


def _parquet_batches(file: IO[bytes], schema: pq.ParquetSchema) -> Iterator[pa.RecordBatch]:
    """Yield batches whose rows as text have about ``LONGEST`` bytes at most, or one row.

    A file of 250 bytes may name one value of 100 kB in 10,000 rows, so values stay in dictionaries.

    Raises:
        ValueError: a row may be larger than ``LONGEST``.
    """
    leaves = [schema.column(n) for n in range(len(schema))]
    named = [one.path for one in leaves if one.physical_type == "BYTE_ARRAY" and _is_text(one)]
    fixed = sum(one.length for one in leaves if one.physical_type == "FIXED_LEN_BYTE_ARRAY")
    rows = max(1, min(ROWS, LONGEST // max(1, fixed)))
    for batch in pq.ParquetFile(file, read_dictionary=named).iter_batches(rows):
        longest = sum(map(_longest_value, batch.columns))
        if longest > LONGEST:
            raise ValueError(f"a row is larger than {LONGEST // 2**20} MiB; shorten it")
        step = max(1, LONGEST // max(1, longest))
        yield from (batch.slice(at, step) for at in range(0, len(batch), step))


def _is_text(leaf: Any) -> bool:
    return str(leaf.logical_type.type) in ("NONE", "STRING", "JSON", "BSON", "ENUM")


def _longest_value(values: pa.Array) -> int:
    """Return an upper bound of the bytes of a value as text; for lists, that of the longest."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _longest_value(values.dictionary)
    if pa.types.is_struct(kind):
        return sum(map(_longest_value, values.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = values.offsets.to_numpy()
        parts = [values.keys, values.items] if pa.types.is_map(kind) else [values.values]
        return int(np.diff(offsets).max(initial=0)) * sum(map(_longest_value, parts))
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return int(pc.max(pc.binary_length(values)).as_py() or 0)
    return max(SHORT, kind.byte_width) if pa.types.is_fixed_size_binary(kind) else SHORT


def _of_batches(batches: Iterator[pa.RecordBatch], first: int, until: int) -> Iterator[list[bytes]]:
    start = 0
    for batch in batches:
        end = start + len(batch)
        if end > first:
            own = batch.slice(max(first - start, 0), min(until, end) - max(first, start))
            yield [_ENCODER.encode(row) for row in _spelled(own)]
        start = end
        if start >= until:
            return


def _spelled(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return its rows; NaN and infinite numbers are texts, as JSON has no such numbers."""
    found: list[dict[str, Any]] = batch.to_pylist()
    for field in batch.schema:
        if not pa.types.is_floating(field.type):
            continue
        column = batch[field.name]
        for at in pc.indices_nonzero(pc.invert(pc.is_finite(column))).to_pylist():
            found[at][field.name] = _ODD.get(str(found[at][field.name]))
    return found


def _lake_type(kind: pa.DataType) -> str:
    """Return the mirror's type for a type of Parquet; string if it has no such type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})" if kind.precision <= 38 else "string"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    for known, name in _TYPES.items():
        if kind == known:
            return name
    return "string"


def _written(value: object) -> object:
    """Return a JSON value for a type that JSON does not have."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value / timedelta(microseconds=1))
    raise NotImplementedError(type(value).__name__)


def _first_line(error: BaseException) -> str:
    """Return what is wrong, without the row that Arrow includes in its message."""
    text = _SHOWN.sub(r"\1", str(error))
    return (text.splitlines() or [type(error).__name__])[0][:300]


_ODD = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_SHOWN = re.compile(r"(columns, got \d+):.*", re.DOTALL)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder(enc_hook=_written, decimal_format="string")
_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}
Examine = Callable[[IO[bytes], bool], _Contents | UnfinishedFile]
Rows = Callable[[IO[bytes], int, int], Iterator[list[bytes]]]
KINDS: Mapping[str, tuple[Examine, Rows]] = {
    "json_lines": (_lines, _json_rows),
    "csv": (_csv, _csv_rows),
    "parquet": (_parquet, _parquet_rows),
}


class RowsHead(msgspec.Struct, tag="rows", frozen=True):
    """Rows of a file; ``first`` is the offset of its first row, ``at`` when it was written.

    ``at`` is in microseconds since 1970, by the clock of the file server.
    """

    shard: str
    file: str
    day: str
    hour: str
    first: int
    at: int
    key: tuple[str, ...] = ()


class ColumnsHead(msgspec.Struct, tag="columns", frozen=True):
    """Columns that a log has from here on, by name and type; ``kind`` as in `TableDescription`."""

    shard: str
    kind: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]


class HeartbeatHead(msgspec.Struct, tag="beat", frozen=True):
    """Heartbeat ``n``: all files that existed when it was requested are before it in the ledger."""

    shard: str
    source: str
    n: int


class FaultHead(msgspec.Struct, tag="fault", frozen=True):
    """A file that was not taken, or was changed or deleted since, and why."""

    shard: str
    file: str
    why: str


MessageHead = RowsHead | ColumnsHead | HeartbeatHead | FaultHead
_HEAD: msgspec.json.Decoder[MessageHead] = msgspec.json.Decoder(MessageHead)
FILE, LINE, DAY, HOUR = "_file", "_line", "_day", "_hour"
ADDED: tuple[tuple[str, str], ...] = (
    (FILE, "string"),
    (LINE, "bigint"),
    (DAY, "date"),
    (HOUR, "int"),
)
"""Columns that are added to each row: its position in the files."""


def encode_head(head: MessageHead) -> bytes:
    """Return the key of its message."""
    return msgspec.json.encode(head)


def decode_head(key: bytes | None) -> MessageHead:
    """Return the head that `encode_head` wrote.

    Raises:
        ValueError: *key* is no such head.
    """
    if key is None:
        raise ValueError("a message of a file needs a key")
    return _HEAD.decode(key)


def own_key(key: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that identify a row: those of its log's rule, else its position."""
    return tuple(key) or (FILE, LINE)


def grow_columns(
    shard: str, known: ColumnsHead | None, found: Mapping[str, str], key: Sequence[str]
) -> ColumnsHead | None:
    """Return the columns from a file on; *found* are its own. None if nothing changed."""
    if known is None:
        every = (*((name, kind) for name, kind in found.items() if name not in _OWN), *ADDED)
        return ColumnsHead(shard, "create", every, own_key(key))
    names = {name for name, _ in known.columns}
    new = tuple((name, kind) for name, kind in found.items() if name not in names)
    if not new and known.key == own_key(key):
        return None
    return ColumnsHead(shard, "alter", (*known.columns, *new), own_key(key))


_OWN = {name for name, _ in ADDED}
