"""Few files, a short log, and no older days than are needed: what the change log's upkeep does.

It runs beside landing, which wins where both want a version.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

import structlog

from pipeline.changelog import compaction
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.cleaning_times import CleaningTimes
from pipeline.changelog.sorted_file import PARTITION
from pipeline.changelog.table import APPS, DROPPED, app
from pipeline.checkpoint import Mark, is_there, living_shards, living_tables
from pipeline.errors import LostRaceError
from pipeline.lake import checkpoints, vacuum
from pipeline.lake.actions import removed
from pipeline.lake.alterations import with_properties
from pipeline.lake.commit import commit
from pipeline.lake.log import ActiveFile
from pipeline.model import Op
from pipeline.reports import read_gap
from pipeline.settings import PipelineSettings, Router

KEPT = (Op.DDL, Op.MARK, Op.ERROR)  # they tell what no other row does
COMPACTS = "OPTIMIZE"
_LEFT = timedelta(days=1)  # what has left the log stays; batches are never read by version
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LogUpkeep:
    """Compact and clean the change log of one lane."""

    settings: PipelineSettings
    changes: ChangeLog
    clock: Callable[[], datetime]
    _checkpointed: int = -1
    _told: str = ""  # why no day is dropped, as the log has it
    _cleaning: CleaningTimes = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is due yet."""
        self._cleaning = CleaningTimes(self.settings.upkeep.vacuum_every, self.clock)

    def run(self, mark: Mark, applied: Mapping[str, int]) -> None:
        """Compact the change log, and drop its oldest days that nobody needs any more.

        *applied*: table -> applied batch; no day that holds a later one is dropped.
        """
        if self.changes.look() is None:
            return
        store = self.changes.store
        self._forget_marks()
        while files := compaction.joinable(self.changes.snapshot):
            made = compaction.join(store, self.changes.snapshot, files, self.clock())
            if not self._committed(made.actions, COMPACTS):
                break
        if checkpoints.overdue(self.changes.snapshot, self._checkpointed):
            checkpoints.checkpoint(store)
            self._checkpointed = self.changes.snapshot.version
        if self._cleaning.due("changes"):
            self._cleaning.cleaned("changes")
            self._drop(mark, applied)
            vacuum.vacuum(store, _LEFT)
            checkpoints.sweep(store, self.clock() - _LEFT)
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
        why = self._kept_by(mark)
        if why and why != self._told:
            log.warning("upkeep drops no day of the change log", why=why)
        self._told = why
        if why:
            return
        oldest = (self.clock() - self.settings.upkeep.keep_changes).date()
        needed = _first_needed(mark.batch, living_tables(mark, self._router()), applied)
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

    def _kept_by(self, mark: Mark) -> str:
        """Why no day is dropped at all; empty if days may be.

        What is lost of a retired shard keeps none: that one comes back with a new base, or is held
        by the very gap.
        """
        living = living_shards(mark, self._router())

        def concerns(shards: tuple[str, ...]) -> bool:
            there = (name for name in shards if is_there(mark, name))
            return not shards or any(name in living or name not in mark.shards for name in there)

        gaps = sorted(id_ for id_, text in mark.gaps.items() if concerns(read_gap(text).shards))
        unread = sorted(name for name, one in mark.quarantine.items() if concerns(one.shards))
        if gaps:
            return f"changes were lost before landing ({gaps[0]})"
        if unread:
            return f"changes of {unread[0]} are unread"
        if lanes := self._other_lanes():
            return f"{lanes[0]} lands here, too, and what its mirrors have applied is not known"
        return ""

    def _router(self) -> Router:
        return Router(self.settings.rules)

    def _other_lanes(self) -> list[str]:
        numbered = self.changes.snapshot.transactions.keys() - {app(self.settings.lane)}
        return sorted(name for name in numbered if name.startswith(APPS))


def _first_needed(newest: int, tables: Mapping[str, int], applied: Mapping[str, int]) -> int:
    """The lowest batch that some mirror has not applied; the *newest* one is always needed.

    *tables*: those that are there -> last batch of each.  A mirror whose table is gone applies
    nothing more, and begins with a new base if that comes back: it would keep all for ever.
    """
    behind = [applied.get(t, -1) + 1 for t, last in tables.items() if applied.get(t, -1) < last]
    return min([newest, *behind])


def _last(files: list[ActiveFile]) -> int:
    """The highest batch in *files*; beyond all where one does not tell."""
    highs = [((file.stats or {}).get("maxValues") or {}).get("batch") for file in files]
    return max((2**62 if high is None else int(high)) for high in highs)
