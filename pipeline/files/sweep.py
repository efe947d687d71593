"""Sweeps the hourly folders of file logs, and takes complete files into the ledger.

A sweep looks at every hour in range of every log; each call continues it for a time budget. Most
sweeps skip hours whose folder has not changed since two earlier looks. A file that grows in place
changes no folder. So some sweeps read the stamp of every file, and only these answer heartbeats. A
sweep that is cut short by the end of its process starts over.

`pipeline.files.layout` decides when a file may be taken. One process sweeps at a time, held by a
lock file. The state of folders is kept in memory, so the first sweep after a start looks at
everything.

An unmounted disk looks like a folder without files. The ledger remembers which logs have a disk of
their own, and a missing disk raises UnreachableError.

File names are bytes: a name that is not UTF-8 is reported, and its file is never taken. Links may
lead nowhere, and files may vanish during a listing. Files outside the hourly folders are never
taken and delay nothing; `find_strays` lists them.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import IO

import structlog

from pipeline.errors import UnreachableError
from pipeline.files.content import (
    MOST_COLUMNS,
    ColumnsHead,
    FaultHead,
    UnfinishedFile,
    WholeFile,
    digest_of,
    empty_file,
    examine_file,
    grow_columns,
    open_file,
)
from pipeline.files.layout import (
    Due,
    FileStamp,
    HourPartition,
    KnownFile,
    LogRule,
    PartitionRange,
    Patience,
    WaitingFile,
    is_finished,
    is_overdue,
    judge_file,
)
from pipeline.files.ledger import Ledger, SweepCount, TakenFile, make_private
from pipeline.model import ShardId

PAUSE = 5_000  # files between two pauses of the hashing
NO_TEXT = "a name that is no UTF-8; rename it"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a partition as a look finds it; ``why`` says why it can never be taken.

    A name that is not UTF-8 is shown with escapes.
    """

    part: HourPartition
    name: str
    stamp: FileStamp
    why: str = ""

    @property
    def path(self) -> str:
        """Return its path below the base."""
        return f"{self.part.path}/{self.name}"


def list_folders(at: Path) -> list[str]:
    """Return the names of folders there, and of links to folders; none if *at* does not exist.

    Raises:
        OSError: it cannot be read.
        UnreachableError: a folder has a name that is not UTF-8.
    """
    try:
        with os.scandir(at) as listing:
            found = sorted(one.name for one in listing if _leads_to(one.is_dir))
    except FileNotFoundError:
        return []
    if odd := [name for name in found if not _is_text(name)]:
        raise UnreachableError(f"folder {os.fsencode(odd[0])!r} in {at} has {NO_TEXT}")
    return found


def list_files(base: Path, part: HourPartition, unfinished: tuple[str, ...]) -> Iterator[FoundFile]:
    """Return files of a partition, and links to files, without those with *unfinished* names.

    Raises:
        OSError: it cannot be read.
    """
    return (
        _found(part, name, FileStamp.of(stat)) for name, stat in _entries(base, part, unfinished)
    )


def hash_partition(
    base: Path, part: HourPartition, unfinished: tuple[str, ...]
) -> Generator[None, None, bytes]:
    """Hash names and stamps of the same files to 16 bytes, in the order of the listing.

    It yields now and then, and returns the hash.

    Raises:
        OSError: it cannot be read.
    """
    made = blake2b(digest_size=16)
    for number, (name, stat) in enumerate(_entries(base, part, unfinished), start=1):
        made.update(b"%s/%d/%d/%d/%d\n" % (os.fsencode(name), *FileStamp.of(stat).parts))
        if number % PAUSE == 0:
            yield
    return made.digest()


def _entries(
    base: Path, part: HourPartition, unfinished: tuple[str, ...]
) -> Iterator[tuple[str, os.stat_result]]:
    try:
        listing = os.scandir(base / part.path)
    except FileNotFoundError:
        return
    with listing:
        for one in listing:
            try:
                if is_finished(one.name, unfinished) and _leads_to(one.is_file):
                    yield one.name, one.stat()
            except FileNotFoundError:
                continue  # renamed or deleted meanwhile


def _found(part: HourPartition, name: str, stamp: FileStamp) -> FoundFile:
    if _is_text(name):
        return FoundFile(part, name, stamp)
    escaped = os.fsencode(name).decode("utf-8", "backslashreplace")
    return FoundFile(part, escaped, stamp, f"it has {NO_TEXT}")


