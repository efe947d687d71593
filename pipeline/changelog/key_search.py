"""Finds the changes of one row in the change log, newest batches first, within a time budget.

The log has no index by key. Files are left out by their statistics (batch, table, key, op), then
row groups by the bounds in their footer, then by the Bloom filters of their keys. Delta cuts the
bounds of texts after 32 characters; footers have them whole. Rows of a table that are written in
the order of their key fill row groups of narrow bounds. Keys that are updated at random lie within
the bounds of every row group; there the filters leave few. The search ends with its budget, and
`KeySearch.down_to` says how far it came.

Files never change, so `FooterBounds` keeps what was read of each footer.
"""

import struct
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.changelog.scan import (
    Part,
    RowGroup,
    explain_damage,
    find_parts,
    open_file,
    read_bounds,
    row_groups,
)
from pipeline.changelog.table import CHANGES, DROPPED
from pipeline.delta.log import Snapshot
from pipeline.delta.store import Store
from pipeline.model import ORDER_PARTS, Op, Order, Origin, Shard, TopicPartition

KEYED = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ)
EMPTYING = (Op.TRUNCATE, Op.SETTLE)
COLUMNS = (
    "lane", "batch", "source", "shard", "op", "key", "at", "order", "origin", "topic",
    "partition", "offset", "received", "changed",
)  # fmt: skip
GROUPS_AT_ONCE = 64
MOST_CHANGES = 500  # of a key that are kept: so many newest by order, and so many by batch
SALT = (
    *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
    *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
)
"""Of the split block Bloom filter, from the specification of Parquet (BloomFilter.md)."""
NUMBER = 0x15  # Thrift's type of a filter's first field
HEADER = bytes.fromhex("1c1c00001c1c00001c1c000000")
"""How a filter's header ends behind its length: split blocks, XXH64, not compressed."""
FOOTERS = 256 * 2**20  # bytes of bounds that are kept: those of some 2,000 files of short keys


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A landed change of a key; ``key`` is None for a change that emptied the shard.

    ``at`` is the time of the source's clock, ``received`` that of the batch. ``place`` and
    ``offset`` are those of its message, None and -1 without one. ``changed`` are the columns that
    it carries, if it does not carry all.
    """

    shard: Shard
    op: Op
    batch: int
    key: str | None
    order: Order | None
    origin: Origin
    at: datetime | None
    received: datetime
    place: TopicPartition | None
    offset: int = -1
    changed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The changes that were found, newest first by order, and the effort.

    ``files`` is the number of files that may hold the key by their statistics. ``footers`` of these
    were looked at, and ``read`` of these were read, in so many row ``groups``. All batches from
    ``down_to`` on were searched; 0 if the whole log was. Days up to batch ``dropped`` are gone; -1
    without.
    """

    changes: tuple[KeyChange, ...]
    files: int
    footers: int
    read: int
    groups: int
    down_to: int
    dropped: int = -1
    left_out: int = 0

    @property
    def whole(self) -> bool:
        """Return whether the whole log was searched."""
        return self.down_to <= 0


@dataclass(frozen=True, slots=True)
class SoughtKeys:
    """The keys to search for, of one table and lane, spelled as in the change log, and the budget.

    ``budget`` is for the whole search; the newest file is always searched.
    """

    lane: str
    table: str
    keys: tuple[str, ...]
    budget: timedelta = timedelta(seconds=1.5)


@dataclass(frozen=True, slots=True)
class GroupBounds:
    """The bounds of one row group from a footer; ``keyless`` if rows in it may have no key.

    Rows that empty a shard have no key. Their op sorts between those of a create and an update, so
    the bounds of ops do not show them.
    ``filter`` is where the Bloom filter of the keys begins and ends in the file; None without one.
    """

    table: RowGroup
    key: RowGroup
    keyless: bool
    filter: tuple[int, int] | None

    def may_hold(self, table: str, keys: Sequence[str]) -> bool:
        """Return whether it may hold rows of *table* with one of *keys* (ascending) or without."""
        return self.table.holds((table,)) and (self.keyless or self.key.holds(keys))


