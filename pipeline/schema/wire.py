"""Reads the values of each column from rows of JSON text, as they were sent.

No number passes through a double on its way. Rows that have the expected fields and types are read
together. An odd one (a field without a column, a number instead of a text) is left out and read by
:func:`read_exact`, which has no expectations. A field that is absent is null, not a misreading.
Pure.
"""

import enum
import functools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pyarrow as pa

BLOCK = 2_000  # rows read at once: their values stay in the processor's cache
NULL = msgspec.Raw(b"null")
TEXT = pa.string()
LOWEST, HIGHEST = -(2**63), 2**63 - 1
UNREADABLE = (msgspec.DecodeError, RecursionError)
UNSAYABLE = {'"', "\\"}  # besides control characters: msgspec cannot map fields with these

_Whole = Annotated[int, msgspec.Meta(ge=LOWEST, le=HIGHEST)]
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_word = msgspec.json.Decoder(str)


class SentAs(enum.Enum):
    """How a column's values arrive: as texts, as 64-bit whole numbers, or in any form."""

    WORD = enum.auto()
    WHOLE = enum.auto()
    ANY = enum.auto()


EXPECTED: dict[SentAs, tuple[Any, Any]] = {
    SentAs.WORD: (str | None, None),
    SentAs.WHOLE: (_Whole | None, None),
    SentAs.ANY: (msgspec.Raw, NULL),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A column's name in the text, and the expected form of its values."""

    name: str
    sent: SentAs


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Values of all rows, a column each: int64 where numbers are expected, else text.

    ``odd``: indexes, ascending, of rows that differ from the expectation; they are null here.
    """

    columns: tuple[pa.Array, ...]
    odd: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExactRows:
    """Values of rows of any form, a column of text each.

    ``broken``: whether a row is not a JSON object; then it is null. ``unknown``: names of fields
    that were not requested.
    """

    columns: tuple[pa.Array, ...]
    broken: pa.BooleanArray
    unknown: frozenset[str]


def read_expected(texts: pa.StringArray, fields: tuple[Field, ...]) -> ExpectedRows:
    """Read the rows that match *fields*; a null text gives nulls and is not odd."""
    decoder = _decoder(fields)
    if decoder is None:
        held = texts.is_valid().to_pylist()
        odd = tuple(at for at, there in enumerate(held) if there)
        return ExpectedRows(tuple(pa.nulls(len(texts), _type(field)) for field in fields), odd)
    parts: list[list[pa.Array]] = [[pa.array([], _type(field))] for field in fields]
    left_out: list[int] = []
    for start in range(0, len(texts), BLOCK):
        rows, odd_ones = _block(texts.slice(start, BLOCK), decoder)
        left_out.extend(start + at for at in odd_ones)
        for at, (field, part) in enumerate(zip(fields, parts, strict=True)):
            part.append(_column(map(operator.attrgetter(f"c{at}"), rows), field))
    return ExpectedRows(tuple(pa.concat_arrays(part) for part in parts), tuple(left_out))


def read_exact(texts: pa.StringArray, names: Sequence[str]) -> ExactRows:
    """Read any rows, none of them null; of a repeated field the last one counts."""
    parts: list[list[pa.Array]] = [[pa.array([], TEXT)] for _ in names]
    broken: list[bool] = []
    unknown: set[str] = set()
    for start in range(0, len(texts), BLOCK):
        block = texts.slice(start, BLOCK).cast(pa.binary()).to_pylist()
        rows = [_row(text) for text in block]
        broken.extend(row is None for row in rows)
        parsed = [row or {} for row in rows]
        unknown.update(*parsed)
        for name, part in zip(names, parts, strict=True):
            part.append(pa.array([_text(row.get(name, NULL)) for row in parsed], TEXT))
    return ExactRows(
        columns=tuple(pa.concat_arrays(part) for part in parts),
        broken=pa.array(broken, pa.bool_()),
        unknown=frozenset(unknown.difference(names)),
    )


def _type(field: Field) -> pa.DataType:
    return pa.int64() if field.sent is SentAs.WHOLE else TEXT


@functools.lru_cache(maxsize=1024)
def _decoder(fields: tuple[Field, ...]) -> msgspec.json.Decoder[Any] | None:
    """Reads a row into a struct whose c0, c1, ... are the fields; None if a name prevents it."""
    names = {f"c{at}": field.name for at, field in enumerate(fields)}
    if any(
        character in UNSAYABLE or character < " " for name in names.values() for character in name
    ):
        return None
    row = msgspec.defstruct(
        "Row",
        [(place, *EXPECTED[field.sent]) for place, field in zip(names, fields, strict=True)],
        rename=names,
        forbid_unknown_fields=True,
        gc=False,
    )
    return msgspec.json.Decoder(row)


def _block(
    texts: pa.StringArray, decoder: msgspec.json.Decoder[Any]
) -> tuple[list[Any], list[int]]:
    """The rows of the texts, and the indexes of the odd ones."""
    read, empty = decoder.decode, decoder.decode(b"{}")
    rows, odd = [], []
    for at, text in enumerate(texts.cast(pa.binary()).to_pylist()):
        try:
            rows.append(empty if text is None else read(text))
        except UNREADABLE:
            rows.append(empty)
            odd.append(at)
    return rows, odd


def _column(values: Iterable[Any], field: Field) -> pa.Array:
    texts = map(_text, values) if field.sent is SentAs.ANY else values
    return pa.array(list(texts), _type(field))


def _row(text: bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return _fields.decode(text)
    except UNREADABLE:
        return None


def _text(raw: msgspec.Raw) -> str | None:
    """A string's text; any other value as it was written; None for null."""
    sent = bytes(raw)
    if sent == b"null":
        return None
    return _word.decode(sent) if sent.startswith(b'"') else sent.decode()
