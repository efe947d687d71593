"""Sweeps the hourly folders of file logs, and takes complete files into the ledger.

A sweep looks at every hour in range of every log; each call continues it for a time budget.
Most sweeps skip hours whose folder has not changed since two earlier looks. A file that grows
in place changes no folder. So some sweeps ask for the stamp of every file, and only these
answer heartbeats. A sweep that is cut short by the end of its process starts over.

`pipeline.files.layout` decides when a file may be taken. One process sweeps at a time, held by
a lock file. The state of folders is kept in memory, so the first sweep after a start looks at
everything.

An unmounted disk looks like a folder without files. The ledger remembers which logs have a disk
of their own, and a missing disk raises UnreachableError.

File names are bytes: a name that is not UTF-8 is reported, and its file is never taken. Links
may lead nowhere, and files may vanish during a listing. Files outside the hourly folders are
never taken and delay nothing; `strays` lists them.
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

PAUSE = 5_000  # files between two pauses of who digests them
NO_TEXT = "a name that is no UTF-8; rename it"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a partition by its name, as a look finds it; ``why`` it can never be taken, if so.

    A name that is no UTF-8 is shown with replacements.
    """

    part: HourPartition
    name: str
    stamp: FileStamp
    why: str = ""

    @property
    def path(self) -> str:
        """Below the base."""
        return f"{self.part.path}/{self.name}"


def list_folders(at: Path) -> list[str]:
    """Names of what is a folder there, or a link to one; none where nothing is there.

    Raises:
        OSError: it cannot be read.
        UnreachableError: one has a name that is no text.
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
    """Files of a partition, or links to some, but for those whose names say *unfinished*.

    Raises:
        OSError: it cannot be read.
    """
    return (
        _found(part, name, FileStamp.of(stat)) for name, stat in _entries(base, part, unfinished)
    )


def hash_partition(
    base: Path, part: HourPartition, unfinished: tuple[str, ...]
) -> Generator[None, None, bytes]:
    """Names and stamps of the same files in 16 bytes, in the order in which they are listed.

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
    """Whether it is one; a link that leads round in a circle is nothing."""
    try:
        return asked()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _is_text(name: str) -> bool:
    """Whether its bytes are UTF-8: Python has these characters for those that are not."""
    return not any("\udc80" <= one <= "\udcff" for one in name)


