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
    """What a row of the change log records; the first five concern mirrors.

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
    """Where a change came from; at equal order the greater wins, so LIVE always does."""

    SNAPSHOT = 0
    REPLAY = 1
    REPAIR = 2
    LIVE = 3


class Hop(StrEnum):
    """A leg of the way from source to mirror, and on to a copy, as a change passes them."""

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
    """A stage as it is shown: a copy with its name, for a table may have several."""
    return f"{stage}:{copy}" if copy else str(stage)


class Ordering(StrEnum):
    """What the order of a source's changes rests on, the strongest first.

    LOG: their places in the source's log.  SEQUENCE: the messages' own sequence, which the
    collector made by its clock.  OFFSET: where their messages stand in a partition of a topic.
    """

    LOG = "log_position"
    SEQUENCE = "own_sequence"
    OFFSET = "partition_offset"

    @property
    def strength(self) -> int:
        """Higher for what proves more."""
        return _STRENGTHS[self]


_STRENGTHS = {one: -place for place, one in enumerate(Ordering)}

COLUMN_VERSIONS = "_column_versions"
"""The column of a row with JSON: by name, which others have a lower version than the
row does: ``pos`` of the change that each comes from.  Only some formats have it."""


@dataclass(frozen=True, slots=True, order=True)
class Order:
    """Where a change stands in its source's log; compared left to right, within one source.

    MySQL: Sluice's epoch, binlog file number, position in it, row of the event.
    """

    epoch: int
    log: int
    pos: int
    row: int = 0

    @property
    def parts(self) -> tuple[int, ...]:
        """The values of ``ORDER_PARTS``, as ``Order(*parts)`` takes them; compared alike."""
        return _order_parts(self)

    @property
    def event(self) -> "Order":
        """That of the event whose row it is; of a snapshot's rows that of the snapshot."""
        return Order(*self.parts[:-1])


ORDER_PARTS = tuple(part.name for part in fields(Order))
"""Names of the parts of an order, in every table and message; the first counts most."""

LOG_PARTS = ORDER_PARTS[1:]
"""Those that a message has: all but the epoch."""

_order_parts: Callable[[Order], tuple[int, ...]] = attrgetter(*ORDER_PARTS)


@dataclass(frozen=True, slots=True)
class OrderSpan:
    """From the lowest to the highest of some orders of one source."""

    lowest: Order
    highest: Order

    def joined(self, other: "OrderSpan") -> "OrderSpan":
        """Over all orders of both."""
        return OrderSpan(min(self.lowest, other.lowest), max(self.highest, other.highest))

    def within(self, epoch: int) -> "OrderSpan":
        """As if none were of an epoch above that one."""
        ends = (replace(one, epoch=min(one.epoch, epoch)) for one in (self.lowest, self.highest))
        return OrderSpan(*ends)

    def up_to(self, last: Order) -> "OrderSpan":
        """Without what is above *last*."""
        return OrderSpan(self.lowest, min(self.highest, last))


@dataclass(frozen=True, slots=True, order=True)
class ShardId:
    """A physical table by its two names, and the one text that stands for them everywhere.

    ``database.table``; a part that holds a dot or a double quote, or is empty, stands in double
    quotes, with those inside doubled, so that no two tables share a text.
    """

    database: str
    relation: str

    def __str__(self) -> str:
        """Render the canonical text."""
        return f"{_part(self.database)}.{_part(self.relation)}"

    @classmethod
    def parse(cls, text: str) -> "ShardId":
        """Read back what ``str`` wrote.

        Raises:
            ValueError: the text is not canonical.
        """
        parts = [_bare(found[0]) for found in _PART.finditer(text)]
        if len(parts) != 2 or str(cls(*parts)) != text:
            raise ValueError(_explain_no_table(text))
        return cls(*parts)

    @classmethod
    def read(cls, text: str) -> "ShardId":
        """The same of any text: one that is not canonical is parted at its first dot."""
        try:
            return cls.parse(text)
        except ValueError:
            database, _, relation = text.partition(".")
            return cls(database, relation)

    @staticmethod
    def beginning(database: str) -> str:
        """What the text of each table of *database* begins with, and that of no other."""
        return f"{_part(database)}."


_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')


def table_name_fault(text: str) -> str:
    """Why *text* is not a table's name as `ShardId` writes it, and how to write it; or empty."""
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

    A tuple, for checkpoints have thousands as keys: its hash costs a tenth of a dataclass's.
    It sorts by source, then by name.  Its text sorts otherwise where a source's name begins with
    another's (``a-b/`` is before ``a/``), so sort by ``str`` what is stored or shown.
    """

    source: str
    name: str

    def __str__(self) -> str:
        """Render as ``source/database.table``, the form used in checkpoints and messages."""
        return f"{self.source}/{self.name}"

    @staticmethod
    def parse(text: str) -> "Shard":
        """Read back what ``str`` wrote; a source's name holds no slash.

        The newest ``MAX_PARSED_SHARDS`` texts yield the same object each time.
        """
        return _parse_shard(text)

    @property
    def database(self) -> str:
        """The schema the physical table lives in."""
        return self.id.database

    @property
    def relation(self) -> str:
        """The physical table's name without its database."""
        return self.id.relation

    @property
    def id(self) -> ShardId:
        """Both names; they may hold dots and quotes, so the text is never split at a dot."""
        return ShardId.read(self.name)


MAX_PARSED_SHARDS = 65_536
"""Texts of shards that are kept with what they were parsed to; each costs about 300 bytes."""


