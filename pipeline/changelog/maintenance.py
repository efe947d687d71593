"""Compacts the change log, shortens its Delta log and drops days that are no longer needed.

Runs beside landing. A commit that loses the version race is retried on the newest version, as
long as the files that it removes exist.

* Compaction joins files of one day by size, so each change is rewritten a few times at most,
  however many batches there are. Rows end up sorted by table and order. Deletes, schema events,
  markers, and transaction and heartbeat rows get files of their own.
* Markers are the exception to "append-only": those older than a lane's newest full marker are
  removed, because that one repeats them.
* An old day is dropped once every active mirror has applied it. No day is dropped while a gap
  or a quarantined message may concern an active shard, or while another lane uses the table.
  Schema events, markers and errors of a dropped day remain.
* Cleaning runs at a fixed interval, and first some minutes after the start of the process. If
  the first run waited for the interval, a process that restarts more often would never clean.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.data_file import PARTITION, STORED, SortedFile, WrittenFile
from pipeline.changelog.scan import open_file, read_bounds
from pipeline.changelog.table import APPS, DROPPED, build_app_id
from pipeline.checkpoint import Checkpoint, active_shards, active_tables, shard_exists
from pipeline.delta import maintenance
from pipeline.delta.actions import remove_file, with_properties
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import Action, ActiveFile, Snapshot
from pipeline.delta.store import Store
from pipeline.errors import LostRaceError
from pipeline.model import Op, Shard
from pipeline.settings import PipelineSettings, Router

_BEGINNING = timedelta(minutes=10)


@dataclass(eq=False)
class CleaningTimes:
    """Decides when the cleaning of each table is due.

    A new process waits a little, but not the whole interval. Otherwise a process that restarts more
    often would never clean up.
    """

    often: timedelta
    clock: Callable[[], datetime]
    _cleaned: dict[str, datetime] = field(default_factory=dict)

    def due(self, name: str) -> bool:
        """Return whether the cleaning of *name* is due."""
        now = self.clock()
        first = now - self.often + min(self.often, _BEGINNING)
        return now - self._cleaned.setdefault(name, first) >= self.often

    def cleaned(self, name: str) -> None:
        """Note that it was done, or tried."""
        self._cleaned[name] = self.clock()


TOGETHER = 16  # files of about one size that are worth joining
SIZES = (2**20, 8 * 2**20, 24 * 2**20)  # bytes: a file of the last size stays as it is
AT_ONCE = 48 * 2**20  # bytes read together, or any two files; they need ten times as much memory
MOST = 500  # files joined together
KINDS: tuple[frozenset[Op], ...] = (
    frozenset({Op.DELETE}),
    frozenset({Op.DDL}),
    frozenset({Op.MARK}),
    frozenset({Op.BEGIN, Op.END, Op.HEARTBEAT}),
)


@dataclass(frozen=True, slots=True)
class Joined:
    """New files that replace others, and the actions that commit the replacement."""

    files: tuple[WrittenFile, ...]
    actions: tuple[Action, ...]


def find_joinable(snapshot: Snapshot) -> tuple[ActiveFile, ...]:
    """Return files of one day and about one size to join; none if that is not needed."""
    rooms: dict[tuple[str, int], list[ActiveFile]] = {}
    for file in snapshot.files.values():
        size = next((n for n, limit in enumerate(SIZES) if file.size < limit), None)
        if size is not None:
            rooms.setdefault((str(file.partition.get(PARTITION)), size), []).append(file)
    full = {at: files for at, files in rooms.items() if len(files) >= TOGETHER}
    if not full:
        return ()
    files = sorted(full[min(full)], key=lambda file: int(file.action["modificationTime"]))
    kept: list[ActiveFile] = []
    for file in files[:MOST]:
        if kept and sum(one.size for one in kept) + file.size > AT_ONCE:
            break
        kept.append(file)
    return tuple(kept) if len(kept) > 1 else ()


def find_superseded(snapshot: Snapshot, lane: str, full: int) -> tuple[ActiveFile, ...]:
    """Return files that hold only markers of *lane* below batch *full*, whose text is full.

    A reader of checkpoints starts at the newest full text of its version. Every version that no
    longer has these files has a newer full text.
    """
    return tuple(
        file
        for file in snapshot.files.values()
        if _only(file, "op", str(Op.MARK)) and _only(file, "lane", lane) and _below(file, full)
    )


def _only(file: ActiveFile, column: str, value: str) -> bool:
    low, high = read_bounds(file, column)
    return bool(low == high == value)


def _below(file: ActiveFile, batch: int) -> bool:
    high = read_bounds(file, "batch")[1]
    return high is not None and int(high) < batch


def join_files(
    store: Store, snapshot: Snapshot, files: Sequence[ActiveFile], at: datetime
) -> Joined:
    """Write the rows of *files*, all of one day, into fewer files; commit nothing.

    The new files keep the day of the old ones.
    """
    day = datetime.fromisoformat(str(files[0].partition[PARTITION])).replace(tzinfo=at.tzinfo)
    rows = pa.concat_tables([_whole(store, file) for file in files])
    made = []
    for part in _kinds(rows):
        name = f"part-{uuid.uuid4()}.parquet"
        with SortedFile(store, snapshot.metadata, name, day) as sorted_file:
            sorted_file.add(part.combine_chunks().to_batches())
        if sorted_file.written is not None:
            made.append(sorted_file.written)
    if sum(one.records for one in made) != len(rows):
        msg = f"{len(rows)} rows became {sum(one.records for one in made)}"
        raise ValueError(msg)
    adds = [one.added(at, data_change=False) for one in made]
    went = [remove_file(file, at=at, data_change=False) for file in files]
    return Joined(tuple(made), (*went, *adds))


def _whole(store: Store, file: ActiveFile) -> pa.Table:
    with open_file(store, file.path) as parquet:
        return parquet.read().select(STORED.names).cast(STORED)


def _kinds(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each kind, those that change mirrors first; markers also by lane."""
    apart = [str(op) for kind in KINDS for op in kind]
    masks = [pc.invert(pc.is_in(rows["op"], pa.array(apart, pa.string())))]
    masks += [pc.is_in(rows["op"], pa.array([str(op) for op in k], pa.string())) for k in KINDS]
    for mask in masks:
        part = rows.filter(mask)
        if len(part):
            yield from _by_lane(part) if part["op"][0].as_py() == Op.MARK else (part,)