def require_disks(base: Path, ledger: Ledger) -> None:
    """Remember in *ledger* which logs lie on disks of their own, and whether all of them do.

    Raises:
        UnreachableError: all logs that were there are gone, or the disk of one or all.
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
    """The number of the disk that a folder, or what a link leads to, lies on."""
    return at.stat().st_dev


ROOT, BASE = Path("/"), "."
GONE = "2000_01_01"
IF_NOT = f"If it is gone for good, make the folder {GONE} in its place"


STOPPED = timedelta(minutes=1)  # a sweep of another process begins, ends or takes by then
COARSE = 2.0  # seconds: a folder's own time may stand still for less, though files come
QUIET = float("-inf")


@dataclass(frozen=True, slots=True)
class _HourLook:
    """When a folder had changed, and since when it is known so; its footprint if all was taken."""

    changed: int
    since: float
    footprint: bytes = b""


@dataclass(eq=False)
class RestingHours:
    """Some hundred bytes for each hour that is looked at, however many files lie in it."""

    base: Path
    unfinished: tuple[str, ...]
    monotonic: Callable[[], float]
    _looks: dict[str, _HourLook] = field(default_factory=dict)

    def changed(self, part: HourPartition) -> int:
        """When its server last changed the folder: its own time can be set, as rsync does."""
        try:
            return (self.base / part.path).stat().st_ctime_ns
        except FileNotFoundError:
            return -1

    def is_quiet(self, part: HourPartition, changed: int) -> bool:
        """Whether two looks, some time apart, found that it had *changed* then, and none since."""
        known = self._looks.get(part.path)
        return known is not None and (known.changed, known.since) == (changed, QUIET)

    def footprint(self, part: HourPartition) -> Generator[None, None, bytes]:
        """The argument of `looked`, once all its files are taken."""
        return hash_partition(self.base, part, self.unfinished)

    def is_as_it_was(self, part: HourPartition, footprint: bytes) -> bool:
        """Whether all of its files were taken when they had the same."""
        known = self._looks.get(part.path)
        return known is not None and known.footprint == footprint

    def looked(self, part: HourPartition, changed: int, footprint: bytes) -> None:
        """Remember what was asked before its files were looked at; empty unless all were taken."""
        known, now = self._looks.get(part.path), self.monotonic()
        since = now
        if known is not None and known.changed == changed:
            since = QUIET if now - known.since >= COARSE else known.since
        self._looks[part.path] = _HourLook(changed, since, footprint)

    def left(self, part: HourPartition) -> int | None:
        """When it had changed as it was looked at last; None if it never was, or that was asked."""
        known = self._looks.pop(part.path, None)
        return None if known is None else known.changed

    def forget_others(self, parts: Container[str]) -> None:
        """Those that are not there any more."""
        self._looks = {path: one for path, one in self._looks.items() if path in parts}


@dataclass(frozen=True, slots=True)
class SweepRules:
    """What is looked at, how patiently, and for how long at a time.

    ``database`` is what logs are tables of.  Every ``deep`` all that is in range is looked at, or
    more seldom where that takes long; every ``behind`` hours that were left are.  What comes later
    than ``grace`` after the end of its hour is late.
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
        """That of a log."""
        return self.logs.get(name, LogRule())


