"""The registry that Prometheus scrapes: the board, the process, the build, and gate latency.

The board is read at scrape time, so nothing about tables is counted twice.  Its text is written by
:func:`monitor.web.metrics.exposition`, and all else by the library: the library's encoder takes
several times as long for thousands of tables (docs/performance.md has the figures).  Both ways give
the same families, which a test compares.
"""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

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

from monitor.board import Board, CurrentBoard
from monitor.web.metric import Metric as BoardMetric
from monitor.web.metrics import METRICS, exposition

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(eq=False)
class BoardCollector(Collector):
    """Yields the metric families of the board as it is when they are collected."""

    board: Callable[[], Board]
    clock: Callable[[], datetime]

    def collect(self) -> Iterator[Metric]:
        """Every family of the list, with its samples."""
        board, now = self.board(), self.clock()
        for metric in METRICS:
            family = _family(metric)
            for labels, value in metric.rows(board, now):
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterator[Metric]:
        """Every family, without samples: their names are checked when a registry takes them."""
        yield from map(_family, METRICS)


@dataclass(eq=False)
class Scrape:
    """One registry for each service; ``gate_latency`` is observed where the gate answers."""

    current: CurrentBoard
    clock: Callable[[], datetime]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry, init=False)

    def __post_init__(self) -> None:
        """Register what the library exposes itself, and refuse a name that is there twice."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        own = self._own = CollectorRegistry()
        for registry in (own, self.registry):
            ProcessCollector(registry=registry)
            PlatformCollector(registry=registry)
        build = Gauge(
            "sluice_build_info",
            "1; the build, by its labels.",
            ["version", "python"],
            registry=None,
        )
        build.labels(_version(), platform.python_version()).set(1)
        self.gate_latency = Histogram(
            "sluice_gate_latency_seconds",
            "Seconds until the gate answered, without the time that a caller asked it to wait.",
            buckets=BUCKETS,
            registry=None,
        )
        for registry in (own, self.registry):
            registry.register(build)
            registry.register(self.gate_latency)
        self.registry.register(BoardCollector(lambda: self.current.board, self.clock))

    def text(self) -> bytes:
        """One scrape, in Prometheus' text format."""
        return exposition(self.current.board, self.clock()) + generate_latest(self._own)


def _family(metric: BoardMetric) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


def _version() -> str:
    try:
        return version("sluice")
    except PackageNotFoundError:
        return "unknown"
