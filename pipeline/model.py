"""Defines the values that the whole pipeline shares: orders, shards, tables, positions, fences.

An order is a tuple of integers and never a time. Orders are compared within one source only. A
position is opaque: only its source kind compares it.

The capture scope says for which tables rows are sent: the collector's lists and the source must
both include the table. If the lists cannot be read, no table is included.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from pipeline.errors import text_or_cause
from pipeline.finding import Finding


class Op(StrEnum):
    """What a row of the change log records; mirrors apply the first six.

    ``SKIPPED`` is a message without a change, as its format decodes it. It is never landed.
    """

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "truncate"
    SETTLE = "settle"
    TOMBSTONE = "tombstone"
    HEARTBEAT = "heartbeat"
    BEGIN = "begin"
    END = "end"
    DDL = "ddl"
    MARK = "mark"
    ERROR = "error"
    SKIPPED = "skipped"


class Origin(IntEnum):
    """Where a change came from; at equal order the higher wins, so LIVE always wins."""

    SNAPSHOT = 0
    REPLAY = 1
    REPAIR = 2
    LIVE = 3


class Hop(StrEnum):
    """A part of the path from source to mirror, and on to a copy, in the order of a change."""

    COLLECTION = "collection"
    SYNC = "sync"
    CONSUMER = "consumer"
    MERGE = "merge"
    COPY = "copy"


class Stage(StrEnum):
    """What a reader waits for: the change log, the mirror, the mirror as of the cut, or a copy."""

    LANDED = "landed"
    MIRROR = "mirror"
    IMAGE = "image"
    COPY = "copy"


def stage_name(stage: Stage, copy: str = "") -> str:
    """A stage for display: a copy with its name, because a table may have several."""
    return f"{stage}:{copy}" if copy else str(stage)


class Ordering(StrEnum):
    """What the order of a source's changes is based on, the strongest first.

    LOG: their positions in the source's log. SEQUENCE: the messages' own sequence, which the
    collector made by its clock. OFFSET: the offsets of their messages in a partition of a topic.
    """

    LOG = "log_position"
    SEQUENCE = "own_sequence"
    OFFSET = "partition_offset"

    @property
    def strength(self) -> int:
        """Higher for an ordering that proves more."""
        return _STRENGTHS[self]


_STRENGTHS = {one: -place for place, one in enumerate(Ordering)}

COLUMN_VERSIONS = "_column_versions"
"""A column of JSON, in some formats: the columns that have a lower version than the row.

It maps each such column to the ``pos`` of the change that its value comes from.
"""


@dataclass(frozen=True, slots=True, order=True)
class Order:
    """The position of a change in its source's log; compared left to right, within one source.

    MySQL: Sluice's epoch, binlog file number, position in it, row of the event.
    """

    epoch: int
    log: int
    pos: int
    row: int = 0

    @property
    def parts(self) -> tuple[int, ...]:
        """The values of ``ORDER_PARTS``, as ``Order(*parts)`` takes them; they compare alike."""
        return _order_parts(self)

    @property
    def event(self) -> "Order":
        """The order of the event that contains the row; for snapshot rows the snapshot's."""
        return Order(*self.parts[:-1])


ORDER_PARTS = tuple(part.name for part in fields(Order))
"""Names of the parts of an order, in every table and message; the most significant first."""

LOG_PARTS = ORDER_PARTS[1:]
"""The parts that a message has: all except the epoch."""

_order_parts: Callable[[Order], tuple[int, ...]] = attrgetter(*ORDER_PARTS)


@dataclass(frozen=True, slots=True)
class OrderSpan:
    """The span from the lowest to the highest of some orders of one source."""

    lowest: Order
    highest: Order

    def joined(self, other: "OrderSpan") -> "OrderSpan":
        """The span over all orders of both."""
        return OrderSpan(min(self.lowest, other.lowest), max(self.highest, other.highest))

    def within(self, epoch: int) -> "OrderSpan":
        """The span with all higher epochs lowered to *epoch*."""
        ends = (replace(one, epoch=min(one.epoch, epoch)) for one in (self.lowest, self.highest))
        return OrderSpan(*ends)

    def up_to(self, last: Order) -> "OrderSpan":
        """The span without what is above *last*."""
        return OrderSpan(self.lowest, min(self.highest, last))


