"""Many small files of the change log become few, in which a table's changes stand together.

Files of a day are joined by size, so that each change is written again a few times at most, however
many batches there are.  Rows come to lie by table and order, and kinds that are asked for by
themselves (deletes, schema changes, markers) in files of their own.  Markers are the exception to
"append-only": all that is older than a lane's newest full one is told again by that one.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.scan import bounds, opened
from pipeline.changelog.sorted_file import PARTITION, STORED, SortedFile, WrittenFile
from pipeline.lake.actions import removed
from pipeline.lake.entries import Action
from pipeline.lake.log import ActiveFile, Snapshot
from pipeline.lake.store import Store
from pipeline.model import Op

TOGETHER = 16  # files of about one size that are worth joining
SIZES = (2**20, 8 * 2**20, 24 * 2**20)  # bytes: a file of the last size stays as it is
AT_ONCE = 48 * 2**20  # bytes read at once, any two files; in memory they are ten times as much
MOST = 500  # files at once
KINDS: tuple[frozenset[Op], ...] = (
    frozenset({Op.DELETE}),
    frozenset({Op.DDL}),
    frozenset({Op.MARK}),
    frozenset({Op.BEGIN, Op.END, Op.HEARTBEAT}),
)


@dataclass(frozen=True, slots=True)
class Joined:
    """Files that take the place of others, and the actions that say so."""

    files: tuple[WrittenFile, ...]
    actions: tuple[Action, ...]


def joinable(snapshot: Snapshot) -> tuple[ActiveFile, ...]:
    """Files of one day and about one size that are to become fewer; none if all are well."""
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


def superseded(snapshot: Snapshot, lane: str, full: int) -> tuple[ActiveFile, ...]:
    """Files that hold nothing but markers of *lane* below batch *full*, which tells everything.

    Whoever reads a mark begins at the newest full one of the version that is looked at, and every
    version that no longer names these files has a newer one.
    """
    return tuple(
        file
        for file in snapshot.files.values()
        if _only(file, "op", str(Op.MARK)) and _only(file, "lane", lane) and _below(file, full)
    )


def _only(file: ActiveFile, column: str, value: str) -> bool:
    low, high = bounds(file, column)
    return bool(low == high == value)


def _below(file: ActiveFile, batch: int) -> bool:
    high = bounds(file, "batch")[1]
    return high is not None and int(high) < batch


def join(store: Store, snapshot: Snapshot, files: Sequence[ActiveFile], at: datetime) -> Joined:
    """Write the rows of *files*, which are of one day, anew; nothing is committed.

    The files keep the day they stand in, whenever they are written.
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
    went = [removed(file, at=at, data_change=False) for file in files]
    return Joined(tuple(made), (*went, *adds))


def _whole(store: Store, file: ActiveFile) -> pa.Table:
    with opened(store, file.path) as parquet:
        return parquet.read().select(STORED.names).cast(STORED)


def _kinds(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows of each kind that has any; what changes mirrors comes first.  Markers by lane, too."""
    apart = [str(op) for kind in KINDS for op in kind]
    masks = [pc.invert(pc.is_in(rows["op"], pa.array(apart, pa.string())))]
    masks += [pc.is_in(rows["op"], pa.array([str(op) for op in k], pa.string())) for k in KINDS]
    for mask in masks:
        part = rows.filter(mask)
        if len(part):
            yield from _by_lane(part) if part["op"][0].as_py() == Op.MARK else (part,)


def _by_lane(rows: pa.Table) -> Iterator[pa.Table]:
    """Each lane gives up its own markers."""
    for lane in pc.unique(rows["lane"]).to_pylist():
        yield rows.filter(pc.equal(rows["lane"], lane))


def left(
    store: Store, snapshot: Snapshot, files: Sequence[ActiveFile], ops: Collection[Op], at: datetime
) -> tuple[Action, ...]:
    """Actions that take *files*, of one day, out of the log, but for their rows of *ops*."""
    day = datetime.fromisoformat(str(files[0].partition[PARTITION])).replace(tzinfo=at.tzinfo)
    words = pa.array([str(op) for op in ops], pa.string())
    kept = []
    for file in files:
        rows = _whole(store, file)
        kept.append(rows.filter(pc.is_in(rows["op"], words)))
    actions = [removed(file, at=at) for file in files]
    rows = pa.concat_tables(kept)
    if not len(rows):
        return tuple(actions)
    with SortedFile(store, snapshot.metadata, f"part-{uuid.uuid4()}.parquet", day) as sorted_file:
        sorted_file.add(rows.combine_chunks().to_batches())
    if sorted_file.written is not None:
        actions.append(sorted_file.written.added(at))
    return tuple(actions)


def needed(actions: Sequence[Action], snapshot: Snapshot) -> bool:
    """Whether all files that *actions* remove are still there."""
    went = [action["remove"]["path"] for action in actions if "remove" in action]
    return all(path in snapshot.files for path in went)
