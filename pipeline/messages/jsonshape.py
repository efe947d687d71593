"""Which part of a JSON object is wanted, and of what kinds?  One shape, read by Spark and without.

A shape is ``"string"`` (anything, as text), ``"bigint"`` (an integer of 64 bits), a dict of
named shapes (an object), or a list of one shape (an array of such).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.messages.jsontext import Number, Object, Value, write

Shape = str | Mapping[str, "Shape"] | Sequence["Shape"]
LONG = range(-(2**63), 2**63)


def ddl(shape: Shape) -> str:
    """Spark's type for *shape*; field names must be plain words or quoted already."""
    if isinstance(shape, str):
        return shape
    if isinstance(shape, Mapping):
        return f"struct<{','.join(f'{name}:{ddl(part)}' for name, part in shape.items())}>"
    return f"array<{ddl(shape[0])}>"


def cut(value: Value, shape: Shape) -> Any:
    """Read what *shape* wants out of *value*; absent and null are None.

    Raises:
        ValueError: if some value is not of the kind its shape asks for.
    """
    if value is None:
        return None
    if shape == "string":
        return write(value)
    if shape == "bigint":
        if isinstance(value, Number) and value.integral and int(value.text) in LONG:
            return int(value.text)
    elif isinstance(shape, Mapping):
        if isinstance(value, Object):
            found = dict.fromkeys(shape)
            for name, part in value.fields:
                if name in shape:
                    found[name] = cut(part, shape[name])
            return found
    elif isinstance(value, list):
        return [cut(part, shape[0]) for part in value]
    msg = f"a value is no {ddl(shape)}"
    raise ValueError(msg)
