"""Converts Avro messages to JSON and back, and reads columns from Avro schemas.

A message in Confluent's wire format is a zero byte, the schema number in four bytes (highest
first), and a body in Avro's binary encoding. Messages of one schema are read together, or one by
one if they are few. A message that does not fit is left out with its reason, and affects no other.

A connector without schema events (Postgres) describes columns by the Avro schema of its rows.
Connect's converters keep Connect's own schema in it, as `connect.name`, `connect.type` and
`connect.parameters`. Seen with Apicurio 2.6, and documented for Confluent's `connect.meta.data`. It
becomes the schema that the JSON converter would put around a row.

`encode_message` writes a single message that a person has corrected. A union takes the first branch
that the value fits. Bytes are base64. An absent field gets its default, or null where null is
allowed. An error names the path of the value that does not fit.
"""

import base64
import binascii
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.errors import FormatError
from pipeline.formats.debezium.avro_codec import (
    ENDS,
    BatchCursor,
    BodyCursor,
    DamagedError,
    ValueReader,
    plain_name,
    value_reader,
)
from pipeline.formats.debezium.envelope import CONNECTORS
from pipeline.formats.format import Schemas

# source blocks of connectors whose rows describe their columns
SOURCES = {
    f"io.debezium.connector.{one.name}.Source" for one in CONNECTORS.values() if one.describes_rows
}
AFTER, SOURCE = "after", "source"
SPELLED = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}


@lru_cache(maxsize=1024)  # tables that are written to at the same time; one is some 10 kB
def read_row_schema(schema: str, *, unicode_names: bool) -> Raw | None:
    """Return the schema around rows of this Avro *schema*; None unless they are of Postgres."""
    try:
        envelope = msgspec.json.decode(schema)
        fields = {one["name"]: one["type"] for one in envelope["fields"]}
        if _branch(fields[SOURCE])["connect.name"] not in SOURCES:
            return None
        space = envelope.get("namespace", "")
        named = {name: one for one in _records(fields.values()) for name in _names(one, space)}
        row = _branch(fields[AFTER])
        record = named[row] if isinstance(row, str) else row
        columns = [_column(one, unicode_names=unicode_names) for one in record["fields"]]
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    after = {"field": AFTER, "type": "struct", "optional": True, "fields": columns}
    return Raw(msgspec.json.encode({"type": "struct", "fields": [after]}))


def _column(field: Mapping[str, Any], *, unicode_names: bool) -> dict[str, Any]:
    kind = _branch(field["type"])
    about = kind if isinstance(kind, dict) else {"type": kind}
    spelled = about.get("connect.type") or SPELLED.get(about["type"], about["type"])
    found: dict[str, Any] = {
        "field": plain_name(field["name"]) if unicode_names else field["name"],
        "type": spelled,
        "optional": isinstance(field["type"], list) and "null" in field["type"],
    }
    if "connect.name" in about:
        found["name"] = about["connect.name"]
    if "connect.parameters" in about:
        found["parameters"] = about["connect.parameters"]
    if field.get("default") is not None:
        found["default"] = field["default"]
    return found


def _branch(schema: Any) -> Any:
    """Return the type of a value that is not null."""
    if not isinstance(schema, list):
        return schema
    (one,) = (one for one in schema if one != "null")
    return one