@dataclass(frozen=True, slots=True, order=True)
class ShardId:
    """A physical table by its two names; its text is ``database.table`` everywhere.

    A part that is empty, or contains a dot or a double quote, is in double quotes, with those
    inside doubled. So no two tables share a text.
    """

    database: str
    relation: str

    def __str__(self) -> str:
        """Render the canonical text."""
        return f"{_part(self.database)}.{_part(self.relation)}"

    @classmethod
    def parse(cls, text: str) -> "ShardId":
        """Parse the output of ``str``.

        Raises:
            ValueError: the text is not canonical.
        """
        parts = [_bare(found[0]) for found in _PART.finditer(text)]
        if len(parts) != 2 or str(cls(*parts)) != text:
            raise ValueError(_explain_no_table(text))
        return cls(*parts)

    @classmethod
    def read(cls, text: str) -> "ShardId":
        """Parse any text; one that is not canonical is split at its first dot."""
        try:
            return cls.parse(text)
        except ValueError:
            database, _, relation = text.partition(".")
            return cls(database, relation)

    @staticmethod
    def beginning(database: str) -> str:
        """The beginning of the text of each table of *database*, and of no other table."""
        return f"{_part(database)}."


_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')


def table_name_fault(text: str) -> str:
    """Why *text* is not a table name as `ShardId` writes it, and how to write it; else empty."""
    try:
        ShardId.parse(text)
    except ValueError as error:
        return str(error)
    return ""


def _explain_no_table(text: str) -> str:
    first, *middle, last = text.split(".") if text.count(".") > 1 else (text, text)
    if not middle or '"' in text or not (first and last):
        return f"{text!r} is not a table name; write database.table, odd names in double quotes"
    long_table = ShardId(first, ".".join([*middle, last]))
    long_database = ShardId(".".join([first, *middle]), last)
    return (
        f"{text!r} is not a table name: it has {len(middle) + 1} dots; put a name that contains"
        f" dots in double quotes: {long_table} is {long_table.relation} of database {first}, and"
        f" {long_database} is {last} of database {long_database.database}"
    )


def _part(name: str) -> str:
    return name if name and not set(name) & {".", '"'} else '"' + name.replace('"', '""') + '"'


