"""Maps folders to the hours of a log, and decides when a file may be taken.

The layout is `base/<log>/<yyyy_MM_dd>/<HH>/`. A folder with another name is no partition.

A file is identified by its stamp, never by its age. It is opened once two looks, some time
apart, found the same stamp. Its own timestamps are only compared for equality. So a wrong clock
neither hides a file nor lets it be taken twice.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from fnmatch import translate
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

_DAY = re.compile(r"[0-9]{4}_[0-9]{2}_[0-9]{2}")
_HOUR = re.compile(r"[01][0-9]|2[0-3]")
HOUR = timedelta(hours=1)
KINDS: Mapping[str, str] = {
    ".json": "json_lines",
    ".jsonl": "json_lines",
    ".ndjson": "json_lines",
    ".log": "json_lines",
    ".csv": "csv",
    ".parquet": "parquet",
}
"""File name ending -> format of the rows."""
PACKED = ".gz"
"""The ending of a compressed file's name, and of its kind."""
UNFINISHED = ("_*", ".*", "*.tmp", "*._COPYING_", "*.inprogress", "*.part", "lost+found")


@dataclass(frozen=True, slots=True)
class LogRule:
    """The configured properties of one log.

    ``format``: format of all its files; by default it is taken from their names. ``columns``: names
    with their types in the mirror; by default the files define them. ``key``: a row replaces an
    earlier row with the same values in these columns; by default each row of each file is a row of
    its own.
    """

    format: Literal["", "json_lines", "csv", "parquet"] = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()

    def kind(self, name: str) -> str:
        """Return the kind of the rows in the file *name*; empty if its name does not show it."""
        plain = name.removesuffix(PACKED)
        kind = self.format or KINDS.get(plain[plain.rfind(".") :], "")
        return f"{kind}{name[len(plain) :]}" if kind else ""


@dataclass(frozen=True, slots=True, order=True)
class HourPartition:
    """One hour of a log: ``day`` as 2026_11_23, ``hour`` as 05."""

    log: str
    day: str
    hour: str

    @property
    def path(self) -> str:
        """Return its folder below the base."""
        return f"{self.log}/{self.day}/{self.hour}"

    @property
    def is_named(self) -> bool:
        """Return whether its folders have names of a day and an hour."""
        return self.begins(ZoneInfo("UTC")) is not None

    def begins(self, zone: ZoneInfo) -> datetime | None:
        """Return the instant at which its hour begins; None if its folders have other names."""
        if not (_DAY.fullmatch(self.day) and _HOUR.fullmatch(self.hour)):
            return None
        try:
            day = datetime.strptime(f"{self.day} {self.hour}", "%Y_%m_%d %H")  # noqa: DTZ007
        except ValueError:
            return None
        return day.replace(tzinfo=zone).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Hours that are looked at: ``back`` before now to ``ahead`` of it, in a log's own zone."""

    back: timedelta
    ahead: timedelta
    zone: ZoneInfo

    def holds(self, one: HourPartition, now: datetime) -> bool:
        """Return whether any instant of its hour is in range."""
        begins = one.begins(self.zone)
        return begins is not None and now - self.back < begins + HOUR and begins <= now + self.ahead

    def is_before(self, one: HourPartition, now: datetime) -> bool:
        """Return whether all of its hour is before the range."""
        begins = one.begins(self.zone)
        return begins is not None and begins + HOUR <= now - self.back

    def late(self, one: HourPartition, now: datetime, grace: timedelta) -> bool:
        """Return whether a file that comes *now* is more than *grace* after its hour."""
        begins = one.begins(self.zone)
        return begins is not None and now > begins + HOUR + grace

    def days(self, day: str, now: datetime) -> bool:
        """Return whether any hour of *day* may be in range, in any time zone."""
        begins = HourPartition("", day, "00").begins(self.zone)
        whole = timedelta(days=1) + 2 * HOUR
        return (
            begins is not None and now - self.back < begins + whole and begins <= now + self.ahead
        )


def is_finished(name: str, unfinished: tuple[str, ...]) -> bool:
    """Return whether *name* is that of a complete file: writers rename complete files."""
    return _any_of(unfinished).match(name) is None


@lru_cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one pattern for all of `fnmatch`: it is applied to each file of each sweep."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)")


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Inode, size and times of a file that was not opened; times in nanoseconds, by its server.

    ``changed`` is when the server last changed anything of it, which no program can set.
    """

    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, stat: os.stat_result) -> "FileStamp":
        """Return the stamp of a file by its *stat*."""
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """Return all fields, in the order of ``FileStamp(*parts)``."""
        return (self.inode, self.size, self.modified, self.changed)


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A file that was seen and is not taken; ``since`` is when it was first seen with this stamp.

    Sweeps before ``first`` need not wait for it: the last look at every file found it as taken, or
    did not find it. ``since`` is in seconds since 1970 by our clock; another stamp starts a new
    wait. ``why`` is why the opened file is not complete. ``is_reported`` is True once the overdue
    wait was reported. ``seen`` is when it was first found, with any stamp; None if unknown.
    """

    stamp: FileStamp
    first: int
    since: float
    why: str = ""
    is_reported: bool = False
    seen: float | None = None


@dataclass(frozen=True, slots=True)
class RestlessFiles:
    """``count`` files keep changing; ``path`` was ``seen`` first (in seconds since 1970)."""

    count: int
    path: str
    seen: float


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file that was taken, with its number of ``rows``, and its present stamp and digest.

    ``changed`` is True if it was taken with another digest.
    """

    stamp: FileStamp
    digest: str
    rows: int
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """A file must stay unchanged for ``settle``; an incomplete one is reported after ``limit``."""

    settle: timedelta
    limit: timedelta


class Due(Enum):
    """The action for a file that was found."""

    NOTHING = auto()
    REMEMBER = auto()
    OPEN = auto()


def judge_file(
    found: FileStamp,
    taken: FileStamp | None,
    waiting: WaitingFile | None,
    now: float,
    patience: Patience,
) -> Due:
    """Return whether a *found* file is taken already, must wait, or is opened now."""
    if taken == found:
        return Due.NOTHING
    if waiting is None or waiting.stamp != found or now < waiting.since:
        return Due.REMEMBER  # a clock that was set back starts a new wait
    return Due.OPEN if now - waiting.since >= patience.settle.total_seconds() else Due.NOTHING


def is_overdue(waiting: WaitingFile, now: float, patience: Patience) -> bool:
    """Return whether a file that is not complete must be reported."""
    return now - waiting.since >= patience.limit.total_seconds()