def _leads_to(asked: Callable[[], bool]) -> bool:
    """Return the answer of *asked*; False for a link that leads to itself."""
    try:
        return asked()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _is_text(name: str) -> bool:
    """Return whether its bytes are UTF-8: Python uses these characters for bytes that are not."""
    return not any("\udc80" <= one <= "\udcff" for one in name)


def require_disks(base: Path, ledger: Ledger) -> None:
    """Check the disks of all logs, and store in *ledger* which logs have a disk of their own.

    Raises:
        UnreachableError: all known logs are gone, or a disk is.
        OSError: a folder cannot be read.
    """
    known = {ShardId.parse(shard).relation for shard in ledger.columns()}
    found = set(list_folders(base))
    if not base.is_dir() or (known and known.isdisjoint(found)):
        what = f"no folder of {', '.join(sorted(known))}" if known else "no such folder"
        raise UnreachableError(f"files in {base}: {what}; is its disk mounted?")
    own, before = (
        {one for one in found if device_of(base / one) != device_of(base)},
        ledger.own_disks(),
    )
    if device_of(base) != device_of(ROOT):
        own.add(BASE)
    for gone in sorted(before - own):
        if not (base / gone / GONE).is_dir():  # a writer makes folders of its days, mounted or not
            what = "it was on its own disk, and is not now; is that disk mounted?"
            raise UnreachableError(f"files in {base / gone}: {what} {IF_NOT}")
    if own != before:
        ledger.keep_own_disks(own)


def device_of(at: Path) -> int:
    """Return the number of the disk that holds a folder, or the target of a link."""
    return at.stat().st_dev


ROOT, BASE = Path("/"), "."
GONE = "2000_01_01"
IF_NOT = f"If it is gone for good, make the folder {GONE} in its place"


STOPPED = timedelta(minutes=1)  # another process that sweeps must show progress within this time
COARSE = 2.0  # seconds; a folder's change time may not advance for less, though files come
QUIET = float("-inf")


@dataclass(frozen=True, slots=True)
class _HourLook:
    """The change time of a folder, and since when it is known; ``footprint`` if all was taken."""

    changed: int
    since: float
    footprint: bytes = b""


@dataclass(eq=False)
class RestingHours:
    """Remembers the state of each hour's folder, so that unchanged hours are skipped.

    It takes some hundred bytes per hour, however many files are in it.
    """

    base: Path
    unfinished: tuple[str, ...]
    monotonic: Callable[[], float]
    _looks: dict[str, _HourLook] = field(default_factory=dict)

    def changed(self, part: HourPartition) -> int:
        """Return when the server last changed the folder, in nanoseconds; -1 without a folder.

        Its modification time is not used, because it can be set, as rsync does.
        """
        try:
            return (self.base / part.path).stat().st_ctime_ns
        except FileNotFoundError:
            return -1

    def is_quiet(self, part: HourPartition, changed: int) -> bool:
        """Return whether two looks, some time apart, found *changed*, and no other time since."""
        known = self._looks.get(part.path)
        return known is not None and (known.changed, known.since) == (changed, QUIET)

    def footprint(self, part: HourPartition) -> Generator[None, None, bytes]:
        """Return the argument of `looked`, for when all its files are taken."""
        return hash_partition(self.base, part, self.unfinished)

    def is_as_it_was(self, part: HourPartition, footprint: bytes) -> bool:
        """Return whether all of its files were taken when they had this *footprint*."""
        known = self._looks.get(part.path)
        return known is not None and known.footprint == footprint

    def looked(self, part: HourPartition, changed: int, footprint: bytes) -> None:
        """Store what was read before the files; *footprint* is empty unless all were taken."""
        known, now = self._looks.get(part.path), self.monotonic()
        since = now
        if known is not None and known.changed == changed:
            since = QUIET if now - known.since >= COARSE else known.since
        self._looks[part.path] = _HourLook(changed, since, footprint)

    def left(self, part: HourPartition) -> int | None:
        """Return its change time at the last look, and forget it; None without a look."""
        known = self._looks.pop(part.path, None)
        return None if known is None else known.changed

    def forget_others(self, parts: Container[str]) -> None:
        """Forget hours that do not exist any more."""
        self._looks = {path: one for path, one in self._looks.items() if path in parts}