def _bare(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


class Shard(NamedTuple):
    """One physical ``database.table`` of one source.

    It is a tuple, because checkpoints have thousands as keys and its hash costs a tenth of a
    dataclass's.

    It sorts by source, then by name. Its text sorts differently if one source's name begins with
    another's (``a-b/`` is before ``a/``), so sort by ``str`` what is stored or shown.
    """

    source: str
    name: str

    def __str__(self) -> str:
        """Render as ``source/database.table``, the form used in checkpoints and messages."""
        return f"{self.source}/{self.name}"

    @staticmethod
    def parse(text: str) -> "Shard":
        """Parse the output of ``str``; source names have no slash.

        The newest ``MAX_PARSED_SHARDS`` texts yield the same object each time.
        """
        return _parse_shard(text)

    @property
    def database(self) -> str:
        """The schema of the physical table."""
        return self.id.database

    @property
    def relation(self) -> str:
        """The physical table's name without its database."""
        return self.id.relation

    @property
    def id(self) -> ShardId:
        """Both names; they may contain dots and quotes, so never split the text at a dot."""
        return ShardId.read(self.name)


MAX_PARSED_SHARDS = 65_536
"""Number of parsed shard texts that are cached; each costs about 300 bytes."""


@lru_cache(maxsize=MAX_PARSED_SHARDS)
def _parse_shard(text: str) -> Shard:
    source, _, name = text.partition("/")
    return Shard(source, name)


@dataclass(frozen=True, slots=True)
class Table:
    """A logical name and the shards that fold into it, sorted.

    ``key`` holds the source's key columns in order; empty if the source declares none.
    ``id_column`` is the one integer key column that probes may range over; None without one.
    ``by_standard`` are columns whose values in the mirror differ from the source's. They are not
    compared, and source and mirror do not order them alike.
    """

    name: str
    shards: tuple[Shard, ...]
    key: tuple[str, ...] = ()
    id_column: str | None = None
    unique_across_shards: bool = False
    tier: int = 1
    by_standard: tuple[str, ...] = ()

    def restates(self, column: str) -> bool:
        """Whether *column*, in any letter case, is one of ``by_standard``."""
        return column.casefold() in {one.casefold() for one in self.by_standard}

    def with_standards(self, columns: tuple[str, ...]) -> "Table":
        """The table with *columns* rewritten by standards; probes do not range over such a key."""
        made = replace(self, by_standard=columns)
        return replace(made, id_column=None) if any(map(made.restates, made.key)) else made

    @property
    def no_ranges(self) -> str:
        """Why its keys have no ranges that can be counted on both sides; empty if they have."""
        if self.id_column is not None and self.key in {(), (self.id_column,)}:
            return ""
        if written := [name for name in self.key if self.restates(name)]:
            return f"key column {written[0]} is written by a standard"
        return "the key is not one integer column"

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the shards' sources, sorted, each once."""
        if len(self.shards) == 1:  # called for thousands of tables, many times a round
            return (self.shards[0].source,)
        return tuple(sorted({shard.source for shard in self.shards}))


@dataclass(frozen=True, slots=True)
class Missing:
    """A measurement that does not exist; ``why`` is shown to people. Never a number."""

    why: str

    def __post_init__(self) -> None:
        """Fill in a reason if the caller gave none."""
        object.__setattr__(self, "why", text_or_cause(self.why, "no answer"))


Lag = timedelta | Missing


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a source's log: ``words`` are for people, and for the source's own ``kind``.

    It is compared only by :mod:`pipeline.sources.positions`.
    """

    kind: str
    words: str

    def __str__(self) -> str:
        """Render for people."""
        return self.words


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the log of a connected server; ``identity`` is the server's.

    ``parted`` is where it left the log of the server that it replaced, if it did and reports it.
    """

    identity: str
    position: Position
    parted: Position | None = None


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """What retains a source's log for its collector, from the position ``begins`` on.

    Only its own ``kind`` parses its ``words``.
    """

    kind: str
    words: str
    begins: Position


@dataclass(frozen=True, slots=True)
class Fence:
    """A heartbeat as a position: it is above everything that its source committed before ``at``.

    ``at`` is the earlier of two clocks: Sluice's, read *before* the heartbeat's statement, and the
    server's own, read before its commit. ``head`` was read from the server *after* the commit, so
    it is at or above the heartbeat itself.
    """

    source: str
    number: int
    at: datetime
    head: Head


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a collector has durably sent: all transactions before ``position``.

    ``snapshot`` is true while it is still reading its initial snapshot: then nothing is proven.
    """

    position: Position
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotAgain:
    """A snapshot of a whole source whose tables had bases: its order, when it was seen, and where.

    ``asked`` if the source had a gap or unreadable changes by then, which a snapshot repairs.
    """

    order: Order
    at: datetime
    batch: int
    tables: int
    asked: bool


class TopicPartition(NamedTuple):
    """One partition of one topic.

    It is a tuple, because checkpoints have thousands as keys and its hash costs a tenth of a
    dataclass's.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        """Render as ``topic:partition``, the form used in checkpoints and messages."""
        return f"{self.topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """Parse the output of ``str``."""
        topic, _, partition = text.rpartition(":")
        return cls(topic, int(partition))


class SourcePartition(NamedTuple):
    """A partition, and the source whose changes it holds."""

    source: str
    at: TopicPartition

    def __str__(self) -> str:
        """Render as ``source/topic:partition``, the form used in checkpoints."""
        return f"{self.source}/{self.at.topic}:{self.at.partition}"

    @classmethod
    def parse(cls, text: str) -> "SourcePartition":
        """Parse the output of ``str``; source names have no slash."""
        source, _, at = text.partition("/")
        topic, _, partition = at.rpartition(":")
        return cls(source, TopicPartition(topic, int(partition)))


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """How far one partition has landed: the next offset to read, and the topic's incarnation."""

    offset: int
    topic_id: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Account:
    """Counts of one merged slice of one table; each term is counted separately.

    ``corrected`` counts messages that an earlier account counts as quarantined, and whose changes
    are read now. They were read twice, and are no longer quarantined.

    ``minutes`` and ``explained`` count rows by minute, by op and by outcome (see
    :mod:`pipeline.minute_counts`). They are None if that is unknown.
    """

    read: int = 0
    applied: int = 0
    noop: int = 0
    superseded: int = 0
    redelivered: int = 0
    quarantined: int = 0
    ignored: Mapping[str, int] | None = None
    corrected: int = 0
    minutes: Mapping[str, Mapping[str, int]] | None = field(default=None, compare=False, repr=False)
    explained: Mapping[str, Mapping[str, int]] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def residual(self) -> int:
        """Changes read that no other term explains; anything but 0 holds the table."""
        explained = self.applied + self.noop + self.superseded + self.redelivered
        return self.read - explained - self.quarantined - sum((self.ignored or {}).values())


@dataclass(frozen=True, slots=True)
class Break:
    """A time in which nothing retained the writes of any table for the collector; ``why``.

    ``since`` is when that was first noticed, ``over`` is set once writes are retained again. What
    was written until then is not sent.
    """

    why: str
    since: float
    over: bool = False


@dataclass(frozen=True, slots=True)
class CaptureScope:
    """The tables whose rows are sent, by the current settings.

    ``text`` changes whenever the scope may have changed. Lists that cannot be read are not
    ``known``, and include nothing. ``said_by`` names the lists in messages. ``replaced`` are tables
    whose rows were replaced without an event in the log (dropped, recreated, exchanged). Each has
    its last detection, in seconds of this process's own clock.

    `keeper` is the slot that retains the log; None without one, or if it is not needed.
    ``remembered`` describes the storage behind each table's name in the source, for the landing
    checkpoint; ``differs`` names the tables where that has changed since.

    ``alters`` returns for a column, ``database.table.column``, the setting that omits it or its
    values, empty without one; if no column is altered, ``alters`` itself is None.

    ``hazards`` are settings that may drop, rewrite or delay changes. The list is complete once the
    looks are ``steady``, except for what is ``unanswered``, named as a hazard's ``where``.
    ``unreported`` returns the alternatives of a remembered hazard's ``shards`` that were not
    examined: for them the hazard lasts.
    """

    sends: Callable[[ShardId], bool]
    text: str = ""
    known: bool = True
    said_by: str = "the collector's lists"
    replaced: Mapping[ShardId, float] = field(default_factory=dict)
    broken: Break | None = None
    keeper: RetainedLog | None = None
    alters: Callable[[str], str] | None = None
    remembered: Mapping[str, str] = field(default_factory=dict)
    differs: Callable[[Mapping[str, str]], frozenset[ShardId]] = lambda _: frozenset()
    hazards: tuple[Finding, ...] = ()
    steady: bool = True
    unanswered: frozenset[str] = frozenset()
    unreported: Callable[[Finding], frozenset[str]] = lambda _: frozenset()

    def __call__(self, shard: ShardId) -> bool:
        """Whether rows of *shard* are sent."""
        return self.sends(shard)

    @property
    def newest(self) -> float:
        """The time of the newest detection."""
        began = () if self.broken is None else (self.broken.since,)
        return max((*self.replaced.values(), *began), default=float("-inf"))

    def after(self, at: float) -> "CaptureScope":
        """The scope without detections up to *at*, unless they still last."""
        left = {shard: seen for shard, seen in self.replaced.items() if seen > at}
        ended = self.broken is not None and self.broken.over and self.broken.since <= at
        return replace(self, replaced=left, broken=None if ended else self.broken)


def combine_scopes(lists: CaptureScope, source: CaptureScope | None) -> CaptureScope:
    """The tables that both the collector's *lists* and its *source* send; None: a source sends all.

    A source without a ``text`` sends all, too, and adds only hazards.
    """
    if source is None:
        return lists
    hazards = (*lists.hazards, *source.hazards)
    if not source.text:
        return replace(lists, hazards=hazards)
    return CaptureScope(
        lambda shard: lists(shard) and source(shard),
        json.dumps([lists.text, source.text]),
        lists.known and source.known,
        f"{lists.said_by} or {source.said_by}",
        {**lists.replaced, **source.replaced},
        source.broken,
        source.keeper,
        lists.alters,
        source.remembered,
        source.differs,
        hazards,
    )
