"""Boards as they look in the four situations a person on call meets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from alerts.model import AlertKind, Cause, Incident, IncidentState, Member, Severity
from checks.blocks import StateSince, TableState
from checks.certificate import Certificate, Evidence
from checks.model import Outcome, Reason, Ruling, Verdict
from checks.readiness import Readiness, ReadinessState
from monitor.board import (
    Board,
    BudgetView,
    ChannelView,
    ComponentView,
    DiskView,
    JobView,
    TableView,
)
from pipeline.lags.lag import MOVING, HopLag, Lags
from pipeline.model import Fence, Head, Hop, Lag, Missing, Shard, Stage, Table
from pipeline.reports import SparkWork
from pipeline.sources.budget import Spending
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import LogBacklog

NOW = datetime(2026, 11, 21, 9, 30, 12, tzinfo=UTC)
CUT = datetime(2026, 11, 21, tzinfo=UTC)
FENCE = Fence("shop", 77, NOW, Head("server-1", binlog_position(4, 1234)))


def lags(table: str, *seconds: float | None) -> Lags:
    """Collection, consumer and merge; None for an unknown one."""
    hops, mark = [], NOW
    for hop, one in zip((Hop.COLLECTION, Hop.CONSUMER, Hop.MERGE), seconds, strict=True):
        lag: Lag = Missing(f"no sample of {hop.value}") if one is None else timedelta(seconds=one)
        mark = mark if isinstance(lag, Missing) else mark - lag
        hops.append(HopLag(hop, lag, lag if isinstance(lag, Missing) else mark, timedelta(0, 1)))
    return Lags(table, NOW, tuple(hops))


def answer(
    found: Lags, state: ReadinessState, *reasons: Reason, stage: Stage = Stage.MIRROR
) -> Readiness:
    """An answer for the end of yesterday."""
    evidence = Evidence((FENCE,), 12, 34, 12, {"shop.shop.users:0": 99})
    certificate = Certificate("c0ffee", found.table, stage, CUT, NOW, evidence)
    ready = state is ReadinessState.READY
    eta = NOW + timedelta(seconds=75) if state is ReadinessState.NOT_READY else None
    return Readiness(
        found.table,
        stage,
        CUT,
        NOW,
        state,
        reasons,
        found,
        eta=eta,
        certificate=certificate if ready else None,
    )


def view(
    name: str, state: ReadinessState, *reasons: Reason, seconds: tuple[float | None, ...]
) -> TableView:
    """One table whose two answers agree."""
    found = lags(name, *seconds)
    both = {stage: answer(found, state, *reasons, stage=stage) for stage in MOVING}
    table = Table(name, (Shard("shop", name),), ("id",), "id")
    since = StateSince(name, TableState.INCREMENTAL, NOW - timedelta(hours=3))
    return TableView(table, found, both, both, _verdicts(name, state), life=since)


def _verdicts(name: str, state: ReadinessState) -> tuple[Verdict, ...]:
    lost = Ruling(Outcome.FAIL, "3 rows short in ids [100, 120)", "missing_rows", ("[100, 120)",))
    fine = Ruling(Outcome.PASS, "both sides hold 1200 rows")
    blind = Ruling(Outcome.UNKNOWN, "history is short: 3 of 20 rounds", "no_history")
    at = NOW - timedelta(seconds=12)
    ranges = lost if state is ReadinessState.BLOCKED else fine
    return (
        Verdict(name, "range_counts", ranges, at, (FENCE,), -3.0 if ranges is lost else 0.0),
        Verdict(name, "volatility", blind, at),
    )


READY = view(
    "shop.users", ReadinessState.READY, Reason("certified", "c0ffee"), seconds=(1.2, 3.4, 6.1)
)
NOT_READY = view(
    "shop.orders",
    ReadinessState.NOT_READY,
    Reason("late", "time since the cut is below the lags' sum"),
    Reason(
        "not_applied",
        "the mirror is applied through batch 41, and the cut landed in batch 44;"
        " wait for its next merge",
    ),
    seconds=(2.0, 14.0, 61.0),
)
LOST = view(
    "shop.order_items_with_a_rather_long_name_of_its_own",
    ReadinessState.BLOCKED,
    Reason("check_failed", "range_counts: 3 rows short in ids [100, 120)", "range_counts:x:[100"),
    seconds=(1.2, 3.4, 4.0),
)
UNKNOWN = view(
    "shop.payments",
    ReadinessState.UNKNOWN,
    Reason("lag_unknown", "a lag is unknown"),
    Reason("no_heartbeat", "source shop: the newest heartbeat is 75 s old"),
    seconds=(None, None, 2.0),
)


def incident(state: IncidentState = IncidentState.FIRING) -> Incident:
    """Rows lost in one table, and somebody owns it."""
    table = LOST.table.name
    return Incident(
        Cause(AlertKind.LOST, "range_counts", table),
        state,
        opened=NOW - timedelta(minutes=7, seconds=20),
        turned=NOW,
        seen=NOW,
        ruling=Ruling(
            Outcome.FAIL,
            "3 rows short in ids [100, 120)",
            "missing_rows",
            tuple(f"[{n}, {n + 1})" for n in range(100, 109)),
        ),
        members=(Member(table, "range_counts"),),
        failing=(Member(table, "range_counts"),),
        severity=Severity.CRITICAL,
        owner="data platform",
    )


def board(*views: TableView, incidents: tuple[Incident, ...] = ()) -> Board:
    """A service that runs well, with these tables."""
    return Board(
        at=NOW,
        started=NOW - timedelta(hours=2),
        cut=CUT,
        tables=views,
        incidents=incidents,
        parts=(
            ComponentView("source:shop", works=True),
            ComponentView("collector:shop", works=True),
            ComponentView("worker", works=True),
        ),
        jobs=(
            JobView("watch", {"done": 1440, "missed": 2}, NOW),
            JobView("land", {"done": 700, "failed": 1}, NOW - timedelta(seconds=4)),
            JobView("merge", {"done": 300}, NOW - timedelta(seconds=9)),
        ),
        channels=(ChannelView("log"),),
        changes={("shop.users", "read"): 120, ("shop.users", "applied"): 118},
        headroom={("topic", "shop.users"): timedelta(hours=40)},
        backlogs={"shop": LogBacklog("sluice_shop", 2**40, held=2**30, left=2**31)},
        needed={("topic", "shop.users"): timedelta(hours=6)},
        disks=(DiskView("store", "/var/lib/sluice/sluice.db", 2**36, 2**35, 2**32),),
        store_bytes=2**20,
        certificates=12,
        budgets={"shop": BudgetView({"values": Spending(70_000, 1.25, 9)}, 0.5)},
        spark={"land": SparkWork(3, 12, 300_000, 9.5)},
        runbooks="docs/runbooks",
    )


ALL_WELL = board(READY)
MIXED = board(READY, NOT_READY, LOST, UNKNOWN, incidents=(incident(),))
MUTE = replace(
    board(READY),
    parts=(
        ComponentView("channel:slack", works=False, detail=("deliveries that failed in a row: 3")),
    ),
    channels=(ChannelView("slack", 4, 2, 3, "deliveries that failed in a row: 3"),),
)
SOURCE_DOWN = replace(
    board(UNKNOWN),
    parts=(ComponentView("source:shop", works=False, detail="down: cannot connect to 127.0.0.1"),),
)
