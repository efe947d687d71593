"""Parses durations as people write them: ``30s``, ``5m``, ``1h30m``, or ISO 8601 (``PT5M``).

Config, command line and API all use it. ``m`` is a minute; there are no months. Pure.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")
FORM = "write it as 30s, 5m, 1h30m or 2d (ISO 8601, such as PT5M, will do)"
PATTERN = r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|s|m|min|h|d|w)\s*)+$|^[-+]?P"
"""Regular expression for texts that may be a duration, for editors."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])(?![a-z])\s*")


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    Raises:
        ValueError: it is not a duration, has no unit, or is longer than 999,999,999 days.
    """
    found, at, last = timedelta(), 0, None
    while at < len(text) and (part := _PART.match(text, at)):
        unit = _UNITS[part[2]]
        if last is not None and unit >= last:  # such as 1m1h or 1s1s
            break
        found, at, last = found + _length(float(part[1]) * unit, text), part.end(), unit
    if last is not None and at == len(text):
        return found
    if text.strip().lstrip("+-").upper().startswith("P"):
        from pydantic import TypeAdapter  # noqa: PLC0415  - takes half of a command's start

        with suppress(ValueError):
            return TypeAdapter(timedelta).validate_python(text.strip())
    raise ValueError(f"{text!r} is not a duration; {FORM}")


def format_setting(length: timedelta) -> str:
    """Return *length* as a config has it, such as ``5m`` or ``90s``; `parse_duration` reads it."""
    micros = length // timedelta(microseconds=1)
    if micros % 1000:
        return f"{micros / 1_000_000:g}s"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if micros and micros // 1000 % size == 0:
            return f"{micros // 1000 // size}{unit}"
    return f"{micros // 1000}ms" if micros else "0s"


def _length(seconds: float, text: str) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is too long for a duration") from None


def with_durations(validate: Callable[[Any], T], value: Any) -> T:
    """Validate *value*, in which durations may have any form that `parse_duration` reads.

    *value* is plain JSON and is not changed. Only the model knows which texts are durations: those
    that it rejects as durations are parsed here, and all is validated again.

    Raises:
        ValidationError: as *validate* does.
    """
    from pydantic import ValidationError  # noqa: PLC0415  - takes half of a command's start

    try:
        return validate(value)
    except ValidationError as error:
        for fault in error.errors():
            if str(fault["type"]).startswith("time_delta") and isinstance(fault["input"], str):
                value = _restated(value, fault["loc"])
        return validate(value)


def _restated(value: Any, loc: Sequence[int | str]) -> Any:
    """*value* with the text at *loc* in ISO 8601; unchanged if it is not a duration."""
    if not loc:
        try:
            micros = parse_duration(value) // timedelta(microseconds=1)
            return f"PT{micros // 1_000_000}.{micros % 1_000_000:06}S"
        except ValueError:
            return value
    key, rest = loc[0], loc[1:]
    if isinstance(value, dict) and key in value:
        return {**value, key: _restated(value[key], rest)}
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return [_restated(one, rest) if at == key else one for at, one in enumerate(value)]
    return value
