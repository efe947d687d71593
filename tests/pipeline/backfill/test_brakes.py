"""Reading is slowed by a rate and by the source's own load, and the reason is shown."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipeline.backfill.task import (
    BackfillFailure,
    BackfillResult,
    BackfillTask,
    ReadLimits,
    try_task,
)
from pipeline.backfill_state import BackfillState
from pipeline.errors import SparedError
from pipeline.sources.row_reader import ReadFence, RowsAsked, RowsRead
from tests.pipeline.backfill.test_bootstrap import WISH, Beside, Rows, harness_with_row

RATE, ROUNDS = 200, 40


@dataclass(eq=False)
class BusyRows(Rows):
    """A server that is asked nothing as long as it is ``busy``."""

    busy: bool = False

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        if self.busy:
            raise SparedError("running", "source:a: loaded: 65 threads run, 64 may")
        return Rows.read(self, fence, asked)


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    return Beside(harness_with_row(tmp_path), BusyRows(50))


def test_no_more_rows_a_second_are_read_than_were_asked_for(beside: Beside) -> None:
    beside.wishes = (replace(WISH, rate=RATE),)
    at_once, told = list[int](), list[BackfillState]()
    beside.again.limits = ReadLimits(rows=1_000, select=10)
    beside.again.work = noted(at_once)
    since = time.monotonic()

    while not told or told[-1].done is None:
        assert len(told) < ROUNDS, told[-1]
        told.append(beside.round())

    assert time.monotonic() - since > 0.9 * 50 / RATE
    assert {one.brake for one in told} == {"", "rate"}
    assert told[-1].brake == ""
    assert max(at_once) == 1


@pytest.mark.parametrize(("rate", "wanted"), [(7, 7), (1_000, 12), (0, 12)])
def test_a_statement_asks_for_no_more_than_a_second_of_the_rate(
    beside: Beside, rate: int, wanted: int
) -> None:
    beside.rows.count = 6 if rate == 7 else 50
    beside.wishes = (replace(WISH, rate=rate),)
    beside.again.limits = ReadLimits(rows=1_000, select=12)

    beside.until_done()

    assert {one.limit for one in beside.rows.reads} == {wanted}


def test_a_busy_server_is_left_alone_and_read_on_soon_after(beside: Beside) -> None:
    rows = beside.rows
    assert isinstance(rows, BusyRows)
    beside.round()
    rows.busy = True
    told = [beside.round() for _ in range(40)]
    rows.busy = False
    after = [beside.round() for _ in range(3)]

    assert {(one.why, one.brake) for one in told[3:]} == {
        ("source:a: loaded: 65 threads run, 64 may", "running")
    }
    assert after[-1].rows > told[-1].rows
    assert after[-1].brake == ""


def test_fewer_rows_at_once_are_told_as_what_slows_it(beside: Beside) -> None:
    beside.rows.most, beside.again.limits = 12, ReadLimits(rows=24, select=96)

    told = {beside.round().brake for _ in range(5)}

    assert "time" in told


def noted(
    seen: list[int],
) -> Callable[[Sequence[BackfillTask]], Sequence[BackfillResult | BackfillFailure]]:
    def run(tasks: Sequence[BackfillTask]) -> Sequence[BackfillResult | BackfillFailure]:
        seen.append(len(tasks))
        return [try_task(task) for task in tasks]

    return run
