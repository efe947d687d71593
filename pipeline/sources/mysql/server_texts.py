"""How do collectors that send a server's own texts write a value that a query returned?

As the log holds it: an ENUM as the number of its label, a SET and a BIT as a number of bits, bytes
as one letter each (ISO 8859-1), a BINARY without the zeros at its end; all else is the text that
the server returns.  The inverse of what :mod:`pipeline.sources.mysql.notations` reads.  Pure.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa

from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.labels import label_of
from pipeline.sources.mysql.typemap import BYTES, GEOMETRIES
from pipeline.sources.mysql.wire_text import Raw
from pipeline.sources.wire_texts import WireTexts


def server_texts(column: Column, raw: pa.Array) -> WireTexts:
    """How the values of *column*, strings or binary, are sent."""
    tell = _TELLING.get(column.kind)
    if tell is None:
        return WireTexts(raw.cast(pa.string()), quoted=True)
    told = [None if value is None else tell(column, value) for value in raw.to_pylist()]
    return WireTexts(pa.array(told, pa.string()), quoted=True)


def _bits(_: Column, value: Raw) -> str:
    return str(int.from_bytes(_octets(value), "big"))


def _letters(column: Column, value: Raw) -> str:
    data = _octets(value)
    return (data.rstrip(b"\0") if column.kind == "BINARY" else data).decode("latin-1")


def _number(column: Column, value: Raw) -> str:
    """Of a label, from 1 on; 0 is the one that a server puts for what is none."""
    labels = [label_of(one) for one in column.values]
    text = _text(value)
    return str(labels.index(text) + 1) if text in labels else "0"


def _members(column: Column, value: Raw) -> str:
    labels = [label_of(one) for one in column.values]
    chosen = _text(value).split(",") if _text(value) else []
    return str(sum(1 << labels.index(one) for one in chosen if one in labels))


def _octets(value: Raw) -> bytes:
    return value if isinstance(value, bytes) else (value or "").encode()


def _text(value: Raw) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


_TELLING: Mapping[str, Callable[[Column, Raw], str]] = {
    "BIT": _bits,
    "ENUM": _number,
    "SET": _members,
    **dict.fromkeys((*BYTES, *GEOMETRIES), _letters),
}