Bounds = tuple[GroupBounds, ...]
"""Bounds of the row groups of a file, in their order."""


@dataclass(eq=False)
class FooterBounds:
    """The bounds of row groups by file, for the files used last, in *most* bytes. Thread-safe."""

    most: int = FOOTERS
    size: int = 0
    _known: OrderedDict[str, Bounds] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def of(self, file: Any, path: str) -> Bounds:
        """Return the bounds of the open *file* at *path*."""
        known = self.known(path)
        if known is not None:
            return known
        found = tuple(_group_bounds(file.metadata))
        with self._lock:
            self.size += _size(found) - _size(self._known.get(path, ()))
            self._known[path] = found
            while self.size > self.most and len(self._known) > 1:
                self.size -= _size(self._known.popitem(last=False)[1])
        return found

    def known(self, path: str) -> Bounds | None:
        """Return the bounds of a file that was read before; None if it was not."""
        with self._lock:
            if path in self._known:
                self._known.move_to_end(path)
            return self._known.get(path)


@dataclass(eq=False)
class FoundChanges:
    """The newest changes found so far, without older ones of a key that changes often."""

    left_out: int = 0
    _rows: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        """Add *rows* of the change log, with ``COLUMNS``."""
        every = rows if self._rows is None else pa.concat_tables([self._rows, rows])
        self._rows = _newest_rows(every)
        self.left_out += every.num_rows - self._rows.num_rows

    def ordered(self) -> tuple[KeyChange, ...]:
        """Return the changes, newest first by order."""
        rows = [] if self._rows is None else self._rows.to_pylist()
        return tuple(sorted(map(_change, rows), key=_newest_first, reverse=True))


def _newest_rows(rows: pa.Table) -> pa.Table:
    """Return the newest of *rows*: of each shard and key ``MOST_CHANGES`` by order and by batch.

    Python reads the others not at all: that would take seconds, in which no thread runs.
    """
    if rows.num_rows <= MOST_CHANGES:
        return rows
    order = {part: pc.struct_field(rows["order"], [part]) for part in ORDER_PARTS}
    names = ("source", "shard", "key", "batch", "offset")
    places = pa.table({**{one: rows[one] for one in names}, **order, "at": range(rows.num_rows)})
    kept = set[int]()
    for keys in (ORDER_PARTS, ("batch", "offset")):
        newest_first = [(name, "descending") for name in keys]
        ranked = places.take(pc.sort_indices(places, newest_first))
        own = ranked.group_by(["source", "shard", "key"], use_threads=False).aggregate(
            [("at", "list")]
        )
        kept.update(at for each in own["at_list"].to_pylist() for at in each[:MOST_CHANGES])
    return rows.take(pa.array(sorted(kept)))


def _size(bounds: Bounds) -> int:
    """Return about how many bytes *bounds* take: an object of Python and its texts for each."""
    texts = (text for one in bounds for text in (one.key.low, one.key.high))
    return 800 * len(bounds) + sum(4 * len(text or "") for text in texts)


def find_key_changes(
    store: Store, snapshot: Snapshot, sought: SoughtKeys, footers: FooterBounds
) -> KeySearch:
    """Search for changes of *sought*, and for rows that emptied the table's shards.

    Raises:
        HeldError: ``file_damaged``.
    """
    until = time.monotonic() + sought.budget.total_seconds()
    files = candidate_files(snapshot, sought)
    found, looked, read, groups = FoundChanges(), 0, 0, 0
    for part in files:
        if looked and time.monotonic() > until:
            break
        late = until if looked else None
        wanted, done = _search_file(store, part, sought, footers, found, until=late)
        read, groups = read + (done > 0), groups + done
        if done < wanted:
            break
        looked += 1
    left = files[looked:]
    down_to = max((one.high for one in left), default=-1) + 1
    changes = found.ordered()
    dropped = int(snapshot.metadata.configuration.get(DROPPED, "-1"))
    effort = len(files), looked, read, groups
    return KeySearch(changes, *effort, down_to, dropped, found.left_out)


