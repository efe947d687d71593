"""Slices JSON objects without rewriting them, and writes canonical texts of keys.

Parsing is strict: one object, followed only by blanks. A slice that is only copied stays as it was
sent, so `1.10` keeps its zero and a large integer its digits. An object that is nested deeper than
Python recurses (about a thousand levels) counts as no object.

Keys are compared byte by byte, so each value has one text. Blanks are removed, escapes become
canonical, and `1.10` becomes `1.1`. Integers of any size stay exact. Numbers with a fraction stay
the same double; Connect writes only doubles and floats, so nothing is lost. The rules are those of
Jackson, which Connect uses.

The key of a change in the change log is the canonical JSON array of the texts of its key values.
Source and shard come first, because two shards may hold the same key for different rows. They are
omitted if the config declares keys unique across shards. A single key and a column of keys must be
escaped exactly alike.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import product
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

Fields = tuple[tuple[str, str], ...]

LONG = range(-(2**63), 2**63)
LONGEST = 20  # characters of an integer of 64 bits
SIGN = re.compile(r"[ \t\r\n]*([{}:,]?)[ \t\r\n]*")
INTEGER = re.compile(r"-?[0-9]+")


def read_fields(data: bytes | None) -> Fields | None:
    """Return the fields of the object in *data* (UTF-8), as :func:`split_fields` does."""
    try:
        return split_fields((data or b"").decode("utf-8"))
    except UnicodeDecodeError:
        return None


def split_fields(text: str) -> Fields | None:
    """Return names and slices in order, with doubled names; None if *text* is no object."""
    try:
        return tuple(_fields(text))
    except (ValueError, RecursionError):
        return None


def text_of(value: str | None) -> str | None:
    """Return the text of one slice: a string's value, None for null, else the slice itself."""
    if value is None or value == "null":
        return None
    if value.startswith('"'):
        return replace_surrogates(str(load_slice(value)))
    return value


def replace_surrogates(text: str) -> str:
    """Replace each half of a surrogate pair, which UTF-8 cannot hold, by a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def integer_of(value: str | None) -> int | None:
    """Return the integer of one slice; None for null.

    Raises:
        ValueError: it is no integer of 64 bits.
    """
    if value is None or value == "null":
        return None
    if len(value) <= LONGEST and INTEGER.fullmatch(value) and int(value) in LONG:
        return int(value)
    msg = f"{value[:LONGEST]} is no integer of 64 bits"
    raise ValueError(msg)


def object_of(value: str | None) -> dict[str, str] | None:
    """Return the slices in an object; the last one of a doubled name counts. None for null.

    Raises:
        ValueError: it is no object.
    """
    if value is None or value == "null":
        return None
    found = split_fields(value)
    if found is None:
        msg = "the value is no object"
        raise ValueError(msg)
    return dict(found)


def load_slice(value: str) -> Any:
    """Decode one slice to Python values, but numbers to their texts."""
    return _DECODER.decode(value)


def _fields(text: str) -> Iterator[tuple[str, str]]:
    sign, at = _sign(text, 0)
    if sign != "{":
        raise _broken()
    if text.startswith("}", at):
        sign, at = _sign(text, at)
    while sign in {"{", ","}:
        name, at = _DECODER.raw_decode(text, at)
        colon, start = _sign(text, at)
        if colon != ":" or text[at - 1] != '"':
            raise _broken()
        _, end = _DECODER.raw_decode(text, start)
        yield name, text[start:end]
        sign, at = _sign(text, end)
    if sign != "}" or at != len(text):
        raise _broken()


def _sign(text: str, at: int) -> tuple[str, int]:
    """Return the sign at *at* with the blanks around it ("" for none), and the next position."""
    found = SIGN.match(text, at)
    return ("", at) if found is None else (found[1], found.end())


def _broken() -> ValueError:
    return ValueError("the text is no JSON object")


def _refuse(word: str) -> NoReturn:
    msg = f"{word} is not JSON"
    raise ValueError(msg)


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


LONGEST_NUMBER = 1000  # Jackson's limit in Spark; a longer one makes the text invalid
NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", '"': '\\"', "\\": "\\\\"}
UNSAFE = re.compile(r'[\x00-\x1f"\\]')
UNSAFE_OR_WIDE = re.compile(r'[\x00-\x1f"\\\ud800-\udfff\U00010000-\U0010ffff]')
BLANKS = " \t\r\n"
WIDEST = 0xFFFF
PLAIN_FROM, PLAIN_BELOW = 1e-3, 1e7  # in this range Java writes a double without an exponent


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as text; ``integral`` if it has neither fraction nor exponent."""

    text: str
    integral: bool


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object with its fields in order, with doubled names."""

    fields: tuple[tuple[str, "Value"], ...]

    def get(self, name: str) -> "Value":
        """Return the value of the last field of that name; None without one."""
        return next((value for key, value in reversed(self.fields) if key == name), None)


Value = None | bool | str | Number | Object | list["Value"]


def read_exactly(text: str) -> Object | None:
    """Read the JSON object at the beginning of *text*, as strictly as Spark; None without one.

    The text after the object is ignored, as Spark does.
    """
    try:
        value, _ = _EXACT_DECODER.raw_decode(text.lstrip(BLANKS))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Object) else None


def write_text(value: Value) -> str | None:
    """Return *value* in a string column: strings as they are, null as None, the rest as JSON.

    Raises:
        ValueError: it is nested too deep to be written.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    try:
        return _json(value)
    except RecursionError as error:
        raise ValueError("a value of too many lists in lists") from error


