"""How is JSON written in a schema of Avro, so that it is read back as the same JSON?

For single messages that a person has corrected.  A union takes the first branch that the value
fits; bytes are base64; a field that is absent is its default, or null where it may be.  What does
not fit is told by its place.  Pure.
"""

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pipeline.errors import FormatError
from pipeline.formats.debezium.avro import HEADER, MAGIC

NAMED = ("record", "error", "enum", "fixed")
INT, LONG = range(-(2**31), 2**31), range(-(2**63), 2**63)
Write = Callable[[Any], bytes]


def message(text: str, number: int, schema: str) -> bytes:
    """*text*, JSON, as a message in Confluent's wire format; *schema* has that *number*.

    Raises:
        FormatError: it is no JSON, or does not fit the schema: where, and what is expected.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"it is no JSON: {error}") from error
    try:
        body = _Writer().write(msgspec.json.decode(schema), value, "the value")
    except (KeyError, TypeError, RecursionError, msgspec.DecodeError) as error:
        raise FormatError(f"schema {number} is no schema of Avro: {error!r}") from error
    return bytes([MAGIC]) + number.to_bytes(HEADER - 1, "big") + body


@dataclass(eq=False)
class _Writer:
    """Names of types stand for what they were first told as."""

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
        told = []
        for number, one in enumerate(branches):
            try:
                return _long(number) + self.write(one, value, at)
            except FormatError as error:
                told.append(str(error))
        raise FormatError(told[-1] if told else f"{at}: a union of nothing")

    def _complex(self, kind: str, schema: Any, value: Any, at: str) -> bytes:
        if kind == "enum":
            symbols = schema["symbols"]
            if value not in symbols:
                raise FormatError(f"{at} is none of {', '.join(symbols)}")
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
        raise FormatError(f"{at} lacks {name}, which has no default")

    def _many(self, kind: str, schema: Any, value: Any, at: str) -> bytes:
        if kind == "array":
            if not isinstance(value, list):
                raise FormatError(f"{at} is no list")
            told = [self.write(schema["items"], v, f"{at}[{n}]") for n, v in enumerate(value)]
        else:
            if not isinstance(value, Mapping):
                raise FormatError(f"{at} is no object")
            inner = schema["values"]
            told = [_text(n) + self.write(inner, v, f"{at}.{n}") for n, v in value.items()]
        return (_long(len(told)) + b"".join(told) if told else b"") + _long(0)


def _fitting(write: Write, value: Any, at: str, kind: str) -> bytes:
    try:
        return write(value)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise FormatError(f"{at} is no {kind}") from error


def _long(value: int) -> bytes:
    """Zigzag, seven bits a byte, the lowest first (Avro 1.12, binary encoding)."""
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


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    told = value.encode()
    return _long(len(told)) + told


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError from error


def _counted(value: Any) -> bytes:
    told = _bytes(value)
    return _long(len(told)) + told


_ODD = ("NaN", "Infinity", "-Infinity")
_PLAIN: Mapping[str, Write] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(INT),
    "long": _whole(LONG),
    "float": _real("<f"),
    "double": _real("<d"),
    "bytes": _counted,
    "string": _text,
}
