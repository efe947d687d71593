"""Copies as Prometheus reads them: how far each is behind its mirror, and whether it may be read.

Of tables that are not copied nothing is told, and nothing of a copy whose lag is unknown.
"""

from collections.abc import Iterator
from datetime import datetime

from monitor.board import Board
from monitor.web.metric import Metric, Row
from pipeline.model import Missing


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


COPY_LAG = Metric(
    "sluice_copy_lag_seconds",
    ("table", "copy"),
    "How far the copy is behind its mirror; absent while it is unknown.",
    _lags,
)
COPY_READY = Metric(
    "sluice_copy_ready",
    ("table", "copy"),
    "1 while the copy holds all of the end of yesterday, as is proven; 0 for any other answer.",
    _ready,
)
COPY_METRICS = (COPY_LAG, COPY_READY)
