"""What a written batch says of itself, added up from its runs before it is committed.  Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import add
from typing import Any, TypeVar

from pipeline.checkpoint import ToldSchema
from pipeline.errors import FormatError
from pipeline.formats.format import INCREMENTAL
from pipeline.heartbeats import HeartbeatRow, LandedBeat
from pipeline.landing.inversions import NO_FLOORS, order_of, tops
from pipeline.landing.tally import AroundRows, RunTally, SnapshotRows, Unreadable
from pipeline.landing.told_schemas import newest, unrepeated
from pipeline.model import Order, OrderSpan, Shard, TopicPartition
from pipeline.schema.history import SchemaChange, SchemaReading
from pipeline.schema.model import Told

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class News:
    """A schema change of a source; ``snapshot`` if it describes a table about to be read.

    ``captured`` if the collector sends the table's rows: it tells of those it leaves out, too.
    ``empty`` if it makes a table that begins empty where there was none, ``over`` where there was,
    ``new`` where it is unknown whether there was.
    ``signalled`` if a signal asked for the snapshot.
    """

    source: str
    change: SchemaChange
    snapshot: bool
    captured: bool = True
    empty: bool = True
    over: bool = False
    new: bool = True
    signalled: bool = False

    @property
    def name(self) -> str:
        """The shard that it is about, as a mark names it."""
        return str(Shard(self.source, self.change.shard))

    @property
    def former(self) -> str | None:
        """The name that the shard had before, if it was renamed."""
        before = self.change.previous
        return None if before is None else str(Shard(self.source, before))


@dataclass(frozen=True, slots=True)
class DroppedDatabase:
    """A database that went at ``order``, with all its tables, of which none is told."""

    source: str
    order: Order
    database: str
    text: str


@dataclass(frozen=True, slots=True)
class UnreadChanges:
    """Changes of one shard, or topic, that could not be read: how many, and the first by name.

    ``table`` is None where the shard is not known; an id is ``topic:partition:offset``.
    """

    source: str
    table: str | None
    count: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts and maxima of one batch; keys as in :class:`pipeline.checkpoint.Mark`.

    ``tables``      table -> rows that change its mirror.
    ``shards``      ``source/shard`` -> its table, of every shard with such a row.
    ``heartbeats``  source -> highest number.
    ``beats``       source -> each of its heartbeats that has an order.
    ``heartbeat_rows``  source -> all rows of its heartbeat table, but replayed ones.
    ``wholes``      source -> order of its newest snapshot that read the heartbeat's table, too.
    ``high``        ``source/topic:partition`` -> highest LIVE order.
    ``snapshots``   ``source/shard`` -> its newest snapshot's rows.
    ``news``        schema changes, in log order; one that cannot be read is an error.
    ``initial``     source -> orders of its snapshots that were taken of all tables.
    ``statements``  schema changes of any kind, those about no table among them.
    ``databases``   those that were dropped, in log order.
    ``schemas``     ``source/shard`` -> the newest columns that its rows told of themselves.
    ``texts``       (source, text) of those that are no part of a snapshot.
    ``firsts``      ``source/shard`` -> lowest order of a row, of those created in it.
    ``errors``      ``source/shard`` (or ``topic:NAME`` where it is not known) -> what is unread.
    ``around``      ``source/shard`` -> live rows that may stand below the snapshot before them.
    ``doubted``     partitions in which rows may stand too low.
    ``hidden``      ``source/shard`` that is captured, and whose topic we may not see.
    ``late``        ``source/shard`` with rows that the broker refused when they came first, or that
                    a waiver lets pass below what was landed.
    ``let_pass``    those of them with rows that a waiver lets pass -> their lowest order before,
                    and the highest of those behind them.
    """

    rows: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, str] = field(default_factory=dict)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, Order] = field(default_factory=dict)
    snapshots: Mapping[str, SnapshotRows] = field(default_factory=dict)
    news: tuple[News, ...] = ()
    initial: Mapping[str, frozenset[Order]] = field(default_factory=dict)
    statements: int = 0
    databases: tuple[DroppedDatabase, ...] = ()
    schemas: Mapping[str, ToldSchema] = field(default_factory=dict)
    texts: tuple[tuple[str, str], ...] = ()
    firsts: Mapping[str, Order] = field(default_factory=dict)
    errors: Mapping[str, UnreadChanges] = field(default_factory=dict)
    around: Mapping[str, AroundRows] = field(default_factory=dict)
    doubted: frozenset[TopicPartition] = frozenset()
    hidden: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    let_pass: Mapping[str, OrderSpan] = field(default_factory=dict)
    wholes: Mapping[str, Order] = field(default_factory=dict)
    beats: Mapping[str, tuple[LandedBeat, ...]] = field(default_factory=dict)
    heartbeat_rows: Mapping[str, tuple[HeartbeatRow, ...]] = field(default_factory=dict)


