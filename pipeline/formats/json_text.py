"""Which slices of a JSON object are its fields' values?  Nothing is rewritten.

Strict: one object, and nothing behind it but blanks.  Whoever needs a value reads its slice; what
is only passed on stays as it was sent, so ``1.10`` keeps its zero and a large integer its digits.
Objects nested deeper than Python recurses (about a thousand levels) count as none.  Pure.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

Fields = tuple[tuple[str, str], ...]

LONG = range(-(2**63), 2**63)
LONGEST = 20  # characters of an integer of 64 bits
SIGN = re.compile(r"[ \t\r\n]*([{}:,]?)[ \t\r\n]*")
INTEGER = re.compile(r"-?[0-9]+")


def read(data: bytes | None) -> Fields | None:
    """Fields of the one object that *data* holds in UTF-8, as :func:`fields`."""
    try:
        return fields((data or b"").decode("utf-8"))
    except UnicodeDecodeError:
        return None


def fields(text: str) -> Fields | None:
    """Names and slices in their order, doubled names kept; None if *text* is no object."""
    try:
        return tuple(_fields(text))
    except (ValueError, RecursionError):
        return None


def text_of(value: str | None) -> str | None:
    """Text of one slice: a string's letters, None for null, of anything else the slice itself."""
    if value is None or value == "null":
        return None
    if value.startswith('"'):
        return whole(str(load(value)))
    return value


def whole(text: str) -> str:
    """Put a question mark for each half of a surrogate pair, which no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def integer_of(value: str | None) -> int | None:
    """Integer of one slice; None for null.

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
    """Slices of one slice that is an object, of doubled names the last; None for null.

    Raises:
        ValueError: it is no object.
    """
    if value is None or value == "null":
        return None
    found = fields(value)
    if found is None:
        msg = "the value is no object"
        raise ValueError(msg)
    return dict(found)


def load(value: str) -> Any:
    """Read one slice as Python's own values, but numbers as their texts."""
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
    """Sign at *at* with the blanks around it, "" for none; where what follows begins."""
    found = SIGN.match(text, at)
    return ("", at) if found is None else (found[1], found.end())


def _broken() -> ValueError:
    return ValueError("the text is no JSON object")


def _refuse(word: str) -> NoReturn:
    msg = f"{word} is not JSON"
    raise ValueError(msg)


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)
