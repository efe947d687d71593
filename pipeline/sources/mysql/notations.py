"""What would Connect write for a value that is written in another notation?

Collectors other than Connect send what the server's log holds: its own texts, numbers for labels.
Whatever does not fit becomes null here, so its table is held; nothing is guessed.  Pure.
"""

import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from pipeline.schema.model import Notation
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.labels import label_of
from pipeline.sources.mysql.typemap import BYTES, GEOMETRIES
from pipeline.sources.mysql.wire_text import Raw, wire_texts

DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
MOMENT = re.compile(rf"{DATE.pattern} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?")
CLOCK = re.compile(r"-?[0-9]{1,3}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
WHOLE = re.compile(r"-?[0-9]{1,20}")
YEAR = re.compile(r"[0-9]{4}|0")
SHAPES: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"), WHOLE),
    **{"DATE": DATE, "DATETIME": MOMENT, "TIMESTAMP": MOMENT, "TIME": CLOCK, "YEAR": YEAR},
}
ODD = (ValueError, OverflowError, IndexError, binascii.Error, msgspec.MsgspecError)
_WORDS = msgspec.json.Decoder(list[str])
MOST_BITS = 64


def to_connect(column: Column, wire: pa.Array) -> pa.Array:
    """Texts as Connect would send them; null where one does not fit.  Geometry stays as it is."""
    if column.notation is Notation.CONNECT or column.kind in GEOMETRIES:
        return wire
    plain = replace(column, notation=Notation.CONNECT)
    texts = wire.cast(pa.string())
    known = texts.unique().drop_null().to_pylist()
    told = _told(plain, [_raw(plain, column.notation, text) for text in known])
    by_text = dict(zip(known, told, strict=True))
    return pa.array([by_text.get(text) for text in texts.to_pylist()], pa.string())


def _raw(plain: Column, notation: Notation, text: str) -> Raw:
    try:
        return _FROM[notation](plain, text)
    except ODD:
        return None


def _told(plain: Column, raws: Sequence[Raw]) -> list[str | None]:
    """All in one go; one by one where one of them is odd."""
    kind = pa.binary() if any(isinstance(raw, bytes) for raw in raws) else pa.string()
    try:
        told: list[str | None] = wire_texts(plain, pa.array(raws, kind)).texts.to_pylist()
    except ODD:
        return [None] if len(raws) == 1 else [text for raw in raws for text in _told(plain, [raw])]
    return told


def _of_texts(column: Column, text: str) -> Raw:
    """What the server returns for a value whose text stands in its log."""
    kind = column.kind
    if kind == "BIT":
        return _bits(column, text)
    if kind == "ENUM" and WHOLE.fullmatch(text):
        return _labels(column)[int(text) - 1] if int(text) > 0 else ""
    if kind == "SET" and WHOLE.fullmatch(text):
        return _members(column, int(text))
    if kind in BYTES:
        return _whole(column, text.encode("latin-1"))
    return _shaped(column, text)


def _of_plain(column: Column, text: str) -> Raw:
    """The same for a value of JSON's own kinds."""
    kind = column.kind
    if kind == "BIT":
        return _bits(column, {"true": "1", "false": "0"}.get(text, text))
    if kind == "SET" and text.startswith("["):
        return ",".join(_WORDS.decode(text))
    if kind in BYTES:
        return _whole(column, binascii.a2b_base64(text, strict_mode=True))
    if kind == "TINYINT":
        return _shaped(column, {"true": "1", "false": "0"}.get(text, text))
    return _shaped(column, text)


def _shaped(column: Column, text: str) -> Raw:
    shape = SHAPES.get(column.kind)
    return text if shape is None or shape.fullmatch(text) else None


def _whole(column: Column, data: bytes) -> bytes:
    """As the table holds it: a server's log leaves out the zeros at the end of a BINARY."""
    return data.ljust(column.length or 1, b"\0") if column.kind == "BINARY" else data


def _bits(column: Column, text: str) -> Raw:
    """Big-endian bytes of a number of bits, as many as the column has."""
    if not WHOLE.fullmatch(text):
        return None
    size = (column.width + 7) // 8
    number = int(text)
    if number < 0:  # 64 bits, read as a number with a sign
        number += 2**MOST_BITS
    return None if number >= 2**column.width else number.to_bytes(size, "big")


def _labels(column: Column) -> Sequence[str]:
    return [label_of(value) for value in column.values]


def _members(column: Column, bits: int) -> str | None:
    labels = _labels(column)
    bits += 2**MOST_BITS if bits < 0 else 0
    if bits >= 2 ** len(labels):
        return None
    return ",".join(label for at, label in enumerate(labels) if bits >> at & 1)


_FROM: Mapping[Notation, Callable[[Column, str], Raw]] = {
    Notation.TEXTS: _of_texts,
    Notation.PLAIN: _of_plain,
}
