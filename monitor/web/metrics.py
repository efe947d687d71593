"""Exposes the board as Prometheus metrics, computed at each scrape.

Nothing is counted here, so nothing about tables is counted twice. `METRICS` lists every family
with name, labels and help, and dashboards are generated from it.

An unknown value is absent, because a gauge with the last known value would look like knowledge.
A value that says all is well is absent too, because thousands of tables would send it. This
concerns states other than the current one, passing checks (which are counted), zero holds and
young ages. On a stale board, lags, watermarks and values are absent. Every table, and every
check that passed, is UNKNOWN then. A failed check stays failed. Copies and images appear only
for tables that have them, and an unknown copy lag is absent.

`Scrape` adds process, build and gate latency, and the client library encodes those.
`exposition` writes the board, because the library takes several times as long for thousands of
tables (docs/performance.md). Both yield the same families, and a test compares them.
"""

import platform
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from alerts.model import IncidentState, Severity
from checks.blocks import TableState
from checks.model import Outcome
from checks.readiness import ReadinessState
from monitor.board import Board, CurrentBoard, TableView
from monitor.observe.system_checks import CHECKS, IMAGE
from pipeline.image import Image
from pipeline.lags.lag import MOVING
from pipeline.model import Missing
from pipeline.reports import SPARK_WORK, SparkWork
from pipeline.sources.budget import Spending

Row = tuple[tuple[str, ...], float]
"""Values of the labels, and the value of the sample."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One family; the name of a ``counter`` ends in ``_total``."""

    name: str
    labels: tuple[str, ...]
    help: str
    rows: Callable[[Board, datetime], Iterator[Row]]
    kind: str = "gauge"


