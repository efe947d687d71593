"""Images as Prometheus reads them: of when the newest is, how large, and whether one is missing.

Of tables of which none are made nothing is told.
"""

from collections.abc import Iterator
from datetime import datetime

from checks.model import Outcome
from monitor.board import Board, TableView
from monitor.observe.image_verdicts import IMAGE
from monitor.web.metric import Metric, Row
from pipeline.image import Image


def newest(view: TableView, now: datetime) -> Image | None:
    """The image of the latest cut that can be read and lacks nothing; None if there is none."""
    good = (one for one in view.images if one.held(now) and not one.left_out)
    return max(good, key=lambda one: one.cut, default=None)


def _newest(board: Board, now: datetime) -> Iterator[tuple[str, Image]]:
    if board.stale(now):
        return
    for view in board.tables:
        if (image := newest(view, now)) is not None:
            yield view.table.name, image


def _cuts(board: Board, now: datetime) -> Iterator[Row]:
    yield from (((table,), one.cut.timestamp()) for table, one in _newest(board, now))


def _rows(board: Board, now: datetime) -> Iterator[Row]:
    found = _newest(board, now)
    yield from (((table,), float(one.rows)) for table, one in found if one.rows is not None)


def _missing(board: Board, _: datetime) -> Iterator[Row]:
    for view in board.tables:
        told = [one for one in view.verdicts if one.check == IMAGE]
        if told:
            failed = any(one.ruling.outcome is Outcome.FAIL for one in told)
            yield (view.table.name,), float(failed)


IMAGE_CUT = Metric(
    "sluice_image_cut_timestamp_seconds",
    ("table",),
    "Cut of the newest image that can be read and lacks nothing, as Unix time.",
    _cuts,
)
IMAGE_ROWS = Metric(
    "sluice_image_rows",
    ("table",),
    "Rows of that image; absent where they are not known.",
    _rows,
)
IMAGE_MISSING = Metric(
    "sluice_image_missing",
    ("table",),
    "1 while the image of yesterday is not ready though it is due; 0 for other published tables.",
    _missing,
)
IMAGE_METRICS = (IMAGE_CUT, IMAGE_ROWS, IMAGE_MISSING)
