"""Bodies and messages in Avro, written from the specification and by nothing of the product."""

import struct
from collections.abc import Callable
from typing import Any

Schema = Any


def message(number: int, schema: Schema, value: Any) -> bytes:
    """One in Confluent's format."""
    return b"\0" + struct.pack(">I", number) + body(schema, value)


def body(schema: Schema, value: Any) -> bytes:
    """A value; of a union, ``(branch, value)``."""
    if isinstance(schema, list):
        branch, inner = value
        return long(branch) + body(schema[branch], inner)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if not isinstance(kind, str) or kind not in _KINDS:
        return body(kind, value)  # a type around a type
    return _KINDS[kind](schema, value)


def blocks(items: list[bytes]) -> bytes:
    """The first in a block that tells its size, the others in one that does not."""
    first, others = items[:1], items[1:]
    told = b"".join(long(-1) + long(len(one)) + one for one in first)
    return told + (long(len(others)) + b"".join(others) if others else b"") + long(0)


def long(value: int) -> bytes:
    """Zigzag, seven bits a byte, the lowest first."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def record(name: str, /, **fields: Schema) -> dict[str, Any]:
    """A record's schema."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": one, "type": kind} for one, kind in fields.items()],
    }


_KINDS: dict[str, Callable[[Schema, Any], bytes]] = {
    "null": lambda _, __: b"",
    "boolean": lambda _, value: bytes([value]),
    "int": lambda _, value: long(value),
    "long": lambda _, value: long(value),
    "float": lambda _, value: struct.pack("<f", value),
    "double": lambda _, value: struct.pack("<d", value),
    "bytes": lambda _, value: long(len(value)) + bytes(value),
    "string": lambda _, value: body("bytes", value.encode()),
    "enum": lambda schema, value: long(schema["symbols"].index(value)),
    "fixed": lambda _, value: bytes(value),
    "array": lambda schema, value: blocks([body(schema["items"], one) for one in value]),
    "map": lambda schema, value: blocks(
        [body("string", name) + body(schema["values"], one) for name, one in value.items()]
    ),
    "record": lambda schema, value: b"".join(
        body(one["type"], value[one["name"]]) for one in schema["fields"]
    ),
}
