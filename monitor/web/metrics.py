"""The board as Prometheus reads it, made anew at each scrape; nothing is counted here.

A value that is unknown is absent: a gauge that shows the last known one would look like knowledge.
On a board that has grown old, lags are absent and every table is UNKNOWN.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from alerts.model import IncidentState, Severity
from checks.model import Outcome
from checks.readiness import ReadinessState
from monitor.board import Board
from monitor.web import metric_names as names
from pipeline.model import Missing, Stage

Row = tuple[tuple[str, ...], float]
OPEN = (IncidentState.PENDING, IncidentState.FIRING, IncidentState.RECOVERING)


class BoardCollector(Collector):
    """Reads the board that *current* returns; inherits what the library's registry demands."""

    def __init__(self, current: Callable[[], Board], clock: Callable[[], datetime]) -> None:
        self._current, self._clock = current, clock

    def collect(self) -> Iterator[Family]:
        """All families, also those without a sample yet: their help shows what is to come."""
        board, now = self._current(), self._clock()
        for metric in names.METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in ROWS[metric](board, now):
                family.add_metric(labels, value)
            yield family


def registry(current: Callable[[], Board], clock: Callable[[], datetime]) -> CollectorRegistry:
    """A registry of its own: the library's global one would be shared by all tests."""
    own = CollectorRegistry()
    own.register(BoardCollector(current, clock))
    return own


def exposition(own: CollectorRegistry) -> bytes:
    """Text of one scrape."""
    return generate_latest(own)


def _lags(board: Board, now: datetime) -> Iterator[Row]:
    if board.stale(now):
        return
    for view in board.tables:
        for hop in view.lags.hops:
            if not isinstance(hop.lag, Missing):
                yield (view.table.name, hop.hop), hop.lag.total_seconds()


def _ages(board: Board, now: datetime) -> Iterator[Row]:
    for view in board.tables:
        for hop in view.lags.hops:
            if hop.age is not None:
                yield (view.table.name, hop.hop), (hop.age + board.age(now)).total_seconds()


def _watermarks(board: Board, _: datetime) -> Iterator[Row]:
    for view in board.tables:
        for stage in Stage:
            mark = view.lags.watermark(stage)
            if isinstance(mark, datetime):
                yield (view.table.name, stage), mark.timestamp()


def _readiness(board: Board, now: datetime) -> Iterator[Row]:
    stale = board.stale(now)
    for view in board.tables:
        for stage, answer in view.day.items():
            shown = ReadinessState.UNKNOWN if stale else answer.state
            for state in ReadinessState:
                yield (view.table.name, stage, state), float(shown is state)


def _outcomes(board: Board, _: datetime) -> Iterator[Row]:
    for view in board.tables:
        for verdict in view.verdicts:
            for outcome in Outcome:
                same = float(verdict.ruling.outcome is outcome)
                yield (view.table.name, verdict.check, outcome), same


def _values(board: Board, _: datetime) -> Iterator[Row]:
    for view in board.tables:
        for verdict in view.verdicts:
            if verdict.value is not None:
                yield (view.table.name, verdict.check), verdict.value


def _incidents(board: Board, _: datetime) -> Iterator[Row]:
    for severity in Severity:
        for state in OPEN:
            same = [i for i in board.incidents if (i.severity, i.state) == (severity, state)]
            yield (severity, state), float(len(same))


def _letters(board: Board, _: datetime) -> Iterator[Row]:
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


ROWS: dict[names.Metric, Callable[[Board, datetime], Iterator[Row]]] = {
    names.HOP_LAG: _lags,
    names.HOP_AGE: _ages,
    names.WATERMARK: _watermarks,
    names.READINESS: _readiness,
    names.OUTCOME: _outcomes,
    names.VALUE: _values,
    names.CHANGES: lambda board, _: ((key, float(n)) for key, n in sorted(board.changes.items())),
    names.RESIDUAL: lambda board, _: (((v.table.name,), float(v.residual)) for v in board.tables),
    names.HEADROOM: lambda board, _: (
        (key, left.total_seconds()) for key, left in sorted(board.headroom.items())
    ),
    names.INCIDENTS: _incidents,
    names.LETTERS: _letters,
    names.CHANNEL_FAILURES: lambda board, _: (
        ((c.name,), float(c.failures)) for c in board.channels
    ),
    names.TICKS: _ticks,
    names.SUCCESS: _successes,
}