CHUNK = 500  # files that are looked at, and taken, at once
CHANGED = "it was changed after it was read"
UNREAD = "the change was not read; write the new rows to another file"
RENAMED = "was read, then changed and renamed; write the new rows to another file"
TOO_LATE = "they were not read; increase `back`, or move them to an hour in range"
REST = 2  # times as long as a look at everything took there is none
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
        """Go on with the sweep, or begin the next, for no longer than the budget.

        False where another process sweeps.

        Raises:
            UnreachableError: the folder or the ledger cannot be read.
        """
        if not self._alone():
            return False
        until = self.monotonic() + self.rules.budget.total_seconds()
        going = self._going or self._sweep()
        self._going = None  # what raises is begun anew
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
        """The file that the process which sweeps holds."""
        return self.ledger.path.with_name(f"{self.ledger.path.name}.lock")

    @property
    def stopped_since(self) -> datetime | None:
        """Since when another process holds the lock without progress; None while it has some."""
        if self._other is None or self.clock() - self._other[1] < STOPPED:
            return None
        return self._other[1]

    @property
    def going(self) -> bool:
        """Whether a sweep was begun that has not ended."""
        return self._going is not None

    def close(self) -> None:
        """Let others sweep."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _alone(self) -> bool:
        if self._held is None:
            try:
                make_private(self.lock)  # who may open it may hold it, and so stop all sweeps
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
        self._since = self._remembered().done + 1  # what is found now may lie there since then
        self._columns = dict(self.ledger.columns())
        require_disks(self.base, self.ledger)
        began, waits, seen = self.monotonic(), self.ledger.waits(), set[str]()
        whole = began >= self._deep
        for part in self._partitions(now):
            seen.add(part.path)
            yield from self._hour(part, number, whole=whole, waits=part.path in waits)
            yield
        require_disks(self.base, self.ledger)  # all the while: one that went held no files
        self._unseen(number, now)
        if whole:
            self.ledger.end_sweep(number)
            self._deep = self._next_whole(began)
        if whole and began >= self._behind:  # no heartbeat waits for that
            yield from self._left(now)
            self._resting.forget_others(seen)
            self._behind = began + self.rules.behind.total_seconds()

    def _remembered(self) -> SweepCount:
        """What the ledger says; nothing is known of hours once another is in its place."""
        ledger, count = self.ledger.id, self.ledger.count()
        if ledger != self._known[0] or count.end < self._known[1]:
            self._resting = RestingHours(self.base, self.rules.unfinished, self.monotonic)
        self._known = ledger, count.end
        return count

    def _next_whole(self, began: float) -> float:
        """When all is to be looked at again: what does not fit into one question rests, too."""
        ended, deep = self.monotonic(), self.rules.deep.total_seconds()
        took = ended - began
        rest = REST * took if took > self.rules.budget.total_seconds() else 0.0
        return max(began + deep, ended + rest)

    def _partitions(self, now: datetime) -> Iterator[HourPartition]:
        """Those in range, log by log, the oldest first."""
        every = self._hours(lambda day: self.rules.range.days(day, now))
        return (part for part in every if self.rules.range.holds(part, now))

    def _hours(self, wanted: Callable[[str], bool]) -> Iterator[HourPartition]:
        """The hours of each log on the days that are *wanted*."""
        for name in list_folders(self.base):
            if is_finished(name, self.rules.unfinished):
                for day in filter(wanted, list_folders(self.base / name)):
                    for hour in list_folders(self.base / name / day):
                        yield HourPartition(name, day, hour)

    def _left(self, now: datetime) -> Iterator[None]:
        """Tell of hours that got files when they were looked at no more; what lay there is old."""
        for part in self._hours(lambda _: True):
            if not self.rules.range.is_before(part, now):
                continue
            changed, known = self._resting.changed(part), self.ledger.left(part.path)
            if known is None and (looked := self._resting.left(part)) is not None:
                known = looked, looked  # as it was when it was looked at
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
        """The report on files that came to it since; None if all were taken."""
        new = sorted(set(found) - self.ledger.taken(found).keys())
        if not new:
            return None
        why = f"{len(new)} files came, such as {new[0]}, after their hour was closed"
        log.warning("files too late", partition=part.path, files=len(new))
        return FaultHead(self._shard(part), part.path, f"{why}; {TOO_LATE}")

    def _hour(
        self, part: HourPartition, number: int, *, whole: bool, waits: bool
    ) -> Iterator[None]:
        """Look at a partition, unless it rests."""
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
        """Look at every file of a partition, and take what is due; true if all were taken."""
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
        """How a file begins to wait, or has another stamp.

        A file that waited under an earlier name goes on waiting.  One that changed between two
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
        """Open files of a partition that rest; complete ones are taken together."""
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
        """Forget files that two sweeps did not come to: they went, or their hour is over.

        One listing may miss what is renamed meanwhile.
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
        """A file that rests: it is new, or was changed after it was taken as *known*.

        One that was taken without a row is as good as new.
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
        """By which name the very file was taken, or has now; why it is not, if it grew since."""
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
        """Whether its first bytes are all those of a file that was *known*."""
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
        """Refuse a file whose new columns the log has no room for.

        A log in which each file brings new ones costs their square: each time all are written.
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
        """Tell of a file that is not whole, once it has not been for too long."""
        late = is_overdue(waits, self.clock().timestamp(), self.rules.patience)
        if late and not waits.is_reported and one.stamp.size:
            self._tell(one, f"{waits.why}; it was not taken")

    def _again(self, one: FoundFile, digest: str) -> None:
        """The same bytes, or another file; what is being read while it changes waits on."""
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
    """Files above the hours' folders, and folders that are named otherwise, by their paths.

    What is named as *unfinished* is meant to lie there.  Hours are not looked into.

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
    """Printable names, and whether each is a folder; empty for a missing folder."""
    for one in sorted(at.iterdir()) if at.is_dir() else ():
        if is_finished(one.name, unfinished):
            yield os.fsencode(one.name).decode("utf-8", "backslashreplace"), one.is_dir()