def candidate_files(snapshot: Snapshot, sought: SoughtKeys) -> tuple[Part, ...]:
    """Return the files that may hold *sought* by their statistics, newest batches first."""
    files = {file.path: file for file in snapshot.files.values()}
    everything = find_parts(snapshot, -2, 2**62, (*KEYED, *EMPTYING))
    kept = (one for one in everything if _may_hold(files[one.path], sought))
    return tuple(sorted(kept, key=lambda one: (one.high, one.low, one.path), reverse=True))


def _may_hold(file: Any, sought: SoughtKeys) -> bool:
    if not _within(read_bounds(file, "table"), [sought.table]):
        return False
    if not _within(read_bounds(file, "lane"), [sought.lane]):
        return False
    keyless = ((file.stats or {}).get("nullCount") or {}).get("key")
    return keyless != 0 or _within(read_bounds(file, "key"), sought.keys)


def _within(ends: tuple[Any, Any], values: Iterable[str]) -> bool:
    low, high = ends
    return any((low is None or one >= low) and (high is None or one <= high) for one in values)


def _search_file(
    store: Store,
    part: Part,
    sought: SoughtKeys,
    footers: FooterBounds,
    found: FoundChanges,
    *,
    until: float | None,
) -> tuple[int, int]:
    """Add changes in a file to *found*; return how many row groups may have some, and were read.

    The first groups are read even if *until* is over.
    """
    with ExitStack() as opened:
        file, known = None, footers.known(part.path)
        if known is None:
            file = opened.enter_context(open_file(store, part.path))
            known = footers.of(file, part.path)
        keys = sorted(sought.keys)
        bounded = {n: one for n, one in enumerate(known) if one.may_hold(sought.table, keys)}
        wanted = _pass_filters(store, part.path, bounded, keys)
        if not wanted:
            return 0, 0
        if file is None:
            file = opened.enter_context(open_file(store, part.path))
        return len(wanted), _read_wanted(file, wanted, sought, found, until)


def _pass_filters(
    store: Store, path: str, bounded: dict[int, GroupBounds], keys: Sequence[str]
) -> list[int]:
    """Return the row groups whose filter may contain one of *keys*, and those without a filter.

    The filters of a file lie side by side, so all of them are read at once.
    """
    filters = {n: one.filter for n, one in bounded.items() if one.filter and not one.keyless}
    if not filters:
        return list(bounded)
    first, last = min(filters.values())[0], max(filters.values())[1]
    with explain_damage(store, path), store.source(path) as file:
        file.seek(first)
        data = file.read(last - first)
        if len(data) < last - first:
            raise OSError("it ends before its Bloom filters")
    hashes = [xxhash.xxh64_intdigest(key.encode()) for key in keys]
    cut = {n: data[low - first : high - first] for n, (low, high) in filters.items()}
    return [n for n in bounded if n not in cut or _may_contain(cut[n], hashes)]


