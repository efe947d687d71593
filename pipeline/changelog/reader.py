"""Answers questions about the change log at one version, from files pruned by batch.

Only batches of one lane are read. A change that landed twice counts once, by order and op: a
changed key is a delete and a create at one order.

The error table is the quarantine: messages that could not be decoded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.table import DROPPED, build_app_id
from pipeline.changelog.transactions import (
    LOOK_BACK,
    MOST_KEYS,
    PLACE,
    PLACES,
    ROWS,
    TX,
    KeyName,
    KnownEmptied,
    KnownKeys,
    KnownTouch,
    LogMemory,
    TransactionReader,
    read_place,
)
from pipeline.delta.reader import SnapshotReader, among_sql, quote_literal
from pipeline.model import Op, Order, Origin, Shard, Table, TopicPartition
from pipeline.readings import (
    NO_BASES,
    ChangedRow,
    KeyTimes,
    LastChange,
    LogKey,
    RowVersion,
    ShardBase,
    Transaction,
)
from pipeline.resubmissions import parse_change_name

SIZE = "coalesce(octet_length(encode(raw, 'hex')) / 2, 0)"  # SQL here has no length for bytes
COLUMNS = 'batch, source, shard, "table", topic, "partition", "offset", received, error'


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A quarantined change: ``change`` is its name, as in a checkpoint; ``size`` is in bytes.

    ``shard`` and ``table`` are None if unknown.
    """

    change: str
    source: str
    shard: str | None
    table: str | None
    batch: int
    received: datetime
    why: str
    size: int

    @property
    def subject(self) -> str:
        """Return its name in the checkpoint: the shard if its table is known, else the topic."""
        if self.shard is not None and self.table is not None:
            return str(Shard(self.source, self.shard))
        place = parse_change_name(self.change)
        return f"topic:{place[0].topic if place is not None else ''}"


def error_rows(
    pinned: SnapshotReader, lane: str, table: str | None, most: int
) -> tuple[ErrorRow, ...]:
    """Return the newest of one table (or ``topic:NAME``) or of all; at *most* so many."""
    topic = table.removeprefix("topic:") if table is not None else None
    about = "" if topic is None else _about(table or "", topic)
    found = pinned.select(
        f"SELECT {COLUMNS}, {SIZE} AS size FROM t"  # noqa: S608
        f" WHERE op = {quote_literal(str(Op.ERROR))} AND lane = {quote_literal(lane)}{about}"
        f' ORDER BY batch DESC, topic, "partition", "offset" LIMIT {most}'
    )
    return tuple(_row(one) for one in found)


def error_row(pinned: SnapshotReader, lane: str, change: str) -> tuple[ErrorRow, bytes] | None:
    """Return the quarantined change of that name with its bytes, if any."""
    place, _, batch = parse_change_name(change), *change.rpartition("@")[1:]
    if place is None or not batch.isdigit():
        return None
    at, offset = place
    found = pinned.select(
        f"SELECT {COLUMNS}, {SIZE} AS size, raw FROM t"  # noqa: S608
        f" WHERE op = {quote_literal(str(Op.ERROR))} AND lane = {quote_literal(lane)}"
        f" AND batch = {int(batch)} AND topic = {quote_literal(at.topic)}"
        f' AND "partition" = {at.partition} AND "offset" = {offset} LIMIT 1'
    )
    return (_row(found[0]), found[0]["raw"] or b"") if found else None


def _about(table: str, topic: str) -> str:
    if table != topic:
        return f' AND "table" IS NULL AND topic = {quote_literal(topic)}'
    return f' AND "table" = {quote_literal(table)}'


def _row(one: dict[str, object]) -> ErrorRow:
    place = f"{one['topic']}:{one['partition']}:{one['offset']}"
    return ErrorRow(
        change=f"{place}@{one['batch']}",
        source=str(one["source"]),
        shard=None if one["shard"] is None else str(one["shard"]),
        table=None if one["table"] is None else str(one["table"]),
        batch=int(str(one["batch"])),
        received=one["received"],  # type: ignore[arg-type]
        why=str(one["error"] or ""),
        size=int(str(one["size"])),
    )