@lru_cache(maxsize=MAX_PARSED_SHARDS)
def _parse_shard(text: str) -> Shard:
    source, _, name = text.partition("/")
    return Shard(source, name)


@dataclass(frozen=True, slots=True)
class Table:
    """A logical name and the shards that fold into it, sorted.

    ``key`` holds the source's key columns in order; empty when the source declares none.
    ``id_column`` is the one integer key column that probes may range over; None without one.
    ``by_standard`` are columns whose values the mirror has otherwise than the source: not to be
    compared, and in no order that both know.
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
        """The table with *columns* that standards write; no probe ranges over such a key."""
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
        """Names of the sources the shards live on, sorted, each once."""
        if len(self.shards) == 1:  # of thousands of tables, many times a round
            return (self.shards[0].source,)
        return tuple(sorted({shard.source for shard in self.shards}))


@dataclass(frozen=True, slots=True)
class Missing:
    """A measurement that does not exist; ``why`` is shown to people.  Never a number."""

    why: str

    def __post_init__(self) -> None:
        """Give a reason where the caller gave none."""
        object.__setattr__(self, "why", text_or_cause(self.why, "no answer"))


Lag = timedelta | Missing


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source's log: ``words`` are for people, and for the source's own ``kind``.

    It is compared by :mod:`pipeline.sources.positions` and by nothing else.
    """

    kind: str
    words: str

    def __str__(self) -> str:
        """Render for people."""
        return self.words


@dataclass(frozen=True, slots=True)
class Head:
    """Where the log of a connected server ends; ``identity`` is that server's own.

    ``parted`` is where it left the log of the server that it replaced, if it did and reports it.
    """

    identity: str
    position: Position
    parted: Position | None = None


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """What keeps a source's log for its collector: nothing of it below ``begins``.

    Only its own ``kind`` reads its ``words``.
    """

    kind: str
    words: str
    begins: Position


@dataclass(frozen=True, slots=True)
class Fence:
    """A heartbeat as a position: its position is above all that its source committed before ``at``.

    ``at`` is the earlier of Sluice's clock, read *before* the heartbeat's statement, and the
    server's own, read before its commit; ``head`` was read from the server *after* it, so it is
    at or above the heartbeat itself.
    """

    source: str
    number: int
    at: datetime
    head: Head


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a collector has durably handed over: all transactions before ``position``.

    ``snapshot`` is true while it is still reading its initial snapshot: then nothing is proven.
    """

    position: Position
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotAgain:
    """A snapshot of a whole source whose tables had bases: its order, when it was seen, and where.

    ``asked`` if something of the source was lost, or unread, by then: a snapshot heals that.
    """

    order: Order
    at: datetime
    batch: int
    tables: int
    asked: bool


class TopicPartition(NamedTuple):
    """One partition of one topic.

    A tuple, for checkpoints have thousands as keys: its hash costs a tenth of a dataclass's.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        """Render as ``topic:partition``, the form used in checkpoints and messages."""
        return f"{self.topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """Read back what ``str`` wrote."""
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
        """Read back what ``str`` wrote; a source's name holds no slash."""
        source, _, at = text.partition("/")
        topic, _, partition = at.rpartition(":")
        return cls(source, TopicPartition(topic, int(partition)))


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """How far one partition has been landed: the next offset to read, and in which incarnation."""

    offset: int
    topic_id: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Account:
    """Counts of one batch of one table; each term is counted on its own.

    ``corrected`` counts messages that an earlier account counts as quarantined, and whose changes
    are read now: so many were read twice, and are no longer quarantined.

    ``minutes`` and ``explained`` count rows by minute, by op and by what became of them (see
    :mod:`pipeline.minute_counts`). They are None if that is unknown, and explain nothing.
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
    """Nothing kept, for the collector, what was written to any table: ``why``.

    ``since`` is when that was first noticed, ``over`` once it is kept again: what was written
    until then is not sent.
    """

    why: str
    since: float
    over: bool = False


@dataclass(frozen=True, slots=True)
class CaptureScope:
    """The tables whose rows are sent, by the present settings.

    ``text`` changes whenever the scope may have changed.  Lists that cannot be read are not
    ``known``, and include nothing.  ``said_by`` names the lists in messages.  ``replaced`` are
    tables whose rows were replaced without an event in the log (dropped, recreated, exchanged),
    each with its last detection, in seconds of this process's own clock.
    `keeper` is the slot that retains the log; None without one, or if it is not needed.
    ``remembered`` describes what is behind each table's name in the source, for the landing
    checkpoint; ``differs`` names the tables where that has changed since.
    ``alters`` returns for a column, ``database.table.column``, the setting that omits it or its
    values, empty without one; if no column is altered, ``alters`` itself is absent.
    ``hazards`` are settings that may drop, rewrite or delay changes.  The list is complete once
    the looks are ``steady``, except for what is ``unanswered``, named as a hazard's ``where``.
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
        """When anything was noticed last."""
        began = () if self.broken is None else (self.broken.since,)
        return max((*self.replaced.values(), *began), default=float("-inf"))

    def after(self, at: float) -> "CaptureScope":
        """Without what was noticed up to *at*, unless it still lasts."""
        left = {shard: seen for shard, seen in self.replaced.items() if seen > at}
        ended = self.broken is not None and self.broken.over and self.broken.since <= at
        return replace(self, replaced=left, broken=None if ended else self.broken)


def combine_scopes(lists: CaptureScope, source: CaptureScope | None) -> CaptureScope:
    """What the *lists* of a collector let in and its *source* sends; None: that sends all.

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