def _records(schemas: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield records that are the types of fields; later fields only name them."""
    for schema in schemas:
        one = _branch(schema)
        if isinstance(one, dict) and one["type"] == "record":
            yield one


def _names(record: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return a record's name within its namespace, and its full name."""
    name = str(record["name"]).rpartition(".")[2]
    own = str(record["name"]).rpartition(".")[0] or record.get("namespace", space)
    return name, f"{own}.{name}"


HEADER = 5
MAGIC = 0
FEW = 100  # messages of a schema; fewer are read one by one, which costs less
LEFT = "bytes are left over"
UNFRAMED = "it does not begin with a zero and a schema's number: it is not in Confluent's format"
UNKNOWN = (
    "the registry knows no schema {number}: find out who wrote it and with which registry;"
    " once that knows it, it is read again, or the table needs a new base"
)

SchemaTexts = Mapping[int, str | None]  # by number; None if the registry knows none


@dataclass(eq=False)
class JsonTexts:
    """One text for each message, null if none was sent; ``wrong`` has the errors."""

    column: pa.BinaryArray
    wrong: dict[int, str] = field(default_factory=dict)


def schema_numbers(messages: pa.BinaryArray) -> frozenset[int]:
    """Return the numbers of the schemas of *messages*."""
    found = _numbers(messages)
    return frozenset(np.unique(found[found >= 0]).tolist())


def convert_to_json(
    messages: pa.BinaryArray, schemas: SchemaTexts, *, unicode_names: bool
) -> JsonTexts:
    """Convert every message; *schemas* holds all of `schema_numbers`."""
    found = _numbers(messages)
    given = messages.is_valid().to_numpy(zero_copy_only=False)
    converted = JsonTexts(pa.nulls(len(messages), pa.binary()))
    converted.wrong = dict.fromkeys(np.flatnonzero(given & (found < 0)).tolist(), UNFRAMED)
    parts, rows = [], []
    for number in np.unique(found[found >= 0]).tolist():
        mine = np.flatnonzero(found == number)
        texts, read, wrong = _group(messages, mine, number, schemas, unicode_names=unicode_names)
        converted.wrong |= wrong
        parts.append(texts)
        rows.append(read)
    if parts:
        places = np.full(len(messages), -1, np.int64)
        places[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
        order = pa.array(places, mask=places < 0)
        converted.column = pa.concat_arrays(parts).cast(pa.binary()).take(order)
    return converted


def read_row_schemas(
    messages: pa.BinaryArray, schemas: SchemaTexts, *, unicode_names: bool
) -> dict[int, Raw]:
    """Return the schemas of rows that no schema event describes, as JSON.

    The keys are row numbers in *messages*.
    """
    found = _numbers(messages)
    row_schemas: dict[int, Raw] = {}
    for number in np.unique(found[found >= 0]).tolist():
        schema = schemas.get(number)
        columns = schema and read_row_schema(schema, unicode_names=unicode_names)
        if columns:
            row_schemas |= dict.fromkeys(np.flatnonzero(found == number).tolist(), columns)
    return row_schemas


def first_texts(messages: pa.BinaryArray, texts: pa.BinaryArray) -> pa.BinaryArray:
    """Return for each message the first of *texts* with its schema: its field names are the same.

    *texts* are the JSON of *messages*.
    """
    found = _numbers(messages)
    given = texts.is_valid().to_numpy(zero_copy_only=False)
    first = np.full(len(messages), -1, np.int64)
    for number in np.unique(found[found >= 0]).tolist():
        mine = np.flatnonzero((found == number) & given)
        if len(mine):
            first[found == number] = mine[0]
    return texts.take(pa.array(first, mask=first < 0))


def _numbers(messages: pa.BinaryArray) -> NDArray[np.int64]:
    """Return the number of each message's schema; -1 without a frame, and without a message."""
    count = len(messages)
    if not count:
        return np.empty(0, np.int64)
    heads = pc.binary_slice(messages, 0, HEADER) if messages.null_count == 0 else _heads(messages)
    framed = pc.equal(pc.binary_length(heads), HEADER).to_numpy(zero_copy_only=False)
    found = np.full(count, -1, np.int64)
    rows = np.flatnonzero(framed)
    _, offsets, data = heads.buffers()
    first = np.frombuffer(offsets, np.int32)[heads.offset : heads.offset + count][rows]
    if len(rows):
        head = np.frombuffer(data, np.uint8)[first[:, None] + np.arange(HEADER)]
        number = head[:, 1:].copy().view(">i4").reshape(-1).astype(np.int64)
        found[rows] = np.where((head[:, 0] == MAGIC) & (number >= 0), number, -1)
    return found


def _heads(messages: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_slice(pc.fill_null(messages, b""), 0, HEADER)


def _group(
    messages: pa.BinaryArray,
    mine: NDArray[np.intp],
    number: int,
    schemas: SchemaTexts,
    *,
    unicode_names: bool,
) -> tuple[pa.StringArray, NDArray[np.intp], dict[int, str]]:
    """Return texts of messages that fit schema *number*, their indexes, and errors of the others.

    *mine* are the indexes of the messages with this schema.
    """
    schema = schemas.get(number)
    if schema is None:
        return _none(mine, UNKNOWN.format(number=number))
    try:
        made = value_reader(schema, unicode_names=unicode_names)
    except FormatError as error:
        return _none(mine, f"schema {number}: {error}")
    if len(mine) < FEW:
        return _one_by_one(messages, mine, number, made)
    wrong: dict[int, str] = {}
    while len(mine):
        some = messages if len(mine) == len(messages) else messages.take(pa.array(mine))
        try:
            return _read(made, BatchCursor.of(some, HEADER)), mine, wrong
        except DamagedError as error:
            odd = mine[error.rows]
            wrong |= dict.fromkeys(odd.tolist(), f"it does not fit schema {number}: {error.why}")
            mine = np.setdiff1d(mine, odd)
    return pa.array([], pa.string()), mine, wrong


def _one_by_one(
    messages: pa.BinaryArray, mine: NDArray[np.intp], number: int, made: ValueReader
) -> tuple[pa.StringArray, NDArray[np.intp], dict[int, str]]:
    texts, read, wrong = list[str](), list[int](), dict[int, str]()
    sent = messages.take(pa.array(mine)).to_pylist()
    for row, one in zip(mine.tolist(), sent, strict=True):
        try:
            texts.append(_text(made, BodyCursor(one, HEADER)))
        except DamagedError as error:
            wrong[row] = f"it does not fit schema {number}: {error.why}"
        else:
            read.append(row)
    return pa.array(texts, pa.string()), np.array(read, np.intp), wrong


def _text(made: ValueReader, body: BodyCursor) -> str:
    try:
        text = made.one(body)
    except IndexError as error:
        raise body.damaged(ENDS) from error
    if body.left:
        raise body.damaged(LEFT)
    return text


def _none(
    mine: NDArray[np.intp], why: str
) -> tuple[pa.StringArray, NDArray[np.intp], dict[int, str]]:
    return pa.array([], pa.string()), mine[:0], dict.fromkeys(mine.tolist(), why)


def _read(made: ValueReader, bodies: BatchCursor) -> pa.StringArray:
    """Convert each body; it must be read to its last byte, or it has another schema."""
    texts = made.read(bodies).whole(len(bodies.rows))
    bodies.refuse(bodies.at != bodies.end, LEFT)
    return texts


NAMED = ("record", "error", "enum", "fixed")
INT, LONG = range(-(2**31), 2**31), range(-(2**63), 2**63)
Write = Callable[[Any], bytes]


def encode_message(text: str, number: int, schema: str) -> bytes:
    """Return *text* (JSON) as a message in Confluent's wire format; *schema* has that *number*.

    Raises:
        FormatError: it is no JSON, or a value does not fit the schema; the error names the value.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"it is no JSON: {error}") from error
    try:
        body = _Writer().write(msgspec.json.decode(schema), value, "the value")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"schema {number} is no schema of Avro: {error!r}") from error
    return bytes([MAGIC]) + number.to_bytes(HEADER - 1, "big") + body


@dataclass(eq=False)
class _Writer:
    """Writes values by a schema; a named type is defined where it first occurs."""

    named: dict[str, Any] = field(default_factory=dict)

    def write(self, schema: Any, value: Any, at: str) -> bytes:
        while isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        if isinstance(schema, list):
            return self._union(schema, value, at)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in NAMED:
            self.named[schema["name"].rpartition(".")[2]] = schema
            return self._complex(kind, schema, value, at)
        if kind in ("array", "map"):
            return self._many(kind, schema, value, at)
        if kind in _PLAIN:
            return _fitting(_PLAIN[kind], value, at, kind)
        return self.write(self.named[kind.rpartition(".")[2]], value, at)

    def _union(self, branches: list[Any], value: Any, at: str) -> bytes:
        errors = []
        for number, one in enumerate(branches):
            try:
                return _long(number) + self.write(one, value, at)
            except FormatError as error:
                errors.append(str(error))
        raise FormatError(errors[-1] if errors else f"{at}: a union of nothing")

    def _complex(self, kind: str, schema: Any, value: Any, at: str) -> bytes:
        if kind == "enum":
            symbols = schema["symbols"]
            if value not in symbols:
                raise FormatError(f"{at} must be one of {', '.join(symbols)}")
            return _long(symbols.index(value))
        if kind == "fixed":
            found = _fitting(_bytes, value, at, "base64")
            if len(found) != int(schema["size"]):
                raise FormatError(f"{at} has {len(found)} bytes, not {schema['size']}")
            return found
        return self._record(schema["fields"], value, at)

    def _record(self, fields: list[Any], value: Any, at: str) -> bytes:
        if not isinstance(value, Mapping):
            raise FormatError(f"{at} is no object")
        if unknown := sorted(value.keys() - {one["name"] for one in fields}):
            raise FormatError(f"{at} has no field {unknown[0]} in its schema")
        return b"".join(self._field(one, value, at) for one in fields)

    def _field(self, one: Any, value: Mapping[str, Any], at: str) -> bytes:
        name, kind = one["name"], one["type"]
        if name in value:
            return self.write(kind, value[name], f"{at}.{name}")
        if "default" in one or (isinstance(kind, list) and "null" in kind):
            return self.write(kind, one.get("default"), f"{at}.{name}")
        raise FormatError(f"{at}.{name} is missing and has no default")

    def _many(self, kind: str, schema: Any, value: Any, at: str) -> bytes:
        if kind == "array":
            if not isinstance(value, list):
                raise FormatError(f"{at} is not a list")
            items = [self.write(schema["items"], v, f"{at}[{n}]") for n, v in enumerate(value)]
        else:
            if not isinstance(value, Mapping):
                raise FormatError(f"{at} is no object")
            inner = schema["values"]
            items = [_text_bytes(n) + self.write(inner, v, f"{at}.{n}") for n, v in value.items()]
        return (_long(len(items)) + b"".join(items) if items else b"") + _long(0)


def _fitting(write: Write, value: Any, at: str, kind: str) -> bytes:
    try:
        return write(value)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise FormatError(f"{at} is no {kind}") from error


def _long(value: int) -> bytes:
    """Encode as zigzag, seven bits per byte, the lowest first (Avro 1.12, binary encoding)."""
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def _whole(within: range) -> Write:
    def write(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int) or value not in within:
            raise ValueError
        return _long(value)

    return write


def _real(layout: str) -> Write:
    def write(value: Any) -> bytes:
        if isinstance(value, bool) or not (isinstance(value, int | float) or value in _ODD):
            raise ValueError
        return struct.pack(layout, float(value))

    return write


def _null(value: Any) -> bytes:
    if value is not None:
        raise ValueError
    return b""


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError
    return bytes([value])


def _text_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    encoded = value.encode()
    return _long(len(encoded)) + encoded


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError from error


def _counted(value: Any) -> bytes:
    encoded = _bytes(value)
    return _long(len(encoded)) + encoded


_ODD = ("NaN", "Infinity", "-Infinity")
_PLAIN: Mapping[str, Write] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(INT),
    "long": _whole(LONG),
    "float": _real("<f"),
    "double": _real("<d"),
    "bytes": _counted,
    "string": _text_bytes,
}


UNSAID = "the message named no schema; name one to write it with (--schema)"


class AvroMessage:
    """Reads and writes messages in Confluent's wire format."""

    def schema_of(self, value: bytes) -> int | None:
        """Return the number at its beginning; None if it has another format."""
        return next(iter(schema_numbers(pa.array([value], pa.binary()))), None)

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """Return its JSON; FormatError if it does not fit its schema."""
        sent = pa.array([value], pa.binary())
        found = convert_to_json(sent, schemas, unicode_names=False)
        if found.wrong:
            raise FormatError(found.wrong[0])
        text: bytes = found.column[0].as_py()
        return text.decode()

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """Return *text* (JSON) as a message in schema *number*."""
        if number is None:
            raise FormatError(UNSAID)
        schema = schemas.get(number)
        if schema is None:
            raise FormatError(f"the registry knows no schema {number}; name another one (--schema)")
        return encode_message(text, number, schema)
