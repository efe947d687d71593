"""What lies in the folder that was not taken yet?  One sweep after the other, a budget at a time.

A sweep looks at every hour of every log that is in range.  One whose folder has not changed since
it was looked at twice is passed over, but not by every so many a sweep, which open all: files that
grow in place change no folder.  What is found is ruled by `pipeline.files.stamp`, and what is taken
goes into the ledger; a sweep that was cut short by the end of its process is begun anew.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO

import structlog

from pipeline.errors import UnreachableError
from pipeline.files.columns import grown
from pipeline.files.content import (
    UnfinishedFile,
    WholeFile,
    digest_of,
    examined,
    nothing,
    stamp_of,
)
from pipeline.files.layout import HourPartition, LogRule, PartitionRange, is_finished
from pipeline.files.ledger import Ledger, TakenFile
from pipeline.files.message import ColumnsHead, FaultHead
from pipeline.files.stamp import Due, FileStamp, Patience, WaitingFile, due, overdue
from pipeline.model import ShardId

CHUNK = 500  # files that are looked at, and taken, at once
CHANGED = "it was changed after it was taken"
UNREAD = "nothing of it was read again: what is new in it belongs into a file of another name"
TOO_LATE = "they were not taken: make `back` longer, or put them into an hour in range"
COARSE = 2.0  # seconds: a folder's own time may stand still for less, though files come
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepRules:
    """What is looked at, how patiently, and for how long at a time.

    ``database`` is what logs are tables of.  Every ``deep`` all that is in range is looked at.
    What comes later than ``grace`` after the end of its hour is late.
    """

    database: str
    logs: Mapping[str, LogRule]
    range: PartitionRange
    unfinished: tuple[str, ...]
    patience: Patience
    budget: timedelta
    deep: timedelta
    grace: timedelta

    def rule(self, name: str) -> LogRule:
        """That of a log."""
        return self.logs.get(name, LogRule())


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a partition by its name, as a look finds it."""

    part: HourPartition
    name: str
    stamp: FileStamp

    @property
    def path(self) -> str:
        """Below the base."""
        return f"{self.part.path}/{self.name}"


