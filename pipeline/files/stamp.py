"""Is a file the one that was taken, a new one, or still being written?  By identity, never by time.

A file is taken once two looks, some time apart, have found it alike: what its own times say plays
no part in that, so a clock that is wrong neither hides a file nor lets it be taken twice.  Pure.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What a look tells of a file without opening it; times in nanoseconds, by its server.

    ``changed`` is when the server last wrote anything of it, which no program can set.
    """

    inode: int
    size: int
    modified: int
    changed: int

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """All of it, as ``FileStamp(*parts)`` takes them."""
        return (self.inode, self.size, self.modified, self.changed)


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A file that was seen and is not taken, as it stands, and ``since`` when.

    Sweeps before ``first`` need not wait for it: the last look at every file found it as taken, or
    not at all.  ``since`` is in seconds since 1970 by our clock; another stamp begins it anew.
    ``why`` it is not whole, once it was opened.  ``told`` once somebody was told that it waits for
    too long.  ``seen`` is when it was found first, whatever stamp it had; None if nobody knows.
    """

    stamp: FileStamp
    first: int
    since: float
    why: str = ""
    told: bool = False
    seen: float | None = None


@dataclass(frozen=True, slots=True)
class RestlessFiles:
    """So many files are never found alike; the oldest of them was ``seen`` first, since 1970."""

    count: int
    path: str
    seen: float


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file that was taken with so many ``rows``, by the stamp and the digest that it has now.

    ``changed``: they are not those with which it was taken.
    """

    stamp: FileStamp
    digest: str
    rows: int
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """A file must stay alike for ``settle``; one that is not whole is told after ``limit``."""

    settle: timedelta
    limit: timedelta


class Due(Enum):
    """What is to be done with a file that was found."""

    NOTHING = auto()
    REMEMBER = auto()
    OPEN = auto()


def due(
    found: FileStamp,
    taken: FileStamp | None,
    waiting: WaitingFile | None,
    now: float,
    patience: Patience,
) -> Due:
    """Whether a file that is *found* is taken already, must wait, or is opened now."""
    if taken == found:
        return Due.NOTHING
    if waiting is None or waiting.stamp != found or now < waiting.since:
        return Due.REMEMBER  # a clock that was set back keeps nobody waiting
    return Due.OPEN if now - waiting.since >= patience.settle.total_seconds() else Due.NOTHING


def overdue(waiting: WaitingFile, now: float, patience: Patience) -> bool:
    """Whether somebody must be told that a file is not whole."""
    return now - waiting.since >= patience.limit.total_seconds()