KEYED = (*ROWS, Op.READ)
EMPTYING = (Op.TRUNCATE, Op.SETTLE)
OF_BASE = f"(op = {quote_literal(Op.READ)} AND coalesce(origin, 0) = {int(Origin.SNAPSHOT)})"
KEYS_AT_ONCE = 100
TIMES = pa.schema(
    [
        ("key", pa.string()),
        *((name, pa.dictionary(pa.int32(), pa.string())) for name in ("source", "shard")),
        ("batch", pa.int64()),
        *((name, pa.timestamp("us", "UTC")) for name in ("newest", "latest")),
        *((f"p{at}", pa.int64()) for at in range(len(PLACE))),
    ]
)
NAMES = pa.schema([(name, pa.string()) for name in ("source", "shard", "key")])
ROWS_AT_ONCE = 250_000  # rows that are read before those that are not needed are dropped
BATCHES_FIRST = 100  # batches searched first for the highest order, then ten times as many


@dataclass(eq=False)
class LogReader:
    """The change log at one version, as one lane filled it."""

    pinned: SnapshotReader
    lane: str
    memory: LogMemory = field(default_factory=LogMemory)
    ahead: int = MOST_KEYS

    @cached_property
    def batch(self) -> int:
        """Return the newest batch in it; -1 before the first."""
        found = self.pinned.transaction(build_app_id(self.lane))
        return -1 if found is None else found

    @cached_property
    def dropped(self) -> int:
        """Return the newest batch whose changes were dropped with their day; -1 without one."""
        return int(self.pinned.properties().get(DROPPED, "-1"))

    def last_touches(self, table: Table, keys: Sequence[LogKey]) -> tuple[LastChange | None, ...]:
        """Return the newest landed change of each key, in the order of *keys*; None without one.

        The search starts at the batch that landed the record, or the record right before it, such
        as the delete before a tombstone. If the record was dropped, or has not landed, later
        records of its partition are searched.
        """
        found: dict[LogKey, KnownTouch] = {}
        for start in range(0, len(keys), KEYS_AT_ONCE):
            found |= self._found(table, keys[start : start + KEYS_AT_ONCE])
        self.memory.touches[table.name] = found
        since = min((one.landed for one in found.values()), default=None)
        emptied = [] if since is None else self._emptied_since(table, since - LOOK_BACK)
        return tuple(_touch(key, found[key].row, emptied) for key in keys)

    def touched(
        self, table: Table, keys: Sequence[tuple[Shard, str]], after: int
    ) -> tuple[bool, ...]:
        """Return whether each key, or its whole shard, was changed in a batch above *after*."""
        rows: set[str] = set()
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = [key for _, key in keys[start : start + KEYS_AT_ONCE]]
            rows |= self._newest(table, some, after + 1).keys()
        emptied = {(row["source"], row["shard"]) for row in self._emptied(table, after)}
        return tuple(key in rows or (of.source, of.name) in emptied for of, key in keys)

    def transactions(
        self,
        table: Table,
        after: int,
        until: int,
        bases: Mapping[str, ShardBase] = NO_BASES,
    ) -> tuple[Transaction, ...]:
        """Return transactions of *table* with an END in batches ``(after, until]``, by its batch.

        Those whose rows are all below *bases* (by ``source/shard``) are left out.
        """
        reader = TransactionReader(self.pinned, self.lane, self.memory)
        return reader.of(table, range(after + 1, until + 1), bases)

    def limit_ends(self, after: int, until: int, most: int) -> int:
        """Return the newest batch up to *until* with at *most* so many ENDs above *after*.

        It is at least the first batch above *after*.
        """
        return TransactionReader(self.pinned, self.lane, self.memory).limit(after, until, most)

    def change_counts(self, table: Table, after: int, until: int) -> int:
        """Return the number of changes (c, u, d) of *table* in batches in ``(after, until]``."""
        found = self.pinned.select(
            f"SELECT count(*) AS n FROM t WHERE {self._batches(after, until)}"  # noqa: S608
            f' AND t."table" = {quote_literal(table.name)} AND {among_sql("op", ROWS)}'
        )
        return int(found[0]["n"])

    def changes_without_transaction(self, table: Table, after: int, until: int) -> int:
        """Return how many of these changes are live and name no transaction."""
        found = self.pinned.select(
            f"SELECT count(*) AS n FROM t WHERE {self._batches(after, until)}"  # noqa: S608
            f' AND t."table" = {quote_literal(table.name)} AND {among_sql("op", ROWS)}'
            f" AND origin = {int(Origin.LIVE)} AND {TX} IS NULL"
        )
        return int(found[0]["n"])

    def ended_sources(self, after: int, until: int) -> frozenset[str]:
        """Return sources with an END in batches in ``(after, until]``."""
        batches = range(after + 1, until + 1)
        return frozenset().union(*self.memory.ended(batches, self._read_ended).values())

    def _read_ended(self, batches: Sequence[int]) -> Mapping[int, frozenset[str]]:
        found = self.pinned.select(
            "SELECT DISTINCT batch, source FROM t WHERE"  # noqa: S608
            f" {self._batches(batches[0] - 1, batches[-1])} AND op = {quote_literal(Op.END)}"
        )
        ended: dict[int, set[str]] = {}
        for row in found:
            ended.setdefault(int(row["batch"]), set()).add(row["source"])
        return {batch: frozenset(sources) for batch, sources in ended.items()}

    def unended_sources(self, table: Table, after: int, until: int, back: int) -> frozenset[str]:
        """Return sources of live changes in ``(after, until]`` whose transactions did not end.

        No END of a transaction that these changes name landed in batches in ``(back, until]``.
        """
        named = f"{among_sql('op', ROWS)} AND origin = {int(Origin.LIVE)} AND batch > {after}"
        named += f' AND t."table" = {quote_literal(table.name)}'
        if not self.pinned.select(
            f"SELECT 1 AS n FROM t WHERE {self._batches(after, until)} AND {named}"  # noqa: S608
            f" AND {TX} IS NOT NULL LIMIT 1"
        ):
            return frozenset()  # most tables are idle: the ENDs of many batches are not read
        ended = f"op = {quote_literal(Op.END)}"
        found = self.pinned.select(
            "SELECT source, max(changed) AS changed, max(changed * ended) AS both FROM"  # noqa: S608
            f" (SELECT source, {TX} AS id, max(CASE WHEN {ended} THEN 0 ELSE 1 END) AS changed,"
            f" max(CASE WHEN {ended} THEN 1 ELSE 0 END) AS ended"
            f" FROM t WHERE {self._batches(back, until)} AND ({ended} OR ({named}))"
            f" AND {TX} IS NOT NULL GROUP BY source, {TX}) GROUP BY source"
        )
        return frozenset(row["source"] for row in found if row["changed"] and not row["both"])

    def key_times(
        self,
        table: Table,
        after: int,
        until: int,
        keys: Sequence[str],
        *,
        fell_by: timedelta,
        most: int,
    ) -> tuple[KeyTimes, ...]:
        """Return times of at *most* so many live changes in batches in ``(after, until]``.

        The result holds *keys*, and each key whose newest change, by order, is older than its
        latest by more than *fell_by*.
        Memory holds one row for each changed key, and some hundred thousand rows more.
        """
        wanted = (
            f'{self._batches(after, until)} AND t."table" = {quote_literal(table.name)}'
            f" AND {among_sql('op', ROWS)} AND origin = {int(Origin.LIVE)}"
            ' AND key IS NOT NULL AND "at" IS NOT NULL'
        )
        named = (
            f"arrow_cast({one}, 'Dictionary(Int32, Utf8)') AS {one}" for one in ("source", "shard")
        )
        columns = f'key, {", ".join(named)}, batch, "at" AS newest, "at" AS latest, {PLACES}'
        query = f"SELECT {columns} FROM t WHERE {wanted}"  # noqa: S608
        rows = _reduce(self.pinned.batches(query), TIMES, _keep_newest)
        fall = pc.subtract(rows["latest"], rows["newest"])
        fell = pc.greater(fall, pa.scalar(fell_by, pa.duration("us")))
        asked = pc.is_in(rows["key"], pa.array(keys, pa.string()))
        found = rows.filter(pc.or_(fell, asked)).sort_by("key").slice(0, most)
        return tuple(
            KeyTimes(
                row["key"],
                row["latest"],
                row["newest"],
                str(Shard(row["source"], row["shard"])),
                Order(*read_place(row)),
            )
            for row in found.to_pylist()
        )

    def errors(self, table: str | None, most: int) -> tuple[ErrorRow, ...]:
        """Return the newest messages that could not be read, of one table (or topic) or of all."""
        return error_rows(self.pinned, self.lane, table, most)

    def error(self, change: str) -> tuple[ErrorRow, bytes] | None:
        """Return the quarantined change of that name with its bytes, if any."""
        return error_row(self.pinned, self.lane, change)

    def changed_rows(
        self, table: Table, after: int, until: int, *, most: int
    ) -> tuple[ChangedRow, ...] | None:
        """Return changed rows of *table* in batches in ``(after, until]``, unordered.

        Return None if there are more than *most*, if a whole shard was emptied or read again, or if
        some of these batches were dropped.
        """
        if after < self.dropped:
            return None
        own = f'{self._batches(after, until)} AND t."table" = {quote_literal(table.name)}'
        ops = among_sql("op", (*ROWS, Op.READ, *EMPTYING))
        found = self.pinned.select(
            f'SELECT source, shard, op, "before", "after" FROM t WHERE {own} AND {ops}'  # noqa: S608
            f" LIMIT {most + 1}"
        )
        if len(found) > most or any(row["op"] in EMPTYING for row in found):
            return None
        return tuple(
            ChangedRow(row["op"], Shard(row["source"], row["shard"]), row["before"], row["after"])
            for row in found
        )

    def row_versions(
        self, table: Table, shard: Shard, after: int, until: int, *, most: int
    ) -> tuple[RowVersion, ...] | None:
        """Return changes of rows of *shard* in batches in ``(after, until]``, in log order.

        None if there are more than *most*, if the shard was emptied or read again, or if some of
        these batches were dropped.
        """
        if after < self.dropped:
            return None
        wanted = (
            f'{self._batches(after, until)} AND t."table" = {quote_literal(table.name)}'
            f" AND source = {quote_literal(shard.source)} AND shard = {quote_literal(shard.name)}"
            f" AND {among_sql('op', (*KEYED, *EMPTYING))}"
        )
        unusable = f"NOT ({among_sql('op', ROWS)}) OR coalesce(key, '') = ''"
        counted = f"count(*) AS n, count(*) FILTER (WHERE {unusable}) AS unusable"
        (counts,) = self.pinned.select(f"SELECT {counted} FROM t WHERE {wanted}")  # noqa: S608
        if counts["n"] > most or counts["unusable"]:  # no row is read, as they may be large
            return None
        if not counts["n"]:
            return ()
        query = f'SELECT op, key, "after", {PLACES} FROM t WHERE {wanted}'  # noqa: S608
        found = [
            RowVersion(
                Order(*read_place(row)),
                row["key"],
                None if row["op"] == Op.DELETE else row["after"],
            )
            for batch in self.pinned.batches(query)
            for row in batch.to_pylist()
        ]
        return tuple(sorted(found, key=lambda one: (one.order, one.after is not None)))

    def changed_keys(
        self,
        table: Table,
        after: int,
        until: int,
        *,
        above: KeyName | None = None,
        most: int,
    ) -> tuple[tuple[Shard, str], ...]:
        """Return each shard and key that was changed or repaired in batches in ``(after, until]``.

        Rows of a new base are left out: `emptied_shards` names their shard. Results ascend by
        source, shard and key. There are at *most* so many, and only those *above* a source, shard
        and key.

        The log has no index by key, so each query reads the keys of all these batches, and keeps
        the first of them. It keeps more than *most*, for the next calls.
        """
        known = self.memory.keys.get(table.name)
        found = known.next(after, until, above, most) if known is not None else None
        if found is None:
            ahead = self._read_keys(table, after, until, above, max(most, self.ahead))
            if len(ahead.keys) > most and until <= self.batch:  # these batches get no more rows
                self.memory.keep_keys(table.name, ahead)
            found = ahead.keys[:most]
        return tuple((Shard(source, shard), key) for source, shard, key in found)

    def _read_keys(
        self, table: Table, after: int, until: int, above: KeyName | None, most: int
    ) -> KnownKeys:
        later = ""
        if above is not None:
            source, shard, key = map(quote_literal, above)
            later = f" AND (source > {source} OR (source = {source} AND (shard > {shard}"
            later += f" OR (shard = {shard} AND key > {key}))))"
        query = (
            f"SELECT source, shard, key FROM t WHERE {self._batches(after, until)}"  # noqa: S608
            f' AND t."table" = {quote_literal(table.name)} AND key IS NOT NULL'
            f" AND {among_sql('op', KEYED)} AND NOT {OF_BASE}{later}"
        )
        found = _reduce(self.pinned.batches(query), NAMES, lambda rows: _keep_first(rows, most))
        keys = tuple(zip(*(found[name].to_pylist() for name in NAMES.names), strict=True))
        return KnownKeys(after, until, above, keys, len(keys) < most)

    def emptied_shards(self, table: Table, after: int, until: int) -> frozenset[Shard]:
        """Return shards that were truncated or got a new base in batches in ``(after, until]``.

        The log does not name the deleted rows, and a base has too many rows to look them up by key.
        The result is all shards of *table* if some of these batches were dropped.
        """
        if until <= after:
            return frozenset()
        if after < self.dropped:
            return frozenset(table.shards)
        found = [row for row in self._emptied(table, after) if int(row["batch"]) <= until]
        found += self.pinned.select(
            f"SELECT DISTINCT source, shard FROM t WHERE {self._batches(after, until)}"  # noqa: S608
            f' AND t."table" = {quote_literal(table.name)} AND {OF_BASE}'
        )
        return frozenset(Shard(row["source"], row["shard"]) for row in found)

    def highest_order(self, table: Table, shard: Shard, until: int) -> Order | None:
        """Return the highest order of the shard in the newest batches up to *until* that have any.

        None if none has landed. Older batches are not read: their orders are lower, unless the
        newest hold redelivered changes only.
        """
        after, width = until, BATCHES_FIRST
        highest = ", ".join(f"{part} DESC" for part in PLACE)
        while after >= 0:
            before, after = after, max(after - width, -1)
            found = self.pinned.select(
                f"SELECT {PLACES} FROM t WHERE {self._batches(after, before)}"  # noqa: S608
                f' AND t."table" = {quote_literal(table.name)}'
                f" AND source = {quote_literal(shard.source)}"
                f" AND shard = {quote_literal(shard.name)} AND {among_sql('op', KEYED)}"
                f" ORDER BY {highest} LIMIT 1"
            )
            if found:
                return Order(*read_place(found[0]))
            width *= 10
        return None

    def schema_changes(self, after: int) -> list[tuple[str, Order, str]]:
        """Return source, order, payload of schema changes above batch *after*, as they landed.

        Several of one order (a statement that swaps two tables) are valid in that sequence only.
        """
        found = self.pinned.select(
            f'SELECT source, "after" AS payload, {PLACES} FROM t'  # noqa: S608
            f" WHERE lane = {quote_literal(self.lane)} AND batch > {after}"
            f" AND op = {quote_literal(Op.DDL)}"
            ' AND t."order" IS NOT NULL ORDER BY batch, topic, t."offset"'
        )
        return [(row["source"], Order(*read_place(row)), row["payload"]) for row in found]

    def _found(self, table: Table, keys: Sequence[LogKey]) -> dict[LogKey, KnownTouch]:
        """Return the newest change of each key; for known keys only later batches are searched."""
        before, until = self.memory.touches.get(table.name, {}), self.memory.until
        known = [before[key] for key in keys if key in before]
        found = {one.key: one for one in known if one.until >= until}
        late = [one for one in known if one.until < until and one.row is not None]
        if late:
            since = min(one.until for one in late) + 1
            rows = self._newest(table, [one.key.key for one in late], since)
            for one in late:
                some = (row for row in (one.row, rows.get(one.key.key)) if row is not None)
                found[one.key] = KnownTouch(one.key, one.landed, max(some, key=_rank), until)
        new = [key for key in keys if key not in before]
        landed = self._landed_since(new, _not_before(new, before.values())) if new else None
        if landed is not None:
            rows = self._newest(table, [key.key for key in new], landed)
            there = (key for key in new if key.key in rows)
            found |= {key: KnownTouch(key, landed, rows[key.key], until) for key in there}
        return found | self._found_later(table, [key for key in keys if key not in found])

    def _found_later(self, table: Table, gone: Sequence[LogKey]) -> dict[LogKey, KnownTouch]:
        """Return the newest change in a later record, for keys whose record the log lost."""
        if not gone:
            return {}
        before, until = self.memory.touches.get(table.name, {}), self.memory.until
        first = self.dropped + 1
        since = min(before[key].until + 1 if key in before else first for key in gone)
        later = " OR ".join(
            f'(key = {quote_literal(key.key)} AND {_in_partition(key)} AND t."offset" >='
            f" {key.offset - 1})"
            for key in gone
        )
        rows = self._newest(table, [key.key for key in gone], max(since, first), f" AND ({later})")
        return {key: KnownTouch(key, first, rows.get(key.key), until) for key in gone}

    def _landed_since(self, keys: Sequence[LogKey], first: int) -> int | None:
        seen = " OR ".join(
            f'({_in_partition(key)} AND t."offset" >= {key.offset - 1}'
            f' AND t."offset" <= {key.offset})'
            for key in keys
        )
        own = f"lane = {quote_literal(self.lane)} AND batch >= {first}"
        asked = f"SELECT min(batch) AS b FROM t WHERE {own} AND ({seen})"  # noqa: S608
        found = self.pinned.select(asked)[0]["b"]
        return None if found is None else int(found)

    def _newest(
        self, table: Table, keys: Iterable[str], since: int, only: str = ""
    ) -> dict[str, dict[str, Any]]:
        newest = ", ".join(f"{part} DESC" for part in (*PLACE, "origin", "batch"))
        found = self.pinned.select(
            f"SELECT * FROM (SELECT key, op, batch, origin, {PLACES},"  # noqa: S608
            f" row_number() OVER (PARTITION BY key ORDER BY {newest}) AS place FROM t"
            f" WHERE lane = {quote_literal(self.lane)} AND batch >= {since}"
            f' AND t."table" = {quote_literal(table.name)} AND {among_sql("op", KEYED)}'
            f" AND {among_sql('key', keys)}{only}) WHERE place = 1"
        )
        return {row["key"]: row for row in found}

    def _emptied_since(self, table: Table, after: int) -> Sequence[Mapping[str, Any]]:
        """Return emptying rows of batches above *after* or of more; each batch is searched once."""
        known, until = self.memory.emptied.get(table.name), self.memory.until
        if known is None or known.after > after:
            rows: Sequence[Mapping[str, Any]] = self._emptied(table, after)
            after = after if known is None else min(after, known.after)
        elif known.until < until:
            rows = sorted([*known.rows, *self._emptied(table, known.until)], key=read_place)
            after = known.after
        else:
            return known.rows
        self.memory.emptied[table.name] = KnownEmptied(rows, after, until)
        return rows

    def _emptied(self, table: Table, after: int) -> list[dict[str, Any]]:
        """Return truncates and settles, oldest first: about one per base and per request."""
        return self.pinned.select(
            f'SELECT source, shard, op, batch, topic, "partition", "offset", {PLACES}'  # noqa: S608
            f" FROM t WHERE lane = {quote_literal(self.lane)} AND batch > {after}"
            f' AND t."table" = {quote_literal(table.name)} AND {among_sql("op", EMPTYING)}'
            " ORDER BY p0, p1, p2, p3"
        )

    def _batches(self, after: int, until: int) -> str:
        return f"lane = {quote_literal(self.lane)} AND batch > {after} AND batch <= {until}"


