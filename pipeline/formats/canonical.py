r"""Which text does the value of a key have, however its JSON was written?

A key is compared byte by byte, so one value must have one text: blanks go, escapes become
canonical, ``1.10`` becomes ``1.1``; integers of any size stay exact, and numbers with a fraction
stay the same *double* (Connect has only doubles and floats to write, so nothing is lost).  The
rules are those of Jackson, which Connect writes with.  Pure.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

LONGEST_NUMBER = 1000  # Jackson's limit in Spark; a longer one makes the text invalid
NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", '"': '\\"', "\\": "\\\\"}
UNSAFE = re.compile(r'[\x00-\x1f"\\]')
UNSAFE_OR_WIDE = re.compile(r'[\x00-\x1f"\\\ud800-\udfff\U00010000-\U0010ffff]')
BLANKS = " \t\r\n"
WIDEST = 0xFFFF
PLAIN_FROM, PLAIN_BELOW = 1e-3, 1e7  # where Java writes a double without an exponent


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number by its text; ``integral`` if it has neither fraction nor exponent."""

    text: str
    integral: bool


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object with its fields in order, doubled names kept."""

    fields: tuple[tuple[str, "Value"], ...]

    def get(self, name: str) -> "Value":
        """Value of the last field of that name; None without one."""
        return next((value for key, value in reversed(self.fields) if key == name), None)


Value = None | bool | str | Number | Object | list["Value"]


def read(text: str) -> Object | None:
    """Read the JSON object *text* begins with, as strictly as Spark does; None if there is none.

    What follows the object is not looked at, because Spark does not.
    """
    try:
        value, _ = _DECODER.raw_decode(text.lstrip(BLANKS))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Object) else None


def write(value: Value) -> str | None:
    """Text of *value* in a string column: strings as they are, null as None, the rest as JSON.

    Raises:
        ValueError: it is deeper than can be written.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    try:
        return _json(value)
    except RecursionError as error:
        raise ValueError("a value of too many lists in lists") from error


def quote(text: str) -> str:
    """JSON string as Spark's ``to_json`` writes it: only what must be escaped is."""
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
    """Java's ``Double.toString``."""
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


def _refuse(word: str) -> NoReturn:
    msg = f"{word} is not JSON"
    raise ValueError(msg)


_DECODER = json.JSONDecoder(
    object_pairs_hook=lambda pairs: Object(tuple(pairs)),
    parse_int=_number(integral=True),
    parse_float=_number(integral=False),
    parse_constant=_refuse,
)
