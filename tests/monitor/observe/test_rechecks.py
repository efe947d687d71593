"""A repair is proven by a check as of a position after it, and by nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from checks.model import Outcome, Ruling, Verdict
from monitor.observe.verdicts import LOOKED_FOR, LatestVerdicts, Rechecks
from monitor.store.requests import RereadRequest, RereadWish
from monitor.store.store import ServiceStore
from pipeline.backfill_state import BackfillState
from pipeline.model import Fence, Head, Origin
from pipeline.sources.mysql.position import binlog_position
from tests.pipeline.lakes import NOON

WISH = RereadWish(Origin.REPAIR, checks=("range_counts",))
ENDED = NOON + timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceStore]:
    made = ServiceStore.open(tmp_path / "s.db")
    made.rereads.add(RereadRequest("x", "shop.a", "an incident", "ann", NOON, wish=WISH))
    made.rereads.told([BackfillState("x", "shop.a", "s/a", 5, 7)], ENDED)
    yield made
    made.close()


def verdict(outcome: Outcome, read: timedelta, table: str = "shop.a") -> Verdict:
    """One that came in a minute, as of what was read at the end or *read* after it."""
    fence = Fence("s", 1, ENDED + read, Head("u", binlog_position(7, 4)))
    ruling = Ruling(outcome, f"{outcome} it is")
    return Verdict(table, "range_counts", ruling, ENDED + timedelta(minutes=1), (fence,))


AFTER, BEFORE = timedelta(seconds=1), timedelta(0)


@pytest.mark.parametrize(
    ("ruled", "proven"),
    [
        pytest.param([verdict(Outcome.PASS, AFTER)], True, id="it passes after it"),
        pytest.param([verdict(Outcome.FAIL, AFTER)], False, id="it fails after it"),
        pytest.param([verdict(Outcome.PASS, BEFORE)], None, id="of what was read before the end"),
        pytest.param([verdict(Outcome.UNKNOWN, AFTER)], None, id="it does not know"),
        pytest.param([verdict(Outcome.PASS, AFTER, "shop.b")], None, id="of another table"),
        pytest.param(
            [replace(verdict(Outcome.PASS, AFTER), as_of=())], None, id="as of no position"
        ),
        pytest.param(
            [verdict(Outcome.FAIL, AFTER), verdict(Outcome.PASS, AFTER)], True, id="the newest"
        ),
        pytest.param([], None, id="nothing was asked"),
    ],
)
def test_only_what_was_read_after_it_proves_it(
    store: ServiceStore, ruled: list[Verdict], proven: bool | None
) -> None:
    rechecks(store, ENDED, *ruled).look()

    (one,) = store.rereads.list()
    assert [proof.passed for proof in one.proofs] == ([] if proven is None else [proven])
    assert one.unchecked == (() if proven else ("range_counts",))


def test_once_it_has_passed_that_stands_and_a_fail_may_still_become_a_pass(
    store: ServiceStore,
) -> None:
    again = rechecks(store, ENDED)
    for outcome in (Outcome.FAIL, Outcome.PASS, Outcome.FAIL):
        again.rulings.add([verdict(outcome, AFTER)])
        again.look()

    (one,) = store.rereads.list()
    assert [proof.reason for proof in one.proofs] == ["pass it is"]


def test_after_a_day_nobody_looks_any_more(store: ServiceStore) -> None:
    rechecks(store, ENDED + LOOKED_FOR, verdict(Outcome.PASS, AFTER)).look()

    assert store.rereads.list()[0].proofs == ()


def rechecks(store: ServiceStore, now: datetime, *ruled: Verdict) -> Rechecks:
    made = LatestVerdicts()
    made.add(ruled)
    return Rechecks(store.rereads, made, lambda: now)
