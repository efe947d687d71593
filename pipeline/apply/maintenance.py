"""Compacts and cleans the mirrors and the change log of one lane.

Maintenance of a mirror runs between its merges, in the process that merges: two commits on one
version conflict. One call works for about 15 seconds, at most 5 minutes with waits, and starts
with the table maintained longest ago. A held mirror is left alone, because a commit on top of a
foreign one would make that one impossible to undo.

Nothing is removed that a reader still needs. A file that left a mirror stays for at least 168
hours. It stays longer if a pinned image or a registered reader needs it.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from pipeline.apply.mirror import CommitStamp, MirrorSnapshot, images_of
from pipeline.apply.table_format import MaintenanceWork, Mirrors
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.maintenance import CleaningTimes, LogMaintenance
from pipeline.checkpoint import Checkpoint
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.settings import PipelineSettings

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = timedelta(seconds=15)
_LONGEST = timedelta(minutes=5)  # including waits for merges
_LEAST = timedelta(hours=168)  # no younger file is removed
_SOME = timedelta(days=1)  # for readers that began to read an image on its last day
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LakeMaintenance:
    """Compacts and cleans one lane's lake.

    Runs in the process that merges, each mirror between merges, because two commits on one version
    conflict. Maintenance of the change log runs beside landing.
    """

    settings: PipelineSettings
    changes: ChangeLog
    mirrors: Mirrors[Any]
    clock: Callable[[], datetime]
    _done: dict[str, datetime] = field(default_factory=dict)
    _left: dict[str, int] = field(default_factory=dict)  # versions after maintenance

    def __post_init__(self) -> None:
        """Set up the maintenance of the change log; nothing is due yet."""
        self._log = LogMaintenance(self.settings, self.changes, self.clock)
        self._cleaning = CleaningTimes(self.settings.upkeep.vacuum_every, self.clock)

    def run(
        self,
        checkpoint: Checkpoint,
        readers: Mapping[str, int],
        applied: Mapping[str, int],
        held: Callable[[str], bool],
        *,
        key: Callable[[str], tuple[str, ...]] = lambda _: (),
        lock: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Do what is due for the change log and all mirrors, for some seconds; the rest next time.

        The mirror maintained longest ago comes first.

        *readers*: table -> lowest version that a registered reader still needs.
        *applied*: table -> applied batch; no day that holds a later one is dropped.
        *held*: whether to skip a mirror, because our commit on top of a foreign one would make that
        one impossible to undo. Called only for mirrors that are due.
        *key*: table -> its key columns, by which rows are sorted; empty if unknown.
        *lock*: the lock of the mirror of a table; merges run between two mirrors.
        """
        try:
            self._log.run(checkpoint, applied)
        except (HeldError, UnreachableError) as error:
            log.warning("maintenance of the change log failed", why=str(error))
        began, spent = self.clock(), timedelta()
        for table in sorted(
            checkpoint.tables, key=lambda name: (self._done.get(name, _NEVER), name)
        ):
            if not self._waiting(table):
                continue
            with lock(table):
                taken = self.clock()
                self._done[table] = taken
                self._kept_well(table, readers.get(table), held, key)
                spent += self.clock() - taken
            if spent > _AT_ONCE or taken - began > _LONGEST:
                return

    def _waiting(self, table: str) -> bool:
        """Whether the mirror has a new version since its last maintenance, or is due for cleaning.

        Uses what merges know of it, because listing every mirror would be too expensive.
        """
        seen = self.mirrors.seen(table)
        if seen is None:
            return not self.mirrors.is_absent(table)
        return self._left.get(table) != seen.version or self._cleaning.due(table)

    def _kept_well(
        self,
        table: str,
        read: int | None,
        held: Callable[[str], bool],
        key: Callable[[str], tuple[str, ...]],
    ) -> None:
        try:
            left = self._mirror(table, read, held, key)
        except LostRaceError:
            return  # another writer committed first; next time
        except (HeldError, UnreachableError) as error:
            log.warning("maintenance of a mirror failed", table=table, why=str(error))
        else:
            if left is not None:
                self._left[table] = left

    def _mirror(
        self,
        table: str,
        read: int | None,
        held: Callable[[str], bool],
        key: Callable[[str], tuple[str, ...]],
    ) -> int | None:
        """Do what is due for one mirror; return its version, None if it must be looked at again."""
        table_format, seen = self.mirrors.table_format, self.mirrors.seen(table)
        cleaning = self._cleaning.due(table)
        if seen is not None and not (table_format.worn(seen) or cleaning):
            return int(seen.version)
        snapshot = self.mirrors.look(table)
        if snapshot is None or held(table):
            return None
        keep = None
        if cleaning:
            self._cleaning.cleaned(table)
            keep = self._keep(table, snapshot, read)
        stamp = CommitStamp(self.settings.lane, self.clock())
        made = table_format.kept(snapshot, MaintenanceWork(stamp, key(table), keep))
        self.mirrors.remember(table, made)
        return None if table_format.worn(made) else made.version

    def _keep(self, table: str, snapshot: MirrorSnapshot, read: int | None) -> timedelta | None:
        """How long removed files stay; None (forever) while a reader needs an older version."""
        kept = max(self.settings.upkeep.keep_versions, _LEAST, self._imaged(snapshot))
        since = self._since(table, snapshot, read)
        return kept if since is not None and self.clock() - since <= kept else None

    def _imaged(self, snapshot: MirrorSnapshot) -> timedelta:
        """The longest time for which a pinned image is kept, plus a margin.

        Files that an image needs were removed from the mirror after the image was made. Images in
        Parquet need no time here: they are written long before the minimum of 168 hours is over.
        """
        now = self.clock()
        held = (one.keep + _SOME for one in images_of(snapshot) if one.pinned and one.held(now))
        return max(held, default=timedelta())

    def _since(self, table: str, snapshot: MirrorSnapshot, read: int | None) -> datetime | None:
        """Commit time of version *read*, now if it is the newest; None if the log no longer has it.

        Files that it needs were removed later than that, by the stamps of the log.
        """
        if read is None or read >= snapshot.version:
            return self.clock()
        return next((one.at for one in self.mirrors.commits(table, read)), None)