def gather(
    told: Sequence[RunTally],
    high: Mapping[str, Order],
    readings: Mapping[str, SchemaReading],
    schemas: Mapping[str, ToldSchema] | None = None,
    floors: Mapping[str, Order] = NO_FLOORS,
) -> Facts:
    """Add up what a batch's runs tell; *high* is the highest LIVE order landed before.

    *readings*: source -> how its schema changes are read; *schemas* are the newest columns that
    rows told before; *floors* as of :func:`pipeline.landing.inversions.tops`.
    """
    statements = unrepeated((row for tally in told for row in tally.statements), schemas or {})
    reached, doubted = tops((one for tally in told for one in tally.stretches), high, floors)
    read = _read(statements, readings)
    texts = [(source, one) for source, one in read.told if not one.snapshot]
    errors = _joined([*(one.errors for one in told), *read.unread], Unreadable.with_more)
    return Facts(
        rows=sum(one.rows for one in told),
        tables=_joined([one.tables for one in told], add),
        shards={name: table for one in told for name, table in one.shards.items()},
        heartbeats=_joined([one.heartbeats for one in told], max),
        high=reached,
        snapshots=_joined([one.snapshots for one in told], SnapshotRows.with_rows),
        news=read.news,
        initial=_initial(read.told, readings),
        statements=sum(len(one.statements) for one in told),
        databases=tuple(_databases(texts, readings)),
        schemas=newest(statements),
        texts=tuple((source, one.text) for source, one in texts if one.text),
        firsts=_firsts(told, read.news),
        errors={name: unread_changes(one) for name, one in errors.items()},
        around=_joined([one.around for one in told], AroundRows.with_more),
        doubted=doubted,
        wholes=_joined([one.wholes for one in told], max),
        beats=_beats(told),
        heartbeat_rows=_joined([one.heartbeat_rows for one in told], add),
    )


def _beats(told: Iterable[RunTally]) -> dict[str, tuple[LandedBeat, ...]]:
    found: dict[str, list[LandedBeat]] = {}
    for source, own in chain.from_iterable(one.beats.items() for one in told):
        found.setdefault(source, []).extend(own)
    return {source: tuple(own) for source, own in found.items()}


def _joined(told: Iterable[Mapping[str, T]], join: Callable[[T, T], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for one in told:
        for name, value in one.items():
            found[name] = join(found[name], value) if name in found else value
    return found


@dataclass(frozen=True, slots=True)
class _Statements:
    """Schema changes in log order, their statements, and those unread, of their topics."""

    news: tuple[News, ...]
    told: tuple[tuple[str, Told], ...]
    unread: tuple[Mapping[str, Unreadable], ...]


def _read(
    statements: Sequence[Mapping[str, Any]], readings: Mapping[str, SchemaReading]
) -> _Statements:
    news: list[News] = []
    every: list[tuple[str, Told]] = []
    unread: list[Mapping[str, Unreadable]] = []
    placed = [row for row in statements if row["log"] is not None]
    for row in sorted(placed, key=lambda row: (row["topic"], row["offset"])):
        try:
            reading = readings[row["source"]]
            told, parsed = reading.read(row["note"], order_of(row))
        except FormatError:
            where = (row["topic"], row["partition"], row["offset"])
            unread.append({f"topic:{row['topic']}": Unreadable(row["source"], None, 1, (where,))})
            continue
        every.append((row["source"], replace(told, snapshot=row["snapshot"] is not None)))
        for change in parsed:
            news.append(_told(row, change, reading))
    return _Statements(tuple(news), tuple(every), tuple(unread))


def _initial(
    told: Iterable[tuple[str, Told]], readings: Mapping[str, SchemaReading]
) -> dict[str, frozenset[Order]]:
    """Source -> orders of its snapshots of all tables: they make their databases anew.

    Measured on Debezium 3.5: one of single tables, which a signal asks for, leaves that out.
    """
    found: dict[str, frozenset[Order]] = {}
    for source, one in told:
        if one.snapshot and not one.tables and readings[source].dialect.database_dropped(one.text):
            found[source] = found.get(source, frozenset()) | {one.order}
    return found


def _databases(
    texts: Sequence[tuple[str, Told]], readings: Mapping[str, SchemaReading]
) -> Iterator[DroppedDatabase]:
    for source, told in texts:
        database = readings[source].dialect.database_dropped(told.text)
        if database is not None:
            yield DroppedDatabase(source, told.order, database, told.text)


def _told(row: Mapping[str, Any], change: SchemaChange, reading: SchemaReading) -> News:
    read, signalled = row["snapshot"] is not None, row["snapshot"] == INCREMENTAL
    news = News(row["source"], change, snapshot=read, signalled=signalled)
    if news.snapshot or change.kind != "create":
        return news  # no birth of a table, so nobody asks how it begins
    anew = partial(reading.dialect.makes_anew, change.statement)
    return replace(news, empty=anew(there=False), over=anew(there=True), new=anew(there=None))


def _firsts(told: Sequence[RunTally], news: Sequence[News]) -> dict[str, Order]:
    """Lowest order of the rows of each shard that was created: was it there before?"""
    created = {one.change.shard for one in news if one.change.kind == "create" and not one.snapshot}
    firsts = _joined([one.firsts for one in told], min)
    return {name: one for name, one in firsts.items() if Shard.parse(name).name in created}


def unread_changes(one: Unreadable) -> UnreadChanges:
    """They as a mark names them."""
    ids = tuple(f"{topic}:{partition}:{offset}" for topic, partition, offset in one.first)
    return UnreadChanges(one.source, one.table, one.count, ids)