def _may_contain(stored: bytes, hashes: Iterable[int]) -> bool:
    """Whether a value with one of these XXH64 *hashes* may be in a *stored* Bloom filter.

    It has blocks of 32 bytes behind a header, whose first field is their length. A value sets one
    bit in each of the eight words of one block (Parquet's BloomFilter.md), and pyarrow folds a
    filter until a block has 16 values or more. So a word without a bit is not what was written. It
    excludes nothing, nor does a filter with a damaged header. Filters have no checksum.
    Cannot detect: other bits that changed in the blocks.
    """
    length, begins = _read_header(stored)
    if not length or length % 32 or begins + length != len(stored):
        return True
    blocks = length // 32
    for one in hashes:
        words = struct.unpack_from("<8I", stored, begins + 32 * ((one >> 32) * blocks >> 32))
        pairs = zip(words, SALT, strict=True)
        if not all(words) or all(
            word >> ((one * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in pairs
        ):
            return True
    return False


def _read_header(stored: bytes) -> tuple[int, int]:
    """Return the length of a filter's blocks and where they begin; (0, 0) if it is damaged.

    The header begins with the length, in Thrift's compact protocol: a byte of its type, then the
    doubled number, seven bits a byte, the lowest first. The highest bit of a byte is set if another
    one follows.
    """
    doubled = 0
    for at, byte in enumerate(stored[1:6]):
        doubled |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            begins = at + 2 + len(HEADER)
            sound = stored[0] == NUMBER and stored[at + 2 : begins] == HEADER
            return (doubled // 2, begins) if sound and not doubled % 2 else (0, 0)
    return 0, 0


def _group_bounds(metadata: Any) -> Iterator[GroupBounds]:
    names = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    both = zip(row_groups(metadata, "table"), row_groups(metadata, "key"), strict=True)
    for number, (table, key) in enumerate(both):
        column = metadata.row_group(number).column(names["key"])
        place, size = column.bloom_filter_offset, column.bloom_filter_length
        stats = column.statistics
        keyless = stats is None or stats.null_count != 0
        yield GroupBounds(table, key, keyless, (place, place + size) if size else None)


def _read_wanted(
    file: Any,
    wanted: Sequence[int],
    sought: SoughtKeys,
    found: FoundChanges,
    until: float | None,
) -> int:
    """Add changes in the *wanted* row groups to *found*; return how many were read in time."""
    done = 0
    for start in range(0, len(wanted), GROUPS_AT_ONCE):
        if done and until is not None and time.monotonic() > until:
            break
        some = [*wanted[start : start + GROUPS_AT_ONCE]]
        _read_groups(file, some, sought, found)
        done += len(some)
    return done


def _read_groups(file: Any, groups: Sequence[int], sought: SoughtKeys, found: FoundChanges) -> None:
    keys = file.read_row_groups(groups, columns=["table", "key", "op"], use_threads=True)
    kept = _matching(keys, sought)
    if not kept.true_count:
        return
    rows = file.read_row_groups(groups, columns=list(COLUMNS)).filter(kept)
    rows = rows.select(list(COLUMNS)).cast(pa.schema([CHANGES.field(name) for name in COLUMNS]))
    found.add(rows.filter(pc.equal(rows["lane"], sought.lane)))


def _matching(rows: pa.Table, sought: SoughtKeys) -> pa.BooleanArray:
    keyed = pc.and_(
        pc.is_in(rows["key"], pa.array(sought.keys, pa.string())),
        pc.is_in(rows["op"], pa.array([*map(str, KEYED)], pa.string())),
    )
    emptied = pc.is_in(rows["op"], pa.array([*map(str, EMPTYING)], pa.string()))
    own = pc.fill_null(pc.equal(rows["table"], sought.table), False)
    kept = pc.and_(own, pc.or_(keyed, emptied))
    return kept.combine_chunks() if isinstance(kept, pa.ChunkedArray) else kept


def _change(row: dict[str, Any]) -> KeyChange:
    placed = row["topic"] is not None and row["partition"] is not None
    return KeyChange(
        shard=Shard(row["source"], row["shard"]),
        op=Op(row["op"]),
        batch=row["batch"],
        key=row["key"],
        order=None if row["order"] is None else Order(**row["order"]),
        origin=Origin(row["origin"]),
        at=row["at"],
        received=row["received"],
        place=TopicPartition(row["topic"], row["partition"]) if placed else None,
        offset=row["offset"] if row["offset"] is not None else -1,
        changed=None if row["changed"] is None else tuple(row["changed"]),
    )


def _newest_first(one: KeyChange) -> tuple[Any, ...]:
    """Return a sort key: order, then origin; at one order a create is newer than a delete.

    Both have one order if a key was changed. A row that empties a shard concerns only rows below
    its order, so it is the oldest at that order.
    """
    parts = (-1,) if one.order is None else one.order.parts
    return parts, one.op not in EMPTYING, int(one.origin), one.op is not Op.DELETE, one.batch
