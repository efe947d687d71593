"""Samples of a healthy round, to be bent by the tests."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.lags.lag import Lags, measure_lags
from pipeline.lags.samples import LandedBatch, MirrorPosition, Sample, Samples, SourceSamples
from pipeline.model import (
    Acknowledged,
    Fence,
    Missing,
    Order,
    PartitionEnd,
    Shard,
    Table,
    TopicPartition,
)
from pipeline.sources.mysql.position import binlog_position
from tests.builders.values import fence

NOW = datetime(2026, 3, 2, 0, 10, tzinfo=UTC)
CUT = NOW - timedelta(minutes=10)
BUDGET = timedelta(seconds=10)
GATING = frozenset({"completeness", "inversions", "offset_keys", "range_counts", "schema"})
TABLE = Table("shop.orders", (Shard("shop", "shop_00.orders"), Shard("shop", "shop_01.orders")))


def fence_series(
    *, count: int = 700, until: datetime = NOW, source: str = "shop"
) -> tuple[Fence, ...]:
    """One heartbeat a second, the last at *until*, numbered from 1."""
    start = until - timedelta(seconds=count - 1)
    return tuple(fence(n + 1, start + timedelta(seconds=n), source) for n in range(count))


def healthy_checkpoint(
    batch: int = 50, through: int = 690, source: str = "shop", **more: object
) -> Checkpoint:
    """A mark that covers fences up to number *through* of one source."""
    bases = {Shard(source, name): Order(1, 1, 1) for name in ("shop_00.orders", "shop_01.orders")}
    made = Checkpoint(
        lane="main",
        batch=batch,
        offsets={TopicPartition("t", 0): PartitionEnd(1000)},
        acknowledged={source: Acknowledged(binlog_position(1, through * 100))},
        heartbeats={source: through},
        tables={"shop.orders": batch},
        epochs={source: Epoch(1, "A", binlog_position(1, 0))},
        bases=bases,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def samples(
    *,
    fences: tuple[Fence, ...] | Missing | None = None,
    acknowledged: Acknowledged | Missing | None = None,
    landed: Checkpoint | Missing | None = None,
    standing: MirrorPosition | Missing | None = None,
    steps: tuple[LandedBatch, ...] = (),
    ages: Mapping[str, timedelta] | None = None,
    synced: Sample[int] | Missing | None = None,
    now: datetime = NOW,
) -> Samples:
    """Healthy unless told otherwise: acknowledged to 695, landed to 690, applied in full."""
    ages = ages or {}
    fences = fence_series() if fences is None else fences
    acknowledged = acknowledged or Acknowledged(binlog_position(1, 69_500))
    landed = landed or healthy_checkpoint()
    standing = standing or MirrorPosition(7, 50)

    def old(name: str) -> datetime:
        return now - ages.get(name, timedelta())

    one = SourceSamples(
        fences if isinstance(fences, Missing) else Sample(fences, old("fences"), BUDGET),
        acknowledged
        if isinstance(acknowledged, Missing)
        else Sample(acknowledged, old("acknowledged"), BUDGET),
        synced,
    )
    return Samples(
        {"shop": one},
        landed if isinstance(landed, Missing) else Sample(landed, old("mark"), BUDGET),
        standing if isinstance(standing, Missing) else Sample(standing, old("mirror"), BUDGET),
        steps,
    )


def lags(taken: Samples, now: datetime = NOW) -> Lags:
    """The lags of the table of these tests."""
    return measure_lags(TABLE, taken, now)
