"""When does the next part of a day begin, by the clocks of one zone?  Pure.

Days of 23 and 25 hours are right: an hour that comes twice has two beginnings.
"""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipeline.clocks import no_zone
from pipeline.errors import ConfigError

DAY = timedelta(days=1)


def require_zone(setting: str, told: str) -> None:
    """Refuse what the *setting* was *told* if it is no zone; an empty text stands for another's.

    Raises:
        ConfigError: names the setting.
    """
    try:
        ZoneInfo(told or "UTC")
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        msg = f"{setting}: {no_zone(told)}"
        raise ConfigError(msg) from error


def next_part(after: datetime, length: timedelta, zone: ZoneInfo) -> datetime:
    """The first instant after *after* when the time of day is a multiple of *length*.

    Midnight always is one.  *length* must be above zero; a longer one than a day counts whole days.
    """
    local = after.astimezone(zone).replace(tzinfo=None)
    midnight = datetime.combine(local.date(), time())
    if length >= DAY:
        return (midnight + length // DAY * DAY).replace(tzinfo=zone).astimezone(after.tzinfo)
    begun = midnight + (local - midnight) // length * length
    walls = {begun, min(begun + length, midnight + DAY)}
    instants = [wall.replace(tzinfo=zone, fold=fold) for wall in walls for fold in (0, 1)]
    return min(i for each in instants if (i := each.astimezone(after.tzinfo)) > after)
