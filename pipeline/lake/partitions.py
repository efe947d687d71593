"""How is a partition's value written in the log?  As text, in Spark's spelling; pure."""

from datetime import date

import pyarrow as pa

from pipeline.errors import HeldError

Value = str | int | date | None


def text(value: Value) -> str | None:
    """A value for ``partitionValues``; an empty text is NULL there, for every reader."""
    if value is None or value == "":
        return None
    if type(value) is date:
        return value.isoformat()
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise HeldError("protocol", f"a partition value of type {type(value).__name__}")


def value(text: str | None, kind: pa.DataType) -> Value:
    """What a text of ``partitionValues`` stands for in a column of *kind*."""
    if not text:
        return None
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    return int(text) if pa.types.is_integer(kind) else text
