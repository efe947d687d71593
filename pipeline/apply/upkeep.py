"""Few files, short logs: each in the table's own turn, taking nothing that a reader still needs."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import structlog

from pipeline.apply.layout import Layout
from pipeline.apply.mirror_files import MirrorFiles
from pipeline.apply.mirror_writer import why_spark
from pipeline.apply.mirrors import Mirrors, following
from pipeline.apply.rewrite import rewrite
from pipeline.apply.worn_files import LARGE, worn
from pipeline.apply.write import Target
from pipeline.changelog import compaction
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.sorted_file import PARTITION
from pipeline.changelog.table import APPS, DROPPED, app
from pipeline.errors import HeldError, UnreachableError
from pipeline.lake import checkpoints, vacuum
from pipeline.lake.actions import removed
from pipeline.lake.alterations import with_properties
from pipeline.lake.commit import LostRaceError, commit
from pipeline.lake.log import ActiveFile, Snapshot
from pipeline.lake.protocol import refuse
from pipeline.lake.store import Store
from pipeline.mark import Mark
from pipeline.model import Op
from pipeline.settings import PipelineSettings

KEPT = (Op.DDL, Op.MARK, Op.ERROR)  # they tell what no other row does
COMPACTS = "OPTIMIZE"
_KEPT = "delta.deletedFileRetentionDuration"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = timedelta(seconds=15)
_LONGEST = timedelta(minutes=5)  # with the merges it waits for
_BEGINNING = timedelta(minutes=10)
_LEAST = timedelta(hours=168)  # nothing younger is ever taken
_HISTORY = timedelta(days=30)  # Delta's own default for its log
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Upkeep:
    """Compact and clean one lane's lake.

    Runs in the process that merges, each mirror between merges: two commits on one version are one
    too many.  The change log is compacted beside landing, which wins where both want a version.
    ``compact`` is Spark's way, for mirrors that it merges; it cleans and checkpoints those itself.
    """

    settings: PipelineSettings
    changes: ChangeLog
    mirrors: Mirrors
    clock: Callable[[], datetime]
    compact: Callable[[Store, Snapshot, str], Snapshot] | None = None
    _vacuumed: dict[str, datetime] = field(default_factory=dict)
    _done: dict[str, datetime] = field(default_factory=dict)
    _checkpointed: dict[str, int] = field(default_factory=dict)
    _whole: dict[str, int] = field(default_factory=dict)  # rows of files that do not become larger
    _left: dict[str, int] = field(default_factory=dict)  # the version each mirror was left in

    def run(
        self,
        mark: Mark,
        readers: Mapping[str, int],
        applied: Mapping[str, int],
        held: Callable[[str], bool],
        *,
        key: Callable[[str], tuple[str, ...]] = lambda _: (),
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Do what is due of the change log and all mirrors, for some seconds; the rest next time.

        Whose turn is longest ago comes first.

        *readers*: table -> lowest version that a registered reader still needs.
        *applied*: table -> applied batch; no day that holds a later one is dropped.
        *held*: whether to leave a mirror alone: a commit of ours on top of somebody else's would
        make it impossible to take that one back.  Asked only of mirrors that are due.
        *key*: table -> its key's columns, by which rows are sorted; none where it is not known.
        *turn*: what to be in while one mirror is looked at, so that merges come in between.
        """
        try:
            self._log(mark, applied)
        except (HeldError, UnreachableError) as error:
            log.warning("upkeep left the change log alone", why=str(error))
        began, spent = self.clock(), timedelta()
        for table in sorted(mark.tables, key=lambda name: (self._done.get(name, _NEVER), name)):
            if not self._waiting(table):
                continue
            with turn():
                taken = self.clock()
                self._done[table] = taken
                self._kept_well(table, readers.get(table), held, key)
                spent += self.clock() - taken
            if spent > _AT_ONCE or taken - began > _LONGEST:
                return

    def _waiting(self, table: str) -> bool:
        """Whether the mirror has another version than it was left in, or is to be cleaned.

        By what merges know of it: as many mirrors as there are would each be listed.
        """
        seen = self.mirrors.seen(table)
        if seen is None:
            return not self.mirrors.absent(table)
        return self._left.get(table) != seen.version or self._due(table)

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
            return  # somebody came between; next time
        except (HeldError, UnreachableError) as error:
            log.warning("upkeep left a mirror alone", table=table, why=str(error))
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
        """Do what is due of one; the version it is left in, None if it is to be looked at again."""
        seen = self.mirrors.seen(table)
        if seen is not None and not (self._wants(table, seen) or self._due(table)):
            return seen.version
        snapshot = self.mirrors.look(table)
        if snapshot is None or held(table):
            return None
        files, store = self._worn(table, snapshot), self.mirrors.store(table)
        if self.compact is not None and why_spark(snapshot) is not None:
            if files:
                snapshot = self.compact(store, snapshot, self.settings.lane)
                self.mirrors.know(table, snapshot)
            self._vacuumed[table] = self.clock()
            return snapshot.version
        refuse(snapshot)
        if files:
            snapshot = self._compact(table, snapshot, files, key(table))
        if self._entries(table, snapshot):
            checkpoints.checkpoint(store)
            self._checkpointed[table] = snapshot.version
        if self._due(table):
            snapshot = self._clean(table, snapshot, read) or snapshot
        return None if self._worn(table, snapshot) else snapshot.version

    def _worn(self, table: str, snapshot: Snapshot) -> tuple[ActiveFile, ...]:
        return worn(snapshot.files.values(), self._whole.get(table, LARGE))

    def _wants(self, table: str, snapshot: Snapshot) -> bool:
        return bool(self._worn(table, snapshot)) or self._entries(table, snapshot)

    def _entries(self, name: str, snapshot: Snapshot) -> bool:
        """Whether so many versions have come since a checkpoint that reading by them costs."""
        known = max(self._checkpointed.get(name, -1), snapshot.checkpoint)
        return snapshot.version - known >= checkpoints.EVERY

    def _due(self, name: str) -> bool:
        """Whether it is time to vacuum.  A process that began waits a little.

        Not for the whole time, or one that is restarted more often would never clean up.
        """
        now, often = self.clock(), self.settings.upkeep.vacuum_every
        first = now - often + min(often, _BEGINNING)
        return now - self._vacuumed.setdefault(name, first) >= often

    def _compact(
        self,
        table: str,
        snapshot: Snapshot,
        files: tuple[ActiveFile, ...],
        key: tuple[str, ...],
    ) -> Snapshot:
        store = self.mirrors.store(table)
        layout = Layout.of(snapshot.metadata)
        mirror = MirrorFiles(store=store, files=files, layout=layout)
        target = Target(store, snapshot.metadata, key, self.clock(), compression="zstd")
        made = rewrite(mirror, target, data_change=False)
        if len(made.files) > 1:  # those before the last have all that is held in memory at once
            self._whole[table] = min(made.files[:-1]) // 2
        compacted = commit(
            store,
            snapshot,
            made.actions,
            operation=COMPACTS,
            clock=self.clock(),
            note=following(snapshot, -1, self.settings.lane),
        )
        self.mirrors.know(table, compacted)
        return compacted

    def _clean(self, table: str, snapshot: Snapshot, read: int | None) -> Snapshot | None:
        """Take what no kept version needs; nothing at all while somebody reads an older one."""
        store = self.mirrors.store(table)
        self._vacuumed[table] = self.clock()
        kept = max(self.settings.upkeep.keep_versions, _LEAST)
        since = self._since(table, snapshot, read)
        if since is None or self.clock() - since > kept:
            return None
        snapshot = self._keeping(table, snapshot, kept)
        vacuum.vacuum(store, kept)
        vacuum.sweep_vectors(store, snapshot, self.clock() - kept)
        checkpoints.sweep(store, self.clock() - kept)
        checkpoints.clean(store)
        return snapshot

    def _keeping(self, table: str, snapshot: Snapshot, kept: timedelta) -> Snapshot:
        """Let the log remember for so long which files have left; a checkpoint forgets the rest.

        On the version that was looked at, or not at all: nothing of ours hides another's commit.
        """
        files, entries = (
            f"interval {math.ceil(time / timedelta(hours=1))} hours"
            for time in (kept, max(kept, _HISTORY))
        )
        wanted = {_KEPT: files, "delta.logRetentionDuration": entries}
        actions = with_properties(snapshot, wanted)
        if not actions:
            return snapshot
        told = following(snapshot, -1, self.settings.lane)
        made = commit(
            self.mirrors.store(table),
            snapshot,
            actions,
            operation="SET TBLPROPERTIES",
            clock=self.clock(),
            note=told,
        )
        self.mirrors.know(table, made)
        return made

    def _since(self, table: str, snapshot: Snapshot, read: int | None) -> datetime | None:
        """When version *read* was committed, now if it is the newest; None if no log tells.

        What it needs was removed later than that, by the stamps of the log.
        """
        if read is None or read >= snapshot.version:
            return self.clock()
        return next((one.at for one in self.mirrors.commits(table, read)), None)

    def _log(self, mark: Mark, applied: Mapping[str, int]) -> None:
        """Compact the change log, and drop its oldest days that nobody needs any more."""
        if self.changes.look() is None:
            return
        store = self.changes.store
        self._forget_marks()
        while files := compaction.joinable(self.changes.snapshot):
            made = compaction.join(store, self.changes.snapshot, files, self.clock())
            if not self._committed(made.actions, COMPACTS):
                break
        if self._entries("", self.changes.snapshot):
            checkpoints.checkpoint(store)
            self._checkpointed[""] = self.changes.snapshot.version
        if self._due(""):
            self._vacuumed[""] = self.clock()
            self._drop(mark, applied)
            vacuum.vacuum(store, timedelta(days=1))  # batches are never read by version
            checkpoints.sweep(store, self.clock() - timedelta(days=1))
            checkpoints.clean(store)

    def _forget_marks(self) -> None:
        """Let go of markers that the newest full one tells again, as the log itself has it now.

        Not by the mark that is handed in: a log that was set back has an older one.
        """
        newest = self.changes.mark()
        if newest is None:
            return
        old = compaction.superseded(self.changes.snapshot, self.settings.lane, newest.full)
        if len(old) >= compaction.TOGETHER:
            now = self.clock()
            self._committed(tuple(removed(file, at=now) for file in old), "DELETE")

    def _committed(self, actions: tuple[Mapping[str, object], ...], operation: str) -> bool:
        """Commit on whatever is newest, as long as the files that go are there."""
        told = {"sluice": {"lane": self.settings.lane}}
        while compaction.needed(actions, self.changes.snapshot):
            try:
                made = commit(
                    self.changes.store,
                    self.changes.snapshot,
                    actions,
                    operation=operation,
                    clock=self.clock(),
                    note=told,
                )
            except LostRaceError:
                self.changes.look()
            else:
                self.changes.know(made)
                return True
        return False

    def _drop(self, mark: Mark, applied: Mapping[str, int]) -> None:
        """Drop whole days that are old, and that no mirror and no open question needs."""
        if mark.quarantine or mark.gaps:
            return
        if lanes := self._other_lanes():
            why = f"{lanes[0]} lands here, too, and what its mirrors have applied is not known"
            log.warning("upkeep drops no day of the change log", why=why)
            return
        oldest = (self.clock() - self.settings.upkeep.keep_changes).date()
        needed = _first_needed(mark, applied)
        known = int(self.changes.snapshot.metadata.configuration.get(DROPPED, "-1"))
        days: dict[str, list[ActiveFile]] = {}
        for file in self.changes.snapshot.files.values():
            days.setdefault(str(file.partition[PARTITION]), []).append(file)
        free = {
            day: files
            for day, files in days.items()
            if date.fromisoformat(day) < oldest and known < _last(files) < needed
        }
        for day in sorted(free):
            files, snapshot = free[day], self.changes.snapshot
            actions = compaction.left(self.changes.store, snapshot, files, KEPT, self.clock())
            known = max(known, _last(files))
            dropped = {DROPPED: str(known)}
            self._committed((*with_properties(snapshot, dropped), *actions), "DELETE")

    def _other_lanes(self) -> list[str]:
        numbered = self.changes.snapshot.transactions.keys() - {app(self.settings.lane)}
        return sorted(name for name in numbered if name.startswith(APPS))


def _first_needed(mark: Mark, applied: Mapping[str, int]) -> int:
    """The lowest batch that some mirror has not applied; the newest one is always needed."""
    behind = [
        applied.get(t, -1) + 1 for t, last in mark.tables.items() if applied.get(t, -1) < last
    ]
    return min([mark.batch, *behind])


def _last(files: list[ActiveFile]) -> int:
    """The highest batch in *files*; beyond all where one does not tell."""
    highs = [((file.stats or {}).get("maxValues") or {}).get("batch") for file in files]
    return max((2**62 if high is None else int(high)) for high in highs)