def _by_lane(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the markers of each lane, because a lane removes only its own."""
    for lane in pc.unique(rows["lane"]).to_pylist():
        yield rows.filter(pc.equal(rows["lane"], lane))


def drop_other_rows(
    store: Store, snapshot: Snapshot, files: Sequence[ActiveFile], ops: Collection[Op], at: datetime
) -> tuple[Action, ...]:
    """Return actions that remove *files*, all of one day, but keep their rows of *ops*."""
    day = datetime.fromisoformat(str(files[0].partition[PARTITION])).replace(tzinfo=at.tzinfo)
    words = pa.array([str(op) for op in ops], pa.string())
    kept = []
    for file in files:
        rows = _whole(store, file)
        kept.append(rows.filter(pc.is_in(rows["op"], words)))
    actions = [remove_file(file, at=at) for file in files]
    rows = pa.concat_tables(kept)
    if not len(rows):
        return tuple(actions)
    with SortedFile(store, snapshot.metadata, f"part-{uuid.uuid4()}.parquet", day) as sorted_file:
        sorted_file.add(rows.combine_chunks().to_batches())
    if sorted_file.written is not None:
        actions.append(sorted_file.written.added(at))
    return tuple(actions)


def removes_existing_files(actions: Sequence[Action], snapshot: Snapshot) -> bool:
    """Return whether all files that *actions* remove still exist."""
    went = [action["remove"]["path"] for action in actions if "remove" in action]
    return all(path in snapshot.files for path in went)


KEPT = (Op.DDL, Op.MARK, Op.ERROR)  # no other row has their information
COMPACTS = "OPTIMIZE"
_LEFT = timedelta(days=1)  # how long removed files are kept; batches are never read by version
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LogMaintenance:
    """Compacts and cleans the change log of one lane."""

    settings: PipelineSettings
    changes: ChangeLog
    clock: Callable[[], datetime]
    _checkpointed: int = -1
    _kept_because: str = ""  # last logged reason why no day is dropped
    _cleaning: CleaningTimes = field(init=False)
    _router: Router = field(init=False)  # a single one, because it caches the rule of each shard

    def __post_init__(self) -> None:
        """Start with nothing due."""
        self._router = Router(self.settings.rules)
        self._cleaning = CleaningTimes(self.settings.upkeep.vacuum_every, self.clock)

    def run(self, checkpoint: Checkpoint, applied: Mapping[str, int]) -> None:
        """Compact the change log, and drop its oldest days that no mirror needs any more.

        *applied*: table -> applied batch; no day that holds a later one is dropped.
        """
        if self.changes.look() is None:
            return
        store = self.changes.store
        self._remove_superseded()
        while files := find_joinable(self.changes.snapshot):
            made = join_files(store, self.changes.snapshot, files, self.clock())
            if not self._committed(made.actions, COMPACTS):
                break
        if maintenance.is_checkpoint_due(self.changes.snapshot, self._checkpointed):
            maintenance.write_checkpoint(store)
            self._checkpointed = self.changes.snapshot.version
        if self._cleaning.due("changes"):
            self._cleaning.cleaned("changes")
            self._drop(checkpoint, applied)
            maintenance.vacuum_files(store, _LEFT)
            maintenance.sweep_files(store, self.clock() - _LEFT)
            maintenance.clean_log(store)

    def _remove_superseded(self) -> None:
        """Remove markers that the newest full text in the log replaces.

        That text is read from the log, because the checkpoint at hand may be newer than a log that
        was rolled back.
        """
        newest = self.changes.checkpoint()
        if newest is None:
            return
        old = find_superseded(self.changes.snapshot, self.settings.lane, newest.full)
        if len(old) >= TOGETHER:
            now = self.clock()
            self._committed(tuple(remove_file(file, at=now) for file in old), "DELETE")

    def _committed(self, actions: tuple[Mapping[str, object], ...], operation: str) -> bool:
        """Commit on the newest version if the files to remove exist; return whether it did."""
        note = {"sluice": {"lane": self.settings.lane}}
        while removes_existing_files(actions, self.changes.snapshot):
            try:
                made = commit_actions(
                    self.changes.store,
                    self.changes.snapshot,
                    actions,
                    operation=operation,
                    clock=self.clock(),
                    note=note,
                )
            except LostRaceError:
                self.changes.look()
            else:
                self.changes.know(made)
                return True
        return False

    def _drop(self, checkpoint: Checkpoint, applied: Mapping[str, int]) -> None:
        """Drop whole days that are old, and that no mirror and no open gap or quarantine needs."""
        why = self._kept_by(checkpoint, applied)
        if why and why != self._kept_because:
            log.warning("maintenance drops no day of the change log", why=why)
        self._kept_because = why
        if why:
            return
        oldest = (self.clock() - self.settings.upkeep.keep_changes).date()
        needed = _first_needed(checkpoint.batch, active_tables(checkpoint, self._router), applied)
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
            actions = drop_other_rows(self.changes.store, snapshot, files, KEPT, self.clock())
            known = max(known, _last(files))
            dropped = {DROPPED: str(known)}
            self._committed((*with_properties(snapshot, dropped), *actions), "DELETE")

    def _kept_by(self, checkpoint: Checkpoint, applied: Mapping[str, int]) -> str:
        """Return why no day is dropped at all; empty if days may be dropped.

        Late changes are merged with changes that landed long before them: without an old delete its
        row would come back. Losses of a retired shard keep no day: it returns with a new base, or
        its gap holds it.
        """
        living = active_shards(checkpoint, self._router)

        def concerns(shards: tuple[str, ...]) -> bool:
            every = map(Shard.parse, shards)
            there = (shard for shard in every if shard_exists(checkpoint, shard))
            return not shards or any(
                shard in living or shard not in checkpoint.shards for shard in there
            )

        gaps = sorted(id_ for id_, gap in checkpoint.gaps.items() if concerns(gap.shards))
        unread = sorted(name for name, one in checkpoint.quarantine.items() if concerns(one.shards))
        if gaps:
            return f"changes were lost before landing ({gaps[0]})"
        if unread:
            return f"changes of {unread[0]} are unread"
        tables = active_tables(checkpoint, self._router)
        late = (one for one in tables if applied.get(one, -1) < checkpoint.belated.get(one, -1))
        if table := min(late, default=None):
            return f"changes of {table} came late, and its mirror does not have them yet"
        if lanes := self._other_lanes():
            return f"lane {lanes[0]} writes this change log, too; what its mirrors have is unknown"
        return ""

    def _other_lanes(self) -> list[str]:
        numbered = self.changes.snapshot.transactions.keys() - {build_app_id(self.settings.lane)}
        return sorted(name for name in numbered if name.startswith(APPS))


def _first_needed(newest: int, tables: Mapping[str, int], applied: Mapping[str, int]) -> int:
    """Return the lowest batch that a mirror has not applied; the *newest* one is always needed.

    *tables*: existing table -> its last batch. The mirror of a dropped table applies nothing more,
    and begins with a new base if the table comes back. So it keeps no day.
    """
    behind = [applied.get(t, -1) + 1 for t, last in tables.items() if applied.get(t, -1) < last]
    return min([newest, *behind])


def _last(files: list[ActiveFile]) -> int:
    """Return the highest batch in *files*; above all batches if a file has no statistics."""
    highs = [((file.stats or {}).get("maxValues") or {}).get("batch") for file in files]
    return max((2**62 if high is None else int(high)) for high in highs)