def _reduce(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, keep: Callable[[pa.Table], pa.Table]
) -> pa.Table:
    """Return the rows of *batches* that *keep* keeps of all; it is called for some at a time."""
    kept, read, count = schema.empty_table(), list[pa.Table](), 0
    for batch in batches:
        read.append(pa.Table.from_batches([batch]).cast(schema))
        count += batch.num_rows
        if count >= max(ROWS_AT_ONCE, kept.num_rows):
            kept, read, count = keep(pa.concat_tables([kept, *read]).combine_chunks()), [], 0
    return keep(pa.concat_tables([kept, *read]).combine_chunks())


def _keep_first(rows: pa.Table, most: int) -> pa.Table:
    """Return the first *most* distinct rows, ascending."""
    distinct = rows.group_by(rows.column_names, use_threads=False).aggregate([])
    return distinct.sort_by([(name, "ascending") for name in rows.column_names]).slice(0, most)


def _keep_newest(rows: pa.Table) -> pa.Table:
    """Return the newest change of each key, with the latest time of all."""
    if not rows.num_rows:
        return rows
    key = rows["key"].chunk(0).dictionary_encode().indices.to_numpy()
    places = [pc.fill_null(rows[f"p{at}"], 0).to_numpy() for at in range(len(PLACE))]
    ordered = np.lexsort((rows["batch"].to_numpy(), *reversed(places), key))
    last = np.flatnonzero(np.diff(key[ordered], append=-1))  # of each key
    times = rows["latest"].cast(pa.int64()).to_numpy()[ordered]
    latest = np.maximum.reduceat(times, np.append(0, last[:-1] + 1))
    kept = rows.take(pa.array(ordered[last]))
    at = TIMES.get_field_index("latest")
    return kept.set_column(at, TIMES.field(at), pa.array(latest).cast(TIMES.field(at).type))


