"""Which instant does a reader mean by a cut, and which heartbeat stands for it?

A business day ends where the next one begins in the declared time zone, so days of 23 and 25
hours are right.  A cut is an instant; the position it stands for is a fence, never a time stamp.
Pure.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from pipeline.errors import ConfigError
from pipeline.model import Fence

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_LOST_PLUS = re.compile(r".*\d{2}:\d{2}:\d{2}(\.\d+)? \d{2}:\d{2}")


def cut(text: str, zone: ZoneInfo, now: datetime) -> datetime:
    """Instant, in UTC, that *text* means: a date, an RFC 3339 instant with offset, or ``now``.

    A date means the end of that day in *zone*; everything committed before it belongs to the day.

    Raises:
        ConfigError: the text is none of these, or no such day or instant exists.
    """
    if text == "now":
        return now.astimezone(UTC)
    try:
        if _DAY.fullmatch(text):
            return day_end(date.fromisoformat(text), zone)
        if _INSTANT.fullmatch(text):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"no such cut {text!r}: {error}"
        raise ConfigError(message) from error
    hint = "; send '+' as %2B in a URL" if _LOST_PLUS.fullmatch(text) else ""
    message = (
        f"bad cut {text!r}: give a date (2026-03-29, the end of that day in {zone.key}), "
        f"an instant with its offset (2026-03-29T18:00:00+08:00), or 'now'{hint}"
    )
    raise ConfigError(message)


def day_end(day: date, zone: ZoneInfo) -> datetime:
    """First instant, in UTC, that no longer belongs to *day* in *zone*.

    A midnight that occurs twice ends the day the first time; one that is skipped ends it at the
    moment of the clock change (``fold=0`` gives both).
    """
    midnight = datetime.combine(day + timedelta(days=1), time(), tzinfo=zone)
    return midnight.astimezone(UTC)


def first_fence(fences: Sequence[Fence], instant: datetime) -> Fence | None:
    """The lowest-numbered of *fences*, ascending, at or after *instant*; None while there is none.

    One that has a later-numbered one before the instant does not count: its clock was fast.  Of a
    thinned history it is a later one than the first ever written: still a proof.
    """
    found = None
    for fence in reversed(fences):
        if fence.at < instant:
            break
        found = fence
    return found


def no_zone(told: object) -> str:
    """Why *told* is no time zone, with the nearest name that is one."""
    names = available_timezones()
    asked = str(told)
    folded = {name.casefold(): name for name in names}
    close = get_close_matches(asked.casefold(), folded, n=1, cutoff=0.5)
    near = folded[close[0]] if close else "UTC"
    return f"{asked!r} is no time zone; the nearest is {near}"
