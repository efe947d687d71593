"""Tables that are read again through a real pipe: asked for, seen to their end, under a load."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from demo.beside import beside
from pipeline.backfill.task import ReadLimits
from pipeline.backfill_state import BackfillRequest, BackfillState
from tests.pipeline.live import Pipe


def wish(p: Pipe, table: str) -> BackfillRequest:
    return BackfillRequest(f"{p.name}-{table}", p.named(table))


def again(p: Pipe, wanted: BackfillRequest) -> BackfillState:
    """How far it is after one more round."""
    (state,) = p.lane.run_backfills((wanted,))
    assert not state.refused, state.why
    return state


def finished(p: Pipe, wanted: BackfillRequest) -> bool:
    return again(p, wanted).done is not None


def part(p: Pipe, wanted: BackfillRequest) -> bool:
    """Read a few rows; whether some are landed."""
    p.lane.backfill_runner.limits = replace(p.lane.backfill_runner.limits, rows=100, select=50)
    return again(p, wanted).rows > 0


def bootstrap(p: Pipe, table: str, limits: ReadLimits | None = None) -> BackfillState:
    p.lane.backfill_runner.limits = limits or p.lane.backfill_runner.limits
    p.until(lambda: finished(p, wish(p, table)))
    return again(p, wish(p, table))


def writing(write: Callable[[int], object], pause: float = 0.0) -> AbstractContextManager[None]:
    """Somebody writes all the time: 1, 2, 3, ..., with so many seconds between."""

    def go_on(ended: threading.Event) -> None:
        number = 0
        while not ended.wait(pause):
            number += 1
            write(number)

    return beside(go_on)


def origins(p: Pipe, table: str) -> set[int]:
    """Of the rows that the mirror holds."""
    return {row.origin for row in p.rows(table).select("_sluice.origin").distinct().collect()}
