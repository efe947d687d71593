"""What does a row hold that is one JSON object?  Slices, passed on as they were sent.

What is needed of a value is read; a number keeps its digits.  Pure.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from pipeline.formats import canonical
from pipeline.formats.canonical import quote

NULL = Raw(b"null")
INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,29}")
Row = dict[str, Raw]  # by column; of doubled names the last


def read(raw: Raw) -> Row | None:
    """The columns of a row; None if it is no object, or is not in UTF-8."""
    try:
        _WHOLE.decode(raw)  # slices are not looked into
        return _ROW.decode(raw)
    except (ValueError, RecursionError):
        return None


def is_null(raw: Raw) -> bool:
    """Whether none was sent."""
    return bytes(raw) == b"null"


def text_of(raw: Raw) -> str:
    """The row as it was sent."""
    return bytes(raw).decode("utf-8")


def written(row: Row) -> str:
    """A row of these columns."""
    fields = (
        f"{msgspec.json.encode(name).decode()}:{bytes(value).decode('utf-8')}"
        for name, value in row.items()
    )
    return "{" + ",".join(fields) + "}"


def key(row: Row, names: Sequence[str]) -> str:
    """JSON array of the texts of these columns, as :mod:`pipeline.formats.canonical` has them.

    Raises:
        KeyError: one is missing.
        ValueError: one is null, a list or an object.
    """
    return f"[{','.join(quote(text(row[name])) for name in names)}]"


def text(raw: Raw) -> str:
    """The canonical text of one value.

    Raises:
        ValueError: it is null, a list or an object.
    """
    sent = bytes(raw)
    if sent.startswith(b'"'):
        return _WORD.decode(raw)
    if INTEGER.fullmatch(sent):
        return sent.decode()
    return _odd_text(raw)


def _odd_text(raw: Raw) -> str:
    found = canonical.read('{"v":' + bytes(raw).decode("utf-8") + "}")
    value = None if found is None else found.get("v")
    text = canonical.write(value)
    if text is None or isinstance(value, list | canonical.Object):
        raise ValueError("a key's column is null, a list or an object")
    return text


_WORD = msgspec.json.Decoder(str)
_ROW = msgspec.json.Decoder(dict[str, Raw])
_WHOLE = msgspec.json.Decoder(dict[str, Any])