def quote_text(text: str) -> str:
    """Return the JSON string that Spark's ``to_json`` writes: only necessary escapes."""
    return f'"{UNSAFE.sub(_escape, text)}"'


def _json(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{UNSAFE_OR_WIDE.sub(_escape, value)}"'
        case Number():
            return _integer(value.text) if value.integral else _double(float(value.text))
        case Object():
            return "{" + ",".join(f"{_json(k)}:{_json(v)}" for k, v in value.fields) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    if char in NAMES:
        return NAMES[char]
    if ord(char) <= WIDEST:
        return f"\\u{ord(char):04X}"
    pair = char.encode("utf-16-be")
    return f"\\u{pair[:2].hex().upper()}\\u{pair[2:].hex().upper()}"


def _integer(text: str) -> str:
    return "0" if text == "-0" else text


def _double(value: float) -> str:
    """Return what Java's ``Double.toString`` returns."""
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or PLAIN_FROM <= abs(value) < PLAIN_BELOW:
        return repr(value)
    sign, figures, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, figures))
    power = len(digits) - 1 + int(exponent)
    return f"{'-' * sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def _number(*, integral: bool) -> Callable[[str], Number]:
    def build(text: str) -> Number:
        if len(text) > LONGEST_NUMBER:
            msg = "a number too long for Spark"
            raise ValueError(msg)
        return Number(text, integral)

    return build


def _refuse_constant(word: str) -> NoReturn:
    msg = f"{word} is not JSON"
    raise ValueError(msg)


_EXACT_DECODER = json.JSONDecoder(
    object_pairs_hook=lambda pairs: Object(tuple(pairs)),
    parse_int=_number(integral=True),
    parse_float=_number(integral=False),
    parse_constant=_refuse_constant,
)


def canonical_key(
    values: Sequence[str | None], source: str, shard: str, *, unique: bool = False
) -> str:
    """Return the key of a row with these key values, in the order of the message's key object."""
    parts = values if unique else (source, shard, *values)
    return f"[{','.join('null' if part is None else quote_text(part) for part in parts)}]"


def parse_key(key: str) -> tuple[str | None, ...]:
    """Return the values in a canonical key, with source and shard if it has them."""
    return tuple(json.loads(key))


def key_column(
    key_values: pa.Array, source: pa.Array, shard: pa.Array, *, unique: pa.Array
) -> pa.Array:
    """Return the key of each change from a format's ``key_values``; null remains null.

    In: arrays of one length: *key_values* never an empty list, *source* and *shard* strings,
    *unique* boolean. Out: string. A change without a shard has a key only if keys are unique.
    """
    behind = pc.binary_replace_slice(key_values.cast(pa.binary()), 0, 1, b"").cast(pa.string())
    placed = pc.binary_join_element_wise(_before(source, shard), behind, "")
    return pc.if_else(unique, key_values, placed) if unique.true_count else placed


def _before(source: pa.Array, shard: pa.Array) -> pa.Array:
    """Return the text before the values; a batch has few sources and shards, each quoted once."""
    sources, shards = source.dictionary_encode(), shard.dictionary_encode()
    pairs = product(sources.dictionary.to_pylist(), shards.dictionary.to_pylist())
    texts = pa.array([_beginning(one, other) for one, other in pairs], pa.string())
    width = pa.scalar(len(shards.dictionary), pa.int32())
    return texts.take(pc.add(pc.multiply(sources.indices, width), shards.indices))


@lru_cache(maxsize=2**16)  # the next batch has the same shards
def _beginning(source: str, shard: str) -> str:
    return f"[{quote_text(source)},{quote_text(shard)},"


NULL = Raw(b"null")
PLAIN_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,29}")
Row = dict[str, Raw]  # by column; the last of a doubled name


def read_row(raw: Raw) -> Row | None:
    """Return the columns of a row; None if it is no object, or not UTF-8."""
    try:
        _WHOLE.decode(raw)  # `_ROW` does not validate slices
        return _ROW.decode(raw)
    except (ValueError, RecursionError):
        return None


def is_null(raw: Raw) -> bool:
    """Return whether it is null."""
    return bytes(raw) == b"null"


def row_text(raw: Raw) -> str:
    """Return the row as it was sent."""
    return bytes(raw).decode("utf-8")


def write_row(row: Row) -> str:
    """Return the JSON of a row with these columns."""
    fields = (
        f"{msgspec.json.encode(name).decode()}:{bytes(value).decode('utf-8')}"
        for name, value in row.items()
    )
    return "{" + ",".join(fields) + "}"


def key_of_row(row: Row, names: Sequence[str]) -> str:
    """Return a JSON array of the canonical texts of these columns.

    Raises:
        KeyError: a column is missing.
        ValueError: a column is null, a list or an object.
    """
    return f"[{','.join(quote_text(value_text(row[name])) for name in names)}]"


def value_text(raw: Raw) -> str:
    """Return the canonical text of one value.

    Raises:
        ValueError: it is null, a list or an object.
    """
    sent = bytes(raw)
    if sent.startswith(b'"'):
        return _WORD.decode(raw)
    if PLAIN_INTEGER.fullmatch(sent):
        return sent.decode()
    return _odd_text(raw)


def _odd_text(raw: Raw) -> str:
    found = read_exactly('{"v":' + bytes(raw).decode("utf-8") + "}")
    value = None if found is None else found.get("v")
    text = write_text(value)
    if text is None or isinstance(value, list | Object):
        raise ValueError("a key's column is null, a list or an object")
    return text


_WORD = msgspec.json.Decoder(str)
_ROW = msgspec.json.Decoder(dict[str, Raw])
_WHOLE = msgspec.json.Decoder(dict[str, Any])
