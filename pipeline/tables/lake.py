"""Reads the content of a lake: its checkpoint, its mirrors, its change log.

A reader is pinned to the version that was newest when it was opened; open another to see more.
Mirrors are in the table format that the settings name; the change log is always Delta.
"""

import threading
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Any

from pipeline.apply.image_export import FoundImages, WrittenImages
from pipeline.apply.mirror import Commit, MirrorSide, MirrorSnapshot, batch_of, images_of
from pipeline.apply.table_format import Mirrors, TableFormat
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.key_search import FooterBounds, KeySearch, SoughtKeys, find_key_changes
from pipeline.changelog.reader import LogReader
from pipeline.changelog.table import build_app_id
from pipeline.changelog.transactions import FindIncarnation, LogMemory, unknown_incarnation
from pipeline.checkpoint import Checkpoint
from pipeline.delta.log import is_newest, read_digest
from pipeline.delta.reader import SnapshotReader, open_table, translate_errors
from pipeline.delta.store import open_store
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.image import Image
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Table
from pipeline.settings import PipelineSettings

FIRST_LOOK = 100  # commits
READERS = 2_000  # cached mirror readers, each while its version is the newest


@dataclass(eq=False)
class Lake:
    """The change log and the mirrors of one lane, in the lake of its settings."""

    settings: PipelineSettings
    table_format: TableFormat[Any, Any]
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)  # of the change log
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)  # of each mirror

    _readers: dict[str, tuple[tuple[str, int, str, Table], MirrorSide]] = field(
        default_factory=dict, repr=False
    )

    _footers: FooterBounds = field(default_factory=FooterBounds, repr=False)
    _opened: tuple[SnapshotReader, str] | None = field(default=None, repr=False)  # and its digest

    def __post_init__(self) -> None:
        """Create the readers; nothing is read yet."""
        self._log = ChangeLog(open_store(self.settings.changes), self.settings.lane)
        self._mirrors = Mirrors(self.settings, self.table_format)
        self._found = FoundImages(WrittenImages(self.settings))

    def checkpoint(self) -> Checkpoint | None:
        """The newest batch's checkpoint; None before the first batch.

        Raises:
            HeldError: ``mark_lost``, a batch is numbered but its checkpoint is missing.
        """
        with self._lock, translate_errors(self.settings.changes):
            return self._log.checkpoint()

    def applied(self, table: str) -> MirrorPosition | None:
        """The position of a mirror, batch -1 before its first; None if it does not exist.

        Raises:
            HeldError: its log is incomplete; ``table_replaced``, it is another table's mirror.
            UnreachableError: it is unknown whether it exists.
        """
        found = self._newest(table)
        if found is None:
            return None
        batch = batch_of(found, self.settings.lane)
        images = self._images(table, found)
        return MirrorPosition(found.version, batch, found.id, images, entry=found.entry)

    def _images(self, table: str, found: MirrorSnapshot) -> tuple[Image, ...]:
        """The images that can be read: exported and cloned ones only if the copy exists."""
        images = images_of(found)
        return self._found.of(table, images, found.id) if images else ()

    def mirror(self, table: Table) -> MirrorSide:
        """The newest version of a mirror, pinned.

        Opening a Delta table costs milliseconds, so the reader is cached while the version is the
        newest.

        Raises:
            ProofError: there is no mirror yet.
            UnreachableError: another table's mirror is in its folder.
        """
        uri, newest = self.settings.mirror(table.name), self._seen(table.name)
        about = None if newest is None else (newest.id, newest.version, newest.entry, table)
        if about is not None and (known := self._readers.get(table.name)) and known[0] == about:
            return known[1]
        self._readers.pop(table.name, None)
        found = self.table_format.reader(uri, table, self.settings.lane)
        if found is None:
            raise ProofError(f"{table.name} has no mirror at {uri} yet; wait for its first merge")
        if about is not None and found.version == about[1]:  # a commit may have come meanwhile
            while len(self._readers) >= READERS:  # for those who read all in turn
                self._readers.pop(next(reversed(self._readers)), None)
            self._readers[table.name] = (about, found)
        return found

    def _seen(self, table: str) -> MirrorSnapshot | None:
        """The newest version; None without one, or if its log is incomplete.

        Raises:
            UnreachableError: another table's mirror is in its folder.
        """
        try:
            return self._newest(table)
        except HeldError as error:
            if error.reason == "table_replaced":
                raise UnreachableError(str(error)) from error
            return None

    def changes(
        self,
        memory: LogMemory | None = None,
        incarnation: FindIncarnation = unknown_incarnation,
    ) -> LogReader:
        """The newest version of the change log, pinned; what *memory* holds is not read again.

        With *incarnation*, the memory notices that the log was restored and landed again.

        Raises:
            ProofError: there is no change log yet.
        """
        found = self._open_changes()
        if memory is None:
            return LogReader(found, self.settings.lane)
        newest = found.transaction(build_app_id(self.settings.lane))
        memory.of(found.id, -1 if newest is None else newest, incarnation)
        return LogReader(found, self.settings.lane, memory)

    def _open_changes(self) -> SnapshotReader:
        """The newest version; it is opened once for all callers while it is the newest.

        Opening lists the log and reads its newest checkpoint: 85 ms after a day with a commit a
        second, against 0.1 ms to see that nothing has been committed since.
        """
        store, opened = self._log.store, self._opened
        with translate_errors(self.settings.changes):
            if opened is not None and is_newest(store, opened[0].version, opened[1]):
                return opened[0]
        found = open_table(self.settings.changes)
        if found is None:
            raise ProofError(f"there is no change log at {self.settings.changes} yet")
        with translate_errors(self.settings.changes):
            self._opened = found, read_digest(store, found.version)
        return found

    def key_changes(self, sought: SoughtKeys) -> KeySearch:
        """Search the newest version of the change log for keys.

        Raises:
            ProofError: there is no change log yet.
        """
        with self._lock, translate_errors(self.settings.changes):
            snapshot = self._log.look()
        if snapshot is None:
            raise ProofError(f"there is no change log at {self.settings.changes} yet")
        with translate_errors(self.settings.changes):
            return find_key_changes(self._log.store, snapshot, sought, self._footers)

    def version_at(self, table: str, instant: datetime) -> tuple[int, datetime]:
        """The version of the mirror that was the newest at *instant*, and its commit time.

        Raises:
            ProofError: its log does not go back so far, or there is no mirror yet.
        """
        newest = self._newest(table)
        if newest is None:
            raise ProofError(f"{table} has no mirror yet; wait for its first merge")
        oldest = newest.version
        for one in self._mirrors.commits(table, newest.version):
            if one.at <= instant:
                return one.version, one.at
            oldest = one.version
        msg = f"the log of mirror {table} begins at version {oldest}, after {instant.isoformat()}"
        raise ProofError(msg)

    def history(
        self, table: str, since: int | None, until: int | None = None
    ) -> tuple[Commit, ...]:
        """Commits of a mirror after version *since*, oldest first; empty without a mirror.

        None: the newest hundred, or as many of them as the log still has.  With *until*, only
        commits up to that version are read.

        Raises:
            ProofError: a commit is no longer in the log.
        """
        newest = self._newest(table)
        if newest is None:
            return ()
        first = newest.version - FIRST_LOOK if since is None else since
        last = newest.version if until is None else min(until, newest.version)
        commits = takewhile(lambda one: one.version > first, self._mirrors.commits(table, last))
        found = tuple(commits)[::-1]
        if since is not None and len(found) < last - since:
            gone = last - len(found)
            msg = f"version {gone} of mirror {table} is no longer in its log"
            raise ProofError(msg)
        return found

    def _newest(self, table: str) -> MirrorSnapshot | None:
        """The newest version of a mirror, even if it was replaced by a new one of its table."""
        lock = self._locks.setdefault(table, threading.Lock())  # one that hangs blocks no other
        with lock, translate_errors(self.settings.mirror(table)):
            try:
                return self._mirrors.look(table)
            except HeldError as error:
                if error.reason != "table_replaced":
                    raise
                return self._mirrors.look(table)