@dataclass(frozen=True, slots=True)
class SweepRules:
    """The rules of a sweep: what is in range, when a file is taken, and the time budget.

    ``database`` is the one whose tables the logs are. Every ``deep``, all that is in range is
    looked at, less often if that takes long. Every ``behind``, hours that are out of range by now
    are looked at. A file is late if it comes more than ``grace`` after the end of its hour.
    """

    database: str
    logs: Mapping[str, LogRule]
    range: PartitionRange
    unfinished: tuple[str, ...]
    patience: Patience
    budget: timedelta
    deep: timedelta
    behind: timedelta
    grace: timedelta

    def rule(self, name: str) -> LogRule:
        """Return the rule of a log."""
        return self.logs.get(name, LogRule())


CHUNK = 500  # files that are looked at, and taken, together
CHANGED = "it was changed after it was read"
UNREAD = "the change was not read; write the new rows to another file"
RENAMED = "was read, then changed and renamed; write the new rows to another file"
TOO_LATE = "they were not read; increase `back`, or move them to an hour in range"
REST = 2  # pause after a look at everything, as a multiple of its duration
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class FileSweep:
    """Sweeps ``base`` into ``ledger``; one process at a time."""

    base: Path
    ledger: Ledger
    rules: SweepRules
    clock: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    _going: Iterator[None] | None = None
    _held: IO[bytes] | None = None
    _resting: RestingHours = field(init=False, repr=False)
    _known: tuple[str, int] = "", 0
    _deep: float = float("-inf")
    _behind: float = float("-inf")
    _first: int = -1
    _since: int = 0
    _columns: dict[str, ColumnsHead] = field(default_factory=dict)
    _inodes: dict[int, tuple[str, KnownFile]] = field(default_factory=dict)
    _other: tuple[SweepCount, datetime] | None = None

    def advance(self) -> bool:
        """Continue the sweep, or begin the next, for no longer than the budget.

        Return False if another process sweeps.

        Raises:
            UnreachableError: the folder or the ledger cannot be read.
        """
        if not self._alone():
            return False
        until = self.monotonic() + self.rules.budget.total_seconds()
        going = self._going or self._sweep()
        self._going = None  # after an error the sweep starts over
        try:
            for _ in going:
                if self.monotonic() >= until:
                    self._going = going
                    break
        except OSError as error:
            raise UnreachableError(f"files in {self.base}: {error}") from error
        return True

    @property
    def lock(self) -> Path:
        """Return the path of the file that the sweeping process locks."""
        return self.ledger.path.with_name(f"{self.ledger.path.name}.lock")

    @property
    def stopped_since(self) -> datetime | None:
        """Return since when another process has the lock without progress; None with progress."""
        if self._other is None or self.clock() - self._other[1] < STOPPED:
            return None
        return self._other[1]

    @property
    def going(self) -> bool:
        """Return whether a sweep has begun and not ended."""
        return self._going is not None

    def close(self) -> None:
        """Release the lock, so that others can sweep."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _alone(self) -> bool:
        if self._held is None:
            try:
                make_private(self.lock)  # a user who can open it can lock it and stop sweeps
                file = self.lock.open("ab")
            except OSError as error:
                raise UnreachableError(f"files in {self.base}: {error}") from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                self._wait_for_other()
                return False
            self._held, self._other = file, None
        return True

    def _wait_for_other(self) -> None:
        count = self.ledger.count()
        if self._other is None or self._other[0] != count:
            self._other = count, self.clock()

    def _sweep(self) -> Iterator[None]:
        number, now = self.ledger.begin(), self.clock()
        self._first = number if self._first < 0 else self._first
        self._since = self._remembered().done + 1  # what is found now may be there since
        self._columns = dict(self.ledger.columns())
        require_disks(self.base, self.ledger)
        began, waits, seen = self.monotonic(), self.ledger.waits(), set[str]()
        whole = began >= self._deep
        for part in self._partitions(now):
            seen.add(part.path)
            yield from self._hour(part, number, whole=whole, waits=part.path in waits)
            yield
        require_disks(self.base, self.ledger)  # a disk that went meanwhile looks empty
        self._unseen(number, now)
        if whole:
            self.ledger.end_sweep(number)
            self._deep = self._next_whole(began)
        if whole and began >= self._behind:  # heartbeats do not wait for this
            yield from self._left(now)
            self._resting.forget_others(seen)
            self._behind = began + self.rules.behind.total_seconds()

    def _remembered(self) -> SweepCount:
        """Return the ledger's counts; forget all hours if it was replaced or rolled back."""
        ledger, count = self.ledger.id, self.ledger.count()
        if ledger != self._known[0] or count.end < self._known[1]:
            self._resting = RestingHours(self.base, self.rules.unfinished, self.monotonic)
        self._known = ledger, count.end
        return count

    def _next_whole(self, began: float) -> float:
        """Return when to look at everything again; a look that exceeds the budget adds a pause."""
        ended, deep = self.monotonic(), self.rules.deep.total_seconds()
        took = ended - began
        rest = REST * took if took > self.rules.budget.total_seconds() else 0.0
        return max(began + deep, ended + rest)

    def _partitions(self, now: datetime) -> Iterator[HourPartition]:
        """Return the partitions in range, log by log, the oldest first."""
        every = self._hours(lambda day: self.rules.range.days(day, now))
        return (part for part in every if self.rules.range.holds(part, now))

    def _hours(self, wanted: Callable[[str], bool]) -> Iterator[HourPartition]:
        """Yield the hours of each log on the days that are *wanted*."""
        for name in list_folders(self.base):
            if is_finished(name, self.rules.unfinished):
                for day in filter(wanted, list_folders(self.base / name)):
                    for hour in list_folders(self.base / name / day):
                        yield HourPartition(name, day, hour)

    def _left(self, now: datetime) -> Iterator[None]:
        """Report hours that got files after they went out of range; older files do not count."""
        for part in self._hours(lambda _: True):
            if not self.rules.range.is_before(part, now):
                continue
            changed, known = self._resting.changed(part), self.ledger.left(part.path)
            if known is None and (looked := self._resting.left(part)) is not None:
                known = looked, looked  # as it was at the last look
            if known is None or known[0] != changed:
                found = [
                    (one.stamp.changed, one.path)
                    for one in list_files(self.base, part, self.rules.unfinished)
                ]
                newest = max([changed, *(at for at, _ in found)])
                new = [path for at, path in found if known is not None and at > known[1]]
                self.ledger.leave(part.path, changed, newest, self._came_after(part, new))
            yield

    def _came_after(self, part: HourPartition, found: Sequence[str]) -> FaultHead | None:
        """Return the report on files that came to it since; None if all were taken."""
        new = sorted(set(found) - self.ledger.taken(found).keys())
        if not new:
            return None
        why = f"{len(new)} files came, such as {new[0]}, after their hour was closed"
        log.warning("files too late", partition=part.path, files=len(new))
        return FaultHead(self._shard(part), part.path, f"{why}; {TOO_LATE}")

    def _hour(
        self, part: HourPartition, number: int, *, whole: bool, waits: bool
    ) -> Iterator[None]:
        """Look at a partition, unless it is unchanged."""
        changed, footprint = self._resting.changed(part), b""
        if not (whole or waits) and self._resting.is_quiet(part, changed):
            return
        if whole and not waits:
            footprint = yield from self._resting.footprint(part)
            if self._resting.is_as_it_was(part, footprint):
                self._resting.looked(part, changed, footprint)
                return
        taken = yield from self._looked_at(part, number)
        self._resting.looked(part, changed, footprint if taken else b"")

    def _looked_at(self, part: HourPartition, number: int) -> Generator[None, None, bool]:
        """Look at every file of a partition, take what is due; return whether all were taken."""
        every, found = True, list_files(self.base, part, self.rules.unfinished)
        while some := list(islice(found, CHUNK)):
            some.sort(key=lambda one: (one.stamp.modified, one.name))
            paths = [one.path for one in some]
            taken, waiting = self.ledger.taken(paths), self.ledger.waiting(paths)
            anew = self._anew([one for one in some if one.path not in waiting], number)
            kept, open_ = dict[str, WaitingFile](), list[tuple[FoundFile, WaitingFile]]()
            for one in some:
                known, waits = taken.get(one.path), waiting.get(one.path)
                now = self.clock().timestamp()
                stood = None if known is None else known.stamp
                what = judge_file(one.stamp, stood, waits, now, self.rules.patience)
                if what is Due.REMEMBER:
                    kept[one.path] = anew(one, waits, now)
                elif waits is not None and waits.stamp == one.stamp:
                    kept[one.path] = waits
                    if what is Due.OPEN:
                        open_.append((one, waits))
            if kept:
                every = False
                self.ledger.wait(part.path, number, kept)
            yield from self._opened(part, open_, taken, number)
            yield
        return every

    def _anew(
        self, news: Sequence[FoundFile], number: int
    ) -> Callable[[FoundFile, WaitingFile | None, float], WaitingFile]:
        """Return a function that makes the wait of a file that is new, or has another stamp.

        A file that waited under an earlier name continues that wait. One that changed between two
        sweeps may be unchanged since.
        """
        firsts = self.ledger.first_by_inode([one.stamp.inode for one in news])

        def begun(one: FoundFile, waits: WaitingFile | None, now: float) -> WaitingFile:
            if waits is None or waits.is_reported:
                first = firsts.get(one.stamp.inode, self._since)
                return WaitingFile(one.stamp, first, now, seen=now)
            unwatched = number == self._first or is_overdue(waits, now, self.rules.patience)
            seen = now if unwatched else waits.seen
            return replace(waits, stamp=one.stamp, since=now, why="", seen=seen)

        return begun

    def _opened(
        self,
        part: HourPartition,
        still: Sequence[tuple[FoundFile, WaitingFile]],
        taken: Mapping[str, KnownFile],
        number: int,
    ) -> Iterator[None]:
        """Open files of a partition that have settled; complete ones are taken together."""
        whole = list[tuple[TakenFile, Sequence[ColumnsHead]]]()
        self._inodes.clear()
        for one, waits in still:
            file = self._read(one, waits, number, taken.get(one.path))
            if file is not None:
                whole.append(file)
            yield
        if whole:
            now = self.clock()
            late = self.rules.range.late(part, now, self.rules.grace)
            self.ledger.take(whole, part.path, sweep=number, at=now.timestamp(), late=late)

    def _unseen(self, number: int, now: datetime) -> None:
        """Forget files that two sweeps did not find: they are gone, or their hour is over.

        One sweep is not enough: a listing may miss a file that is renamed meanwhile.
        """
        for path, waits in self.ledger.unseen(number - 1).items():
            of, day, hour, name = path.split("/", 3)
            part = HourPartition(of, day, hour)
            if not self.rules.range.holds(part, now) and not waits.is_reported and waits.stamp.size:
                why = waits.why or "it kept changing"
                gone = FoundFile(part, name, waits.stamp)
                self._tell(gone, f"{why}; its hour is closed, and it was not taken")
        self.ledger.forget_unseen(number - 1)

    def _read(
        self, one: FoundFile, waits: WaitingFile, number: int, known: KnownFile | None
    ) -> tuple[TakenFile, Sequence[ColumnsHead]] | None:
        """Read a settled file, which is new, or was changed after it was taken as *known*.

        A file that was taken without a row counts as new.
        """
        late = is_overdue(waits, self.clock().timestamp(), self.rules.patience)
        try:
            if one.why:
                self._stuck(one, replace(waits, why=one.why))
            elif known is not None and known.rows:
                self._again(one, known.digest)
            elif waits.why and number != self._first and (one.stamp.size or not late):
                self._stuck(one, waits)
            else:
                return self._new(one, waits, number, None if known is None else known.digest)
        except FileNotFoundError:
            pass  # renamed or deleted meanwhile
        except PermissionError as error:
            self._stuck(one, replace(waits, why=f"it cannot be read: {error.strerror}"))
        return None

    def _new(
        self, one: FoundFile, waits: WaitingFile, number: int, digest: str | None
    ) -> tuple[TakenFile, Sequence[ColumnsHead]] | None:
        part, rule, now = one.part, self.rules.rule(one.part.log), self.clock().timestamp()
        found = self._examined(one, rule, late=is_overdue(waits, now, self.rules.patience))
        if isinstance(found, WholeFile) and found.stamp != one.stamp:
            return None
        if isinstance(found, WholeFile):
            found = self._within_columns(self._shard(part), rule, found)
        taken = self._namesake(one, found) if isinstance(found, WholeFile) else found
        if isinstance(taken, UnfinishedFile) or isinstance(found, UnfinishedFile):
            why = taken.why if isinstance(taken, UnfinishedFile) else ""
            self.ledger.wait(part.path, number, {one.path: replace(waits, why=why)})
            self._stuck(one, replace(waits, why=why))
            return None
        if found.digest == digest:
            self.ledger.seen_again(one.path, found.stamp, digest)
            return None
        file = TakenFile(
            shard=self._shard(part),
            path=one.path,
            day=part.day,
            hour=part.hour,
            kind=rule.kind(one.name),
            stamp=found.stamp.parts,
            digest=found.digest,
            rows=found.rows if taken is None else 0,
            key=rule.key,
        )
        return file, self._news(file.shard, rule, found) if file.rows else []

    def _namesake(self, one: FoundFile, found: WholeFile) -> str | UnfinishedFile | None:
        """Return the other name by which this file was taken, or is now; None without one.

        If the file was changed since, return why it is not taken.
        """
        if not found.rows:
            return None
        own = one.path, KnownFile(found.stamp, found.digest, found.rows)
        now = self._inodes.setdefault(found.stamp.inode, own)
        for path, known in (now, *self.ledger.by_inode(found.stamp.inode, one.part.log)):
            if path == one.path:
                continue
            same = known.digest == found.digest and known.stamp.modified == found.stamp.modified
            if same and not known.changed:
                log.info("file was taken by another name", file=one.path, taken=path)
                return path
            if same or (0 < known.stamp.size < found.stamp.size and self._begins(one, known)):
                return UnfinishedFile(f"it is {path}, which {RENAMED}")
        return None

    def _begins(self, one: FoundFile, known: KnownFile) -> bool:
        """Return whether its first bytes are all those of the *known* file."""
        with open_file(self.base / one.path, self.base) as file:
            return digest_of(file, known.stamp.size) == known.digest

    def _examined(self, one: FoundFile, rule: LogRule, *, late: bool) -> WholeFile | UnfinishedFile:
        if one.stamp.size == 0:
            return empty_file(one.stamp) if late else UnfinishedFile("it is empty")
        kind = rule.kind(one.name)
        if not kind:
            return UnfinishedFile("its name does not show its format; set `format`")
        return examine_file(self.base / one.path, kind, self.base, named=bool(rule.columns))

    def _within_columns(
        self, shard: str, rule: LogRule, found: WholeFile
    ) -> WholeFile | UnfinishedFile:
        """Reject a file whose new columns would exceed the most that a log may have.

        A log in which each file brings new columns costs their square: each time all are written.
        """
        if rule.columns:
            return found
        known, own = self._columns.get(shard), found.columns
        names = set(dict(known.columns)) if known is not None and found.rows else set()
        if not (new := own.keys() - names) or not names or len(names | new) <= MOST_COLUMNS:
            return found
        why = f"with it its log would have {len(names | new)} columns, more than {MOST_COLUMNS}"
        return UnfinishedFile(f"{why}; name those to read under `columns`")

    def _news(self, shard: str, rule: LogRule, found: WholeFile) -> list[ColumnsHead]:
        grown = grow_columns(
            shard, self._columns.get(shard), rule.columns or found.columns, rule.key
        )
        if grown is None:
            return []
        self._columns[shard] = grown
        return [grown]

    def _stuck(self, one: FoundFile, waits: WaitingFile) -> None:
        """Report a file that has been incomplete for too long, once."""
        late = is_overdue(waits, self.clock().timestamp(), self.rules.patience)
        if late and not waits.is_reported and one.stamp.size:
            self._tell(one, f"{waits.why}; it was not taken")

    def _again(self, one: FoundFile, digest: str) -> None:
        """Report a taken file with a new stamp if its bytes changed, and store the stamp.

        A file that changes while it is read keeps waiting.
        """
        with open_file(self.base / one.path, self.base) as file:
            found = digest_of(file)
            if FileStamp.of(os.fstat(file.fileno())) != one.stamp:
                return
        if found != digest:
            self._tell(one, f"{CHANGED} ({one.stamp.size} bytes now), and {UNREAD}")
        self.ledger.seen_again(one.path, one.stamp, found)

    def _shard(self, part: HourPartition) -> str:
        return str(ShardId(self.rules.database, part.log))

    def _tell(self, one: FoundFile, why: str) -> None:
        log.warning("file held", file=one.path, why=why)
        self.ledger.fault(FaultHead(self._shard(one.part), one.path, why), one.path)


def find_strays(base: Path, unfinished: tuple[str, ...]) -> Iterator[str]:
    """Yield paths of files outside the hours' folders, and of folders with other names.

    Names that match *unfinished* are meant to be there. Hours are not searched.

    Raises:
        OSError: a folder cannot be read.
    """
    for log, is_log in _list_folder(base, unfinished):
        if not is_log:
            yield log
            continue
        for day, is_folder in _list_folder(base / log, unfinished):
            if not (is_folder and HourPartition(log, day, "00").is_named):
                yield f"{log}/{day}"
                continue
            for hour, holds in _list_folder(base / log / day, unfinished):
                if not (holds and HourPartition(log, day, hour).is_named):
                    yield f"{log}/{day}/{hour}"


def _list_folder(at: Path, unfinished: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Yield printable names, and whether each is a folder; nothing for a missing folder."""
    for one in sorted(at.iterdir()) if at.is_dir() else ():
        if is_finished(one.name, unfinished):
            yield os.fsencode(one.name).decode("utf-8", "backslashreplace"), one.is_dir()