def _lags(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    for view in board.tables:
        for one in view.copies:
            if not isinstance(one.hop.lag, Missing):
                yield (view.table.name, one.name), one.hop.lag.total_seconds()


def _ready(board: Board, now: datetime) -> Iterator[Row]:
    for view in board.tables:
        for one in view.copies:
            ready = one.day.ready and not board.stale(now)
            yield (view.table.name, one.name), float(ready)


COPY_LAG = MetricFamily(
    "sluice_copy_lag_seconds",
    ("table", "copy"),
    "Lag of the copy behind its mirror; absent while unknown.",
    _lags,
)
COPY_READY = MetricFamily(
    "sluice_copy_ready",
    ("table", "copy"),
    "1 while the copy is proven complete up to the end of yesterday, else 0.",
    _ready,
)
COPY_METRICS = (COPY_LAG, COPY_READY)


def find_newest_image(view: TableView, now: datetime) -> Image | None:
    """Return the complete and readable image of the latest cut, if any."""
    good = (one for one in view.images if one.held(now) and not one.left_out)
    return max(good, key=lambda one: one.cut, default=None)


def _newest(board: Board, now: datetime) -> Iterator[tuple[str, Image]]:
    if board.stale(now):
        return
    for view in board.tables:
        if (image := find_newest_image(view, now)) is not None:
            yield view.table.name, image


def _cuts(board: Board, now: datetime) -> Iterator[Row]:
    yield from (((table,), one.cut.timestamp()) for table, one in _newest(board, now))


def _rows(board: Board, now: datetime) -> Iterator[Row]:
    found = _newest(board, now)
    yield from (((table,), float(one.rows)) for table, one in found if one.rows is not None)


def _missing(board: Board, _: datetime) -> Iterator[Row]:
    for view in board.tables:
        image_verdicts = [one for one in view.verdicts if one.check == IMAGE]
        if image_verdicts:
            failed = any(one.ruling.outcome is Outcome.FAIL for one in image_verdicts)
            yield (view.table.name,), float(failed)


IMAGE_CUT = MetricFamily(
    "sluice_image_cut_timestamp_seconds",
    ("table",),
    "Cut of the newest complete and readable image, as Unix time.",
    _cuts,
)
IMAGE_ROWS = MetricFamily(
    "sluice_image_rows",
    ("table",),
    "Rows of the newest complete and readable image; absent while unknown.",
    _rows,
)
IMAGE_MISSING = MetricFamily(
    "sluice_image_missing",
    ("table",),
    "1 while the image of yesterday is overdue, else 0; absent for tables without images.",
    _missing,
)
IMAGE_METRICS = (IMAGE_CUT, IMAGE_ROWS, IMAGE_MISSING)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OLD = timedelta(seconds=10)
OPEN = (IncidentState.PENDING, IncidentState.FIRING, IncidentState.RECOVERING)


def encode_metrics(board: Board, now: datetime) -> bytes:
    """Return the text of one scrape, including families without a sample yet.

    Written here, because the client library processes each name and value several times. With
    thousands of tables it took a second, and held the interpreter lock for more than half of it.
    """
    escaped = EscapedLabels()
    return "".join(
        line for metric in METRICS for line in _family(metric, board, now, escaped)
    ).encode()


class EscapedLabels(dict[str, str]):
    """Caches escaped label values: there are few values, each written many times."""

    def __missing__(self, value: str) -> str:
        """Escape a value that is not cached yet."""
        plain = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return self.setdefault(value, plain)


def _family(
    metric: MetricFamily, board: Board, now: datetime, escaped: EscapedLabels
) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
    form = ",".join(f'{label}="%s"' for label in metric.labels)
    start = f"{metric.name}{{{form}}} " if form else f"{metric.name} "
    for labels, value in metric.rows(board, now):
        yield f"{start % tuple([escaped[one] for one in labels])}{value!r}\n"


def _lag_samples(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    for view in board.tables:
        for hop in view.lags.hops:
            if not isinstance(hop.lag, Missing):
                yield (view.table.name, hop.hop), hop.lag.total_seconds()


def _ages(board: Board, now: datetime) -> Iterator[Row]:
    for view in board.tables:
        for hop in view.lags.hops:
            if hop.age is not None and (age := hop.age + board.age(now)) >= OLD:
                yield (view.table.name, hop.hop), age.total_seconds()


def _watermarks(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    for view in board.tables:
        for stage in MOVING:
            checkpoint = view.lags.watermark(stage)
            if isinstance(checkpoint, datetime):
                yield (view.table.name, stage), checkpoint.timestamp()


def _readiness(board: Board, now: datetime) -> Iterator[Row]:
    stale = board.stale(now)
    for view in board.tables:
        for stage, answer in view.day.items():
            shown = ReadinessState.UNKNOWN if stale else answer.state
            ready = ReadinessState.READY
            yield (view.table.name, stage, ready), float(shown is ready)
            if shown is not ready:
                yield (view.table.name, stage, shown), 1.0


def _why(board: Board, now: datetime) -> Iterator[Row]:
    stale = board.stale(now)
    for view in board.tables:
        for stage, answer in view.day.items():
            if stale or not answer.ready:
                codes = [reason.code for reason in answer.reasons if reason.code]
                code = "stale" if stale else next(iter(codes), "not_told")
                yield (view.table.name, stage, code), 1.0


def _outcomes(board: Board, _: datetime) -> Iterator[Row]:
    for view in board.tables:
        for verdict in view.verdicts:
            if verdict.ruling.outcome is not Outcome.PASS:
                yield (view.table.name, verdict.check, verdict.ruling.outcome), 1.0


def _checks(board: Board, now: datetime) -> Iterator[Row]:
    passed = Outcome.UNKNOWN if board.stale(now) else Outcome.PASS
    found = Counter(
        (
            verdict.check,
            passed if verdict.ruling.outcome is Outcome.PASS else verdict.ruling.outcome,
        )
        for view in board.tables
        for verdict in view.verdicts
    )
    yield from ((key, float(count)) for key, count in sorted(found.items()))


def _values(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    for view in board.tables:
        for verdict in view.verdicts:
            if verdict.value is not None and (verdict.value or verdict.check not in CHECKS):
                yield (view.table.name, verdict.check), verdict.value


def _verified_ages(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    for view in board.tables:
        if view.verified is not None and view.verified.oldest is not None:
            yield (view.table.name,), (now - view.verified.oldest).total_seconds()


def _verified_through(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    for view in board.tables:
        if view.verified is not None and view.verified.through is not None:
            yield (view.table.name,), view.verified.through.timestamp()


def _incidents(board: Board, _: datetime) -> Iterator[Row]:
    for severity in Severity:
        for state in OPEN:
            same = [i for i in board.incidents if (i.severity, i.state) == (severity, state)]
            yield (severity, state), float(len(same))


def _queued_notifications(board: Board, _: datetime) -> Iterator[Row]:
    for channel in board.channels:
        yield (channel.name, "waiting"), float(channel.waiting)
        yield (channel.name, "dead"), float(channel.dead)


def _ticks(board: Board, _: datetime) -> Iterator[Row]:
    for job in board.jobs:
        for result, count in sorted(job.results.items()):
            yield (job.name, result), float(count)


def _successes(board: Board, _: datetime) -> Iterator[Row]:
    for job in board.jobs:
        if job.succeeded is not None:
            yield (job.name,), job.succeeded.timestamp()


def _changes(board: Board, _: datetime) -> Iterator[Row]:
    yield from ((key, float(count)) for key, count in sorted(board.changes.items()))


def _residuals(board: Board, _: datetime) -> Iterator[Row]:
    yield from (((view.table.name,), float(view.residual)) for view in board.tables)


def _ledger(board: Board, now: datetime) -> Iterator[Row]:
    stale = board.stale(now)
    for key, rows in sorted(board.ledger.items()):
        if rows is not None and (rows or not stale):
            yield key, float(rows)


def _headroom(board: Board, _: datetime) -> Iterator[Row]:
    yield from ((key, left.total_seconds()) for key, left in sorted(board.headroom.items()))


def _backlogs(board: Board, _: datetime) -> Iterator[Row]:
    for source, one in sorted(board.backlogs.items()):
        yield (source, "held"), float(one.held)
        if one.left is not None:
            yield (source, "left"), float(one.left)


def _needed(board: Board, _: datetime) -> Iterator[Row]:
    yield from ((key, least.total_seconds()) for key, least in sorted(board.needed.items()))


def _failures(board: Board, _: datetime) -> Iterator[Row]:
    yield from (((channel.name,), float(channel.failures)) for channel in board.channels)


def _runs(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    states = [*(view.life for view in board.tables if view.life), *board.retired]
    apart = (one for one in states if one.state is not TableState.INCREMENTAL)
    yield from (((one.table, one.state), 1.0) for one in apart)


def _backfill_rows(board: Board, _: datetime) -> Iterator[Row]:
    yield from (((one.table,), float(one.rows)) for one in board.backfills)


def _backfill_left(board: Board, _: datetime) -> Iterator[Row]:
    yield from (((one.table,), one.left) for one in board.backfills if one.left is not None)


def _backfill_brakes(board: Board, _: datetime) -> Iterator[Row]:
    yield from (((one.table, brake), 1.0) for one in board.backfills for brake in one.brakes)


def _disk_free(board: Board, now: datetime) -> Iterator[Row]:
    if not board.stale(now):
        yield from (((one.name,), float(one.free)) for one in board.disks)


def _disk_needed(board: Board, _: datetime) -> Iterator[Row]:
    yield from (((one.name,), float(one.needed)) for one in board.disks)


def _store_size(board: Board, now: datetime) -> Iterator[Row]:
    if not board.stale(now) and board.store_bytes is not None:
        yield (), float(board.store_bytes)


def _certificates(board: Board, now: datetime) -> Iterator[Row]:
    if not board.stale(now) and board.certificates is not None:
        yield (), float(board.certificates)


def _budgets(board: Board, _: datetime) -> Iterator[Row]:
    for view in board.tables:
        if view.budget is not None:
            yield (view.table.name,), view.budget.total_seconds()


def _spark(statistic: Callable[[SparkWork], float]) -> Callable[[Board, datetime], Iterator[Row]]:
    """Return a function that yields one statistic of Spark jobs, by their work."""

    def rows(board: Board, _: datetime) -> Iterator[Row]:
        for work in SPARK_WORK:
            yield (work,), float(statistic(board.spark.get(work, SparkWork())))

    return rows


def _spending(
    statistic: Callable[[Spending], float],
) -> Callable[[Board, datetime], Iterator[Row]]:
    """Return a function that yields one statistic of the cost of checks, by source."""

    def rows(board: Board, _: datetime) -> Iterator[Row]:
        for source, one in sorted(board.budgets.items()):
            for check, spent in sorted(one.spent.items()):
                yield (source, check), float(statistic(spent))

    return rows


def _waits(board: Board, _: datetime) -> Iterator[Row]:
    yield from (((source,), one.waited) for source, one in sorted(board.budgets.items()))


def _skipped(board: Board, _: datetime) -> Iterator[Row]:
    yield (), float(board.unreadable)


HOP_LAG = MetricFamily(
    "sluice_hop_lag_seconds",
    ("table", "hop"),
    "Lag of the hop's exit behind its entry; absent while unknown.",
    _lag_samples,
)
HOP_AGE = MetricFamily(
    "sluice_hop_sample_age_seconds",
    ("table", "hop"),
    "Age of the oldest sample behind the hop's lag; absent below 10 s.",
    _ages,
)
WATERMARK = MetricFamily(
    "sluice_watermark_timestamp_seconds",
    ("table", "stage"),
    "Unix time up to which every change of the source is included.",
    _watermarks,
)
READINESS = MetricFamily(
    "sluice_readiness",
    ("table", "stage", "state"),
    "1 for the state for the end of yesterday; `ready` is 0 while another state applies.",
    _readiness,
)
WHY = MetricFamily(
    "sluice_not_ready_reason",
    ("table", "stage", "code"),
    "1 for the first reason why the end of yesterday is not ready; absent for ready tables.",
    _why,
)
OUTCOME = MetricFamily(
    "sluice_check_outcome",
    ("table", "check", "outcome"),
    "1 for the outcome of the check's newest verdict; absent for a pass.",
    _outcomes,
)
CHECKED = MetricFamily(
    "sluice_checks",
    ("check", "outcome"),
    "Tables by the outcome of the check's newest verdict.",
    _checks,
)
VALUE = MetricFamily(
    "sluice_check_value",
    ("table", "check"),
    "Value of the check's newest verdict, in the unit of the check.",
    _values,
)
VERIFIED_AGE = MetricFamily(
    "sluice_verified_age_seconds",
    ("table",),
    "Time since the row that was compared with its source longest ago; absent while unknown.",
    _verified_ages,
)
VERIFIED_THROUGH = MetricFamily(
    "sluice_verified_through_timestamp_seconds",
    ("table",),
    "Unix time before which each changed row was compared with its source; absent while unknown.",
    _verified_through,
)
CHANGES = MetricFamily(
    "sluice_changes_total",
    ("table", "term"),
    "Changes by term of the account: read = applied + noop + superseded + ...",
    _changes,
    "counter",
)
RESIDUAL = MetricFamily(
    "sluice_account_residual",
    ("table",),
    "Changes read that no other term of the account explains; must be 0.",
    _residuals,
)
LEDGER = MetricFamily(
    "sluice_ledger_residual_rows",
    ("table", "hop"),
    "Events (hop collection), messages and rows (landing) or rows that went into a hop and did not"
    " come out, or the reverse, without those proven to be made good; absent while unknown.",
    _ledger,
)
HEADROOM = MetricFamily(
    "sluice_loss_headroom_seconds",
    ("kind", "name"),
    "Seconds until retention deletes unread changes; absent while unknown.",
    _headroom,
)
HEADROOM_NEEDED = MetricFamily(
    "sluice_loss_headroom_needed_seconds",
    ("kind", "name"),
    "Headroom below which an operator must act: 6 hours, or half of a shorter retention.",
    _needed,
)
BACKLOG = MetricFamily(
    "sluice_log_backlog_bytes",
    ("source", "state"),
    "Bytes of the source log retained for its collector, and bytes left before some are lost.",
    _backlogs,
)
INCIDENTS = MetricFamily(
    "sluice_incidents",
    ("severity", "state"),
    "Open incidents by severity and state.",
    _incidents,
)
QUEUED_NOTIFICATIONS = MetricFamily(
    "sluice_channel_letters",
    ("channel", "state"),
    "Queued notifications of the channel, and dead-lettered ones that are not waived.",
    _queued_notifications,
)
CHANNEL_FAILURES = MetricFamily(
    "sluice_channel_failures",
    ("channel",),
    "Failed deliveries in a row; 0 after a successful one.",
    _failures,
)
TICKS = MetricFamily(
    "sluice_ticks_total",
    ("task", "result"),
    "Ticks of each scheduled job by result, including missed ones.",
    _ticks,
    "counter",
)
SUCCESS = MetricFamily(
    "sluice_last_success_timestamp_seconds",
    ("task",),
    "Unix time when the job last succeeded.",
    _successes,
)
BACKFILL_ROWS = MetricFamily(
    "sluice_reread_rows",
    ("table",),
    "Rows landed by the running backfill of a table; absent without one.",
    _backfill_rows,
)
BACKFILL_LEFT = MetricFamily(
    "sluice_reread_left_seconds",
    ("table",),
    "Estimated seconds until the running backfill of a table ends, at its rate so far.",
    _backfill_left,
)
BACKFILL_BRAKE = MetricFamily(
    "sluice_reread_brake",
    ("table", "brake"),
    "1 while a table's backfill is throttled, by reason: rate, time, running or lag.",
    _backfill_brakes,
)

TABLE_STATE = MetricFamily(
    "sluice_table_state",
    ("table", "state"),
    "1 for new, bootstrap, held, re-bootstrap, paused or retired; absent while changes are merged.",
    _runs,
)

DISK_FREE = MetricFamily(
    "sluice_disk_free_bytes",
    ("disk",),
    "Free bytes on the disk of the store, of a local lake, and of a log that is a file.",
    _disk_free,
)
DISK_NEEDED = MetricFamily(
    "sluice_disk_needed_bytes",
    ("disk",),
    "Free bytes below which the disk is an incident.",
    _disk_needed,
)
STORE_SIZE = MetricFamily(
    "sluice_store_size_bytes", (), "Bytes of the store and its write-ahead log.", _store_size
)
CERTIFICATES = MetricFamily(
    "sluice_certificates",
    (),
    "Certificates in the store, counted every ten minutes; absent before the first count.",
    _certificates,
)
BUDGET = MetricFamily(
    "sluice_lag_budget_seconds",
    ("table",),
    "Longest lag of the table that is not late (lag budget).",
    _budgets,
)
UNREADABLE = MetricFamily(
    "sluice_store_unreadable_rows",
    (),
    "Unreadable rows of the store, which are skipped.",
    _skipped,
)
SPARK_JOBS = MetricFamily(
    "sluice_spark_jobs_total",
    ("work",),
    "Spark jobs that landed a batch or merged slices, since the service started.",
    _spark(attrgetter("jobs")),
    "counter",
)
SPARK_TASKS = MetricFamily(
    "sluice_spark_tasks_total",
    ("work",),
    "Tasks of Spark jobs, by work.",
    _spark(attrgetter("tasks")),
    "counter",
)
SPARK_ROWS = MetricFamily(
    "sluice_spark_rows_total",
    ("work",),
    "Rows that Spark jobs read, by work.",
    _spark(attrgetter("rows")),
    "counter",
)
SPARK_SECONDS = MetricFamily(
    "sluice_spark_seconds_total",
    ("work",),
    "Total duration of Spark jobs, by work.",
    _spark(attrgetter("seconds")),
    "counter",
)
SOURCE_ROWS = MetricFamily(
    "sluice_source_read_rows_total",
    ("source", "check"),
    "Rows of the source that checks have read, since the service started.",
    _spending(attrgetter("rows")),
    "counter",
)
SOURCE_SECONDS = MetricFamily(
    "sluice_source_read_seconds_total",
    ("source", "check"),
    "Total duration of queries of checks at the source, since the service started.",
    _spending(attrgetter("seconds")),
    "counter",
)
SOURCE_WAITS = MetricFamily(
    "sluice_source_wait_seconds_total",
    ("source",),
    "Time that checks have waited for the budget of the source, added up over its connections.",
    _waits,
    "counter",
)

METRICS = (
    HOP_LAG,
    HOP_AGE,
    WATERMARK,
    READINESS,
    WHY,
    OUTCOME,
    CHECKED,
    VALUE,
    VERIFIED_AGE,
    VERIFIED_THROUGH,
    CHANGES,
    RESIDUAL,
    LEDGER,
    HEADROOM,
    HEADROOM_NEEDED,
    BACKLOG,
    INCIDENTS,
    QUEUED_NOTIFICATIONS,
    CHANNEL_FAILURES,
    TICKS,
    SUCCESS,
    BACKFILL_ROWS,
    BACKFILL_LEFT,
    BACKFILL_BRAKE,
    TABLE_STATE,
    DISK_FREE,
    DISK_NEEDED,
    STORE_SIZE,
    CERTIFICATES,
    BUDGET,
    UNREADABLE,
    SPARK_JOBS,
    SPARK_TASKS,
    SPARK_ROWS,
    SPARK_SECONDS,
    SOURCE_ROWS,
    SOURCE_SECONDS,
    SOURCE_WAITS,
    *IMAGE_METRICS,
    *COPY_METRICS,
)


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(eq=False)
class BoardCollector(Collector):
    """Yields the metric families of the current board."""

    board: Callable[[], Board]
    clock: Callable[[], datetime]

    def collect(self) -> Iterator[Metric]:
        board, now = self.board(), self.clock()
        for metric in METRICS:
            family = _scraped_family(metric)
            for labels, value in metric.rows(board, now):
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterator[Metric]:
        """Yield every family without samples, because a registry checks their names."""
        yield from map(_scraped_family, METRICS)


@dataclass(eq=False)
class Scrape:
    """The registry of one service; the gate observes ``gate_latency`` when it answers."""

    current: CurrentBoard
    clock: Callable[[], datetime]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry, init=False)

    def __post_init__(self) -> None:
        """Register the collectors of the library, and refuse a duplicate name."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        own = self._own = CollectorRegistry()
        for registry in (own, self.registry):
            ProcessCollector(registry=registry)
            PlatformCollector(registry=registry)
        build = Gauge(
            "sluice_build_info",
            "Always 1; the labels describe the build.",
            ["version", "python"],
            registry=None,
        )
        build.labels(_version(), platform.python_version()).set(1)
        self.gate_latency = Histogram(
            "sluice_gate_latency_seconds",
            "Seconds until the gate answered, without the requested waiting time.",
            buckets=BUCKETS,
            registry=None,
        )
        for registry in (own, self.registry):
            registry.register(build)
            registry.register(self.gate_latency)
        self.registry.register(BoardCollector(lambda: self.current.board, self.clock))

    def text(self) -> bytes:
        """Return one scrape, in Prometheus' text format."""
        return encode_metrics(self.current.board, self.clock()) + generate_latest(self._own)


def _scraped_family(metric: MetricFamily) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


def _version() -> str:
    try:
        return version("sluice")
    except PackageNotFoundError:
        return "unknown"
