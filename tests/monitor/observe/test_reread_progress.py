"""How fast, how long, and what holds it: nothing is told that is not known."""

from datetime import UTC, datetime, timedelta

import pytest

from monitor.observe.progress import progress
from monitor.store.requests import RereadRequest, RereadWish
from pipeline.backfill_state import BackfillState, RowSelection
from pipeline.model import Origin

BEGUN = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = BEGUN + timedelta(seconds=50)


def asked(*states: BackfillState, wish: RereadWish | None = None) -> RereadRequest:
    return RereadRequest("x", "d.t", "why", "who", BEGUN, states=states, wish=wish or RereadWish())


def state(shard: str, rows: int, done: int | None = None, brake: str = "") -> BackfillState:
    return BackfillState("x", "d.t", f"s/{shard}", rows, done, brake=brake)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        pytest.param(asked(), "0 rows", id="nothing yet"),
        pytest.param(asked(state("a", 500)), "500 rows of about 2000, 10 rows/s, about 150 s left"),
        pytest.param(
            asked(state("a", 400, 7, "rate"), state("b", 100, None, "lag")),
            "500 rows of about 5000, 10 rows/s, about 450 s left;"
            " the replica that is read is behind",
            id="a shard that has ended is slowed by nothing",
        ),
        pytest.param(asked(state("c", 500)), "500 rows, 10 rows/s", id="no estimate"),
        pytest.param(
            asked(state("a", 3000)),
            "3000 rows of about 2000, 60 rows/s",
            id="more than estimated",
        ),
        pytest.param(
            asked(state("a", 400), state("c", 100)),
            "500 rows, 10 rows/s",
            id="one shard without an estimate",
        ),
        pytest.param(
            asked(
                state("a", 500, brake="rate"),
                wish=RereadWish(Origin.REPLAY, RowSelection(where="id > 5")),
            ),
            "500 rows, 10 rows/s; held to its rate",
            id="how many meet a condition nobody knows",
        ),
    ],
)
def test_it_tells_what_is_known(request_: RereadRequest, told: str) -> None:
    assert progress(request_, lambda _: {"a": 2000, "b": 3000}, NOW).told == told


def test_a_clock_that_went_back_makes_no_rate() -> None:
    found = progress(asked(state("a", 5)), lambda _: {"a": 9}, BEGUN - timedelta(seconds=1))

    assert (found.rate, found.left) == (0.0, None)