@dataclass(eq=False)
class FileSweep:
    """Sweeps ``base`` into ``ledger``; one process at a time, whoever comes first."""

    base: Path
    ledger: Ledger
    rules: SweepRules
    clock: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    _going: Iterator[None] | None = None
    _held: IO[bytes] | None = None
    _quiet: dict[str, tuple[int, float]] = field(default_factory=dict)
    _deep: float = float("-inf")
    _first: int = -1
    _columns: dict[str, ColumnsHead] = field(default_factory=dict)
    _inodes: dict[int, tuple[tuple[int, int, str], str]] = field(default_factory=dict)

    def advance(self) -> None:
        """Go on with the sweep, or begin the next, for no longer than the budget.

        Raises:
            UnreachableError: the folder or the ledger cannot be read.
        """
        if not self._alone():
            return
        until = self.monotonic() + self.rules.budget.total_seconds()
        going = self._going or self._sweep()
        self._going = None  # what raises is begun anew
        try:
            for _ in going:
                if self.monotonic() >= until:
                    self._going = going
                    return
        except OSError as error:
            raise UnreachableError(f"files in {self.base}: {error}") from error

    def close(self) -> None:
        """Let others sweep."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _alone(self) -> bool:
        if self._held is None:
            file = self.ledger.path.with_name(f"{self.ledger.path.name}.lock").open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return False
            self._held = file
        return True

    def _sweep(self) -> Iterator[None]:
        number, now = self.ledger.begin(), self.clock()
        self._first = number if self._first < 0 else self._first
        self._columns = dict(self.ledger.columns())
        self._require_logs()
        began = self.monotonic()
        whole = began - self._deep >= self.rules.deep.total_seconds()
        waits = self.ledger.waits()
        for part in self._partitions(now):
            changed = self._changed(part)
            if not whole and part.path not in waits and self._is_quiet(part, changed):
                continue
            yield from self._looked_at(part, number)
            self._looked(part, changed)
            yield
        if whole:
            yield from self._left(now)
        self.ledger.end_sweep(number)
        self._deep = began if whole else self._deep

    def _partitions(self, now: datetime) -> Iterator[HourPartition]:
        """Those in range, log by log, the oldest first."""
        every = self._hours(lambda day: self.rules.range.days(day, now))
        return (part for part in every if self.rules.range.holds(part, now))

    def _hours(self, wanted: Callable[[str], bool]) -> Iterator[HourPartition]:
        """Of every log those of the days that are *wanted*."""
        for name in _folders(self.base):
            if is_finished(name, self.rules.unfinished):
                for day in filter(wanted, _folders(self.base / name)):
                    for hour in _folders(self.base / name / day):
                        yield HourPartition(name, day, hour)

    def _left(self, now: datetime) -> Iterator[None]:
        """Tell of hours that got files when they were looked at no more; what lay there is old."""
        for part in self._hours(lambda _: True):
            if not self.rules.range.is_before(part, now):
                continue
            changed, known = self._changed(part), self.ledger.left(part.path)
            if known is None and part.path in self._quiet:
                known = (self._quiet.pop(part.path)[0],) * 2  # as it was when it was looked at
            if known is None or known[0] != changed:
                found = [(one.stamp.changed, one.path) for one in self._files(part)]
                newest = max([changed, *(at for at, _ in found)])
                new = [path for at, path in found if known is not None and at > known[1]]
                self.ledger.leave(part.path, changed, newest, self._came_after(part, new))
            yield

    def _came_after(self, part: HourPartition, found: Sequence[str]) -> FaultHead | None:
        """What is told of files that came to it since; None if none did that was not taken."""
        new = sorted(set(found) - self.ledger.taken(found).keys())
        if not new:
            return None
        why = f"{len(new)} files came, such as {new[0]}, when their hour was looked at no more"
        log.warning("files too late", partition=part.path, files=len(new))
        return FaultHead(self._shard(part), part.path, f"{why}; {TOO_LATE}")

    def _require_logs(self) -> None:
        """Where all logs are gone that were there, their disk is."""
        known = {ShardId.parse(shard).relation for shard in self.ledger.columns()}
        if not self.base.is_dir() or (known and known.isdisjoint(_folders(self.base))):
            what = f"no folder of {', '.join(sorted(known))}" if known else "no such folder"
            raise UnreachableError(f"files in {self.base}: {what}; is its disk mounted?")

    def _changed(self, part: HourPartition) -> int:
        try:
            return (self.base / part.path).stat().st_mtime_ns
        except FileNotFoundError:
            return -1

    def _is_quiet(self, part: HourPartition, changed: int) -> bool:
        known = self._quiet.get(part.path)
        return known is not None and known[0] == changed and known[1] == float("-inf")

    def _looked(self, part: HourPartition, changed: int) -> None:
        """Quiet is what was the same in two looks, some time apart."""
        known, now = self._quiet.get(part.path), self.monotonic()
        if known is None or known[0] != changed:
            self._quiet[part.path] = changed, now
        elif now - known[1] >= COARSE:
            self._quiet[part.path] = changed, float("-inf")

    def _looked_at(self, part: HourPartition, number: int) -> Iterator[None]:
        """Look at every file of a partition, and take what is due."""
        found = self._files(part)
        while some := list(islice(found, CHUNK)):
            some.sort(key=lambda one: (one.stamp.modified, one.name))
            paths = [one.path for one in some]
            taken, waiting = self.ledger.taken(paths), self.ledger.waiting(paths)
            kept, open_ = dict[str, WaitingFile](), list[tuple[FoundFile, WaitingFile]]()
            for one in some:
                known, waits = taken.get(one.path), waiting.get(one.path)
                now = self.clock().timestamp()
                what = due(one.stamp, known and known[0], waits, now, self.rules.patience)
                if what is Due.REMEMBER:
                    kept[one.path] = WaitingFile(one.stamp, waits.first if waits else number, now)
                elif waits is not None and waits.stamp == one.stamp:
                    kept[one.path] = waits
                    if what is Due.OPEN:
                        open_.append((one, waits))
            if kept:
                self.ledger.wait(part.path, number, kept)
            yield from self._opened(part, open_, taken, number)
            yield
        self.ledger.forget(part.path, number - 1)  # a listing may miss what is renamed meanwhile

    def _opened(
        self,
        part: HourPartition,
        files: Sequence[tuple[FoundFile, WaitingFile]],
        taken: Mapping[str, tuple[FileStamp, str]],
        number: int,
    ) -> Iterator[None]:
        """Open files of a partition that have stood still; what is whole is taken together."""
        whole = list[tuple[TakenFile, Sequence[ColumnsHead]]]()
        self._inodes.clear()
        for one, waits in files:
            known = taken.get(one.path)
            file = self._read(one, waits, number, None if known is None else known[1])
            if file is not None:
                whole.append(file)
            yield
        if whole:
            now = self.clock()
            late = self.rules.range.late(part, now, self.rules.grace)
            self.ledger.take(whole, part.path, sweep=number, at=now.timestamp(), late=late)

    def _files(self, part: HourPartition) -> Iterator[FoundFile]:
        try:
            listing = os.scandir(self.base / part.path)
        except FileNotFoundError:
            return
        with listing:
            for one in listing:
                try:
                    if is_finished(one.name, self.rules.unfinished) and one.is_file():
                        yield FoundFile(part, one.name, stamp_of(one.stat()))
                except FileNotFoundError:
                    continue  # renamed or deleted meanwhile

    def _read(
        self, one: FoundFile, waits: WaitingFile, number: int, digest: str | None
    ) -> tuple[TakenFile, Sequence[ColumnsHead]] | None:
        """A file that has stood still is new, or was taken with *digest* and stands otherwise."""
        try:
            if digest is None and not (waits.why and number != self._first):
                return self._new(one, waits, number)
            if digest is None:
                self._stuck(one, waits)
            else:
                self._again(one, digest)
        except FileNotFoundError:
            pass  # renamed or deleted meanwhile
        except PermissionError as error:
            self._stuck(one, replace(waits, why=f"it cannot be read: {error.strerror}"))
        return None

    def _new(
        self, one: FoundFile, waits: WaitingFile, number: int
    ) -> tuple[TakenFile, Sequence[ColumnsHead]] | None:
        part, rule, now = one.part, self.rules.rule(one.part.log), self.clock().timestamp()
        found = self._examined(one, rule, late=overdue(waits, now, self.rules.patience))
        if isinstance(found, UnfinishedFile):
            self.ledger.wait(part.path, number, {one.path: replace(waits, why=found.why)})
            self._stuck(one, replace(waits, why=found.why))
            return None
        if found.stamp != one.stamp:
            return None
        file = TakenFile(
            shard=self._shard(part),
            path=one.path,
            day=part.day,
            hour=part.hour,
            kind=rule.kind(one.name),
            stamp=found.stamp.parts,
            digest=found.digest,
            rows=0 if self._is_twin(one, found) else found.rows,
            key=rule.key,
        )
        return file, self._news(file.shard, rule, found) if file.rows else []

    def _is_twin(self, one: FoundFile, found: WholeFile) -> bool:
        """Whether the very file was taken under another name, or has two."""
        twin = self.ledger.twin(found.stamp, found.digest) if found.rows else None
        inode, kept = found.stamp.inode, (found.stamp.size, found.stamp.modified, found.digest)
        if twin is None and self._inodes.get(inode, (kept, one.path)) != (kept, one.path):
            twin = self._inodes[inode][1] if self._inodes[inode][0] == kept else None
        self._inodes[inode] = kept, one.path
        if twin is not None:
            log.info("file was taken by another name", file=one.path, taken=twin)
        return twin is not None

    def _examined(self, one: FoundFile, rule: LogRule, *, late: bool) -> WholeFile | UnfinishedFile:
        kind = rule.kind(one.name)
        if not kind:
            return UnfinishedFile("its name does not tell how its rows are written; say `format`")
        if one.stamp.size == 0:
            return nothing(one.stamp) if late else UnfinishedFile("it is empty")
        return examined(self.base / one.path, kind, named=bool(rule.columns))

    def _news(self, shard: str, rule: LogRule, found: WholeFile) -> list[ColumnsHead]:
        told = grown(shard, self._columns.get(shard), rule.columns or found.columns, rule.key)
        if told is None:
            return []
        self._columns[shard] = told
        return [told]

    def _stuck(self, one: FoundFile, waits: WaitingFile) -> None:
        """Tell of a file that is not whole, once it has not been for too long."""
        late = overdue(waits, self.clock().timestamp(), self.rules.patience)
        if late and not waits.told and one.stamp.size:
            self._tell(one, f"{waits.why}; it was not taken")

    def _again(self, one: FoundFile, digest: str) -> None:
        """The same bytes, or another file; what is being read while it changes waits on."""
        with (self.base / one.path).open("rb") as file:
            found = digest_of(file)
            if stamp_of(os.fstat(file.fileno())) != one.stamp:
                return
        if found != digest:
            self._tell(one, f"{CHANGED}, and has {one.stamp.size} bytes now; {UNREAD}")
        self.ledger.seen_again(one.path, one.stamp, found)

    def _shard(self, part: HourPartition) -> str:
        return str(ShardId(self.rules.database, part.log))

    def _tell(self, one: FoundFile, why: str) -> None:
        log.warning("file held", file=one.path, why=why)
        self.ledger.fault(FaultHead(self._shard(one.part), one.path, why), one.path)


def _folders(at: Path) -> list[str]:
    try:
        with os.scandir(at) as listing:
            return sorted(one.name for one in listing if one.is_dir())
    except FileNotFoundError:
        return []