def _in_partition(key: LogKey) -> str:
    return f'topic = {quote_literal(key.at.topic)} AND t."partition" = {key.at.partition}'


def _not_before(keys: Sequence[LogKey], before: Iterable[KnownTouch]) -> int:
    """Return the first batch that may hold the records, by lower records of their partitions.

    A record never lands before a lower one of its partition.
    """
    lower: dict[TopicPartition, KnownTouch] = {}
    for one in before:
        if one.key.at not in lower or one.key.offset > lower[one.key.at].key.offset:
            lower[one.key.at] = one
    if any(key.at not in lower or lower[key.at].key.offset >= key.offset for key in keys):
        return -1  # the partition is new, or its topic was recreated
    return min(lower[key.at].landed for key in keys)


def _rank(row: Mapping[str, Any]) -> tuple[int, ...]:
    return (*read_place(row), int(row["origin"] or 0), int(row["batch"]))


def _touch(
    key: LogKey, row: Mapping[str, Any] | None, emptied: Iterable[Mapping[str, Any]]
) -> LastChange | None:
    own = (e for e in emptied if (e["source"], e["shard"]) == (key.shard.source, key.shard.name))
    if row is None:
        later = [e for e in own if _is_later(e, key)]
    else:
        later = [e for e in own if read_place(e) > read_place(row)]
    newest = later[-1] if later else row
    return None if newest is None else LastChange(str(newest["op"]), int(newest["batch"]))


def _is_later(emptying: Mapping[str, Any], key: LogKey) -> bool:
    """Return whether it is a record of the key's partition, above the key's."""
    place = emptying["topic"], emptying["partition"]
    return place == (key.at.topic, key.at.partition) and emptying["offset"] > key.offset
