"""Builds the values that many tests need; what a test is about, it names."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pipeline.checkpoint import Checkpoint, Epoch, EpochStart
from pipeline.landing.batch_stats import BatchStats, SchemaNews
from pipeline.landing.epochs import Epochs
from pipeline.landing.listing import Listing
from pipeline.landing.rule import BatchContext
from pipeline.model import CaptureScope, Head, Order, SourcePartition
from pipeline.schema.history import SchemaChange
from pipeline.settings import Router
from pipeline.sources.mysql.position import binlog_position

BATCH_TIME = datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC)


def orders_at(orders: Mapping[str, Order]) -> dict[SourcePartition, Order]:
    """Return the highest orders of partitions, which are named ``source/topic:partition``."""
    return {SourcePartition.parse(name): order for name, order in orders.items()}


def batch_context(
    before: Checkpoint,
    *,
    captures: Mapping[str, CaptureScope] = {},
    heads: Mapping[str, tuple[Head, Head]] = {},
    ends: Mapping[str, Order] = {},
    epochs: Mapping[str, Epoch] | None = None,
    starts: Mapping[EpochStart, int] = {},
    **fields: Any,
) -> BatchContext:
    """Return a batch after *before* in which nothing happened but what is named.

    *ends* are the orders at which sources' logs end: each becomes a head of a MySQL server.
    """
    known = dict(before.epochs if epochs is None else epochs)
    for source, end in ends.items():
        head = Head("server", binlog_position(end.log, end.pos))
        heads = {**heads, source: (head, head)}
        known[source] = Epoch(end.epoch, head.identity, head.position)
    given: dict[str, Any] = {
        "listing": Listing(heads, {}, {}, {}, {}, captures=captures),
        "epochs": Epochs(known, starts),
        "stats": BatchStats(),
        "orderings": {},
        "at": BATCH_TIME,
        "router": Router(),
    }
    return BatchContext(before, **given | fields)


def schema_news(
    kind: str,
    pos: int,
    *,
    shard: str = "db.t",
    previous: str | None = None,
    source: str = "shop",
    log: int = 1,
    snapshot: bool = False,
    **fields: Any,
) -> SchemaNews:
    """A ``create``, ``alter`` or ``drop`` at *pos* of the log, of no described columns.

    *previous* is the shard's name before, if it was renamed.
    """
    text = f"{kind.upper()} TABLE {shard.rpartition('.')[2]} (id INT)"
    if previous:
        text = f"RENAME TABLE {previous} TO {shard}"
    change = SchemaChange(kind, shard, Order(1, log, pos), None, text, previous)
    return SchemaNews(source, change, snapshot=snapshot, **fields)
