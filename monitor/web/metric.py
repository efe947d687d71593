"""What is a family of metrics, before anything is counted?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from monitor.board import Board

Row = tuple[tuple[str, ...], float]
"""Values of the labels, and the number."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One family; a ``counter`` is exposed under its name, which therefore ends in ``_total``."""

    name: str
    labels: tuple[str, ...]
    help: str
    rows: Callable[[Board, datetime], Iterator[Row]]
    kind: str = "gauge"
