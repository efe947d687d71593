"""How long may be what a question to the API says, and how much may it ask for?"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from pipeline.durations import PATTERN, duration
from pipeline.errors import ConfigError

_LENGTH = re.compile(PATTERN, re.IGNORECASE)


def seconds(told: Any) -> Any:
    """The seconds of a duration such as ``5m``; a number, and what is none, as it is."""
    try:
        return duration(told).total_seconds() if isinstance(told, str) else told
    except ValueError:
        return told


def end_after(text: str, now: datetime) -> datetime:
    """The end that *text* means: RFC 3339 with its offset, or a duration from now.

    Raises:
        ConfigError: it is neither, or it has passed.
    """
    try:
        if _LENGTH.match(text):
            found = now + duration(text)
        else:
            found = datetime.fromisoformat(text.upper())
        found = found if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # also beyond the last year, but for the offset
        msg = f"until {text!r} is no instant and no length; write 2026-03-29T12:00:00Z or 4h"
        raise ConfigError(msg) from error
    if found.tzinfo is None:
        raise ConfigError(f"until {text!r} has no offset; write it with one, as in ...T12:00:00Z")
    if found <= now:
        raise ConfigError(f"until {text!r} has passed; nothing was recorded")
    return found


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("must be from the year 1 to 9999 in UTC") from error


Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""With its offset; what is taken is the same in UTC."""
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
"""A name, a reason or whoever asks: never blank."""
Word = Annotated[str, StringConstraints(max_length=200)]
"""A name or a value that may be left out."""
Line = Annotated[str, StringConstraints(max_length=100_000)]
"""A key, range or condition; half a surrogate pair is refused, as in each text with a bound."""
TableNames = Annotated[list[Text], Field(min_length=1, max_length=1000)]
"""Tables that something is done with at once."""
Limit = Annotated[int, Query(ge=1, le=10_000)]
"""How many are listed at most."""
Rate = Annotated[int, Field(ge=0, le=100_000_000)]
"""Rows a second that may be read; 0: as the source's limits let it."""
