"""Defines what readers of topics and the change log report to checks: keys and transactions.

A collector that is killed inside a transaction sends BEGIN again and continues in it. END then
counts only the changes since that BEGIN. Such a transaction is compared over all its tables.
Debezium's Postgres connector needs no BEGIN: its END counts the whole transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from pipeline.model import Order, Shard, TopicPartition


@dataclass(frozen=True, slots=True)
class LogKey:
    """A row key seen in a topic: canonical JSON array of key values, and its position."""

    shard: Shard
    key: str
    at: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LastChange:
    """The newest landed change of a key: its op and its batch.

    ``op`` is ``truncate`` or ``settle`` if its whole shard was emptied later.
    """

    op: str
    batch: int


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A landed change of a row: its shard, and the row before and after, as JSON if known."""

    op: str
    shard: Shard
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class RowVersion:
    """A landed change of a row: its key as the log spells it, and the row after it as JSON.

    ``after`` is None if the row was deleted.
    """

    order: Order
    key: str
    after: str | None


@dataclass(frozen=True, slots=True)
class KeyTimes:
    """Times of the changes of a key, by the messages' clock: the latest, and the newest change's.

    The newest change is of ``shard``, as ``source/shard``, and has the ``order``.
    """

    key: str
    latest: datetime
    newest: datetime
    shard: str
    order: Order


@dataclass(frozen=True, slots=True)
class ShardBase:
    """A base that is complete as of ``order``; its first row landed in batch ``since``."""

    order: Order
    since: int


NO_BASES: Mapping[str, ShardBase] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one END promised for a table, and how much of it has landed.

    ``promised`` is the number that END itself states; ``landed`` counts distinct changes in the
    change log. One order may hold two: the delete and the create of a changed key. ``end_batch`` is
    the batch that holds END. Both counts exclude shards with a base above it.

    A collector killed inside a transaction begins it again, and END then counts only from there.
    Such a transaction (``begun`` > 1) is reported over all its tables: ``promised`` is END's total,
    and ``landed`` counts the whole transaction. ``resumed`` holds, for each new run, the
    ``total_order`` that the run before gave to the new run's first event; empty if unknown. ``at``
    is when the collector wrote END, by its clock; None if END has no time.
    """

    id: str
    promised: int
    landed: int
    end_batch: int
    begun: int = 1
    resumed: tuple[int, ...] = ()
    at: datetime | None = field(default=None, compare=False)
