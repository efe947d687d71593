"""What was asked to be read again is kept, goes on over restarts, and ends once."""

from datetime import timedelta
from pathlib import Path

import pytest

from monitor.store.rereads import RereadRequest
from monitor.store.store import ServiceStore
from pipeline.rereads import RereadOrder, RereadState
from tests.pipeline.lakes import NOON

ASKED = RereadRequest("x", "shop.a", "a gap", "ann", NOON)
LATER = NOON + timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> ServiceStore:
    return ServiceStore.open(tmp_path / "s.db")


def test_one_that_goes_on_is_not_begun_twice(store: ServiceStore) -> None:
    store.rereads.add(ASKED)

    again = store.rereads.add(RereadRequest("y", "shop.a", "again", "bob", LATER))

    assert again == ASKED
    assert store.rereads.orders() == (RereadOrder("x", "shop.a"),)


@pytest.mark.parametrize(
    ("states", "ended", "done"),
    [
        pytest.param([("a", 7, "", False), ("b", None, "", False)], False, False, id="one is left"),
        pytest.param([("a", 7, "", False), ("b", 8, "", False)], True, True, id="both are done"),
        pytest.param([("a", None, "no key", True)], True, False, id="it can never be"),
        pytest.param([("a", None, "down", False)], False, False, id="it waits"),
    ],
)
def test_it_ends_when_all_shards_are_done_or_one_is_refused(
    *, store: ServiceStore, states: list[tuple[str, int | None, str, bool]], ended: bool, done: bool
) -> None:
    store.rereads.add(ASKED)
    told = [RereadState("x", "shop.a", n, 5, batch, why, no) for n, batch, why, no in states]

    store.rereads.told(told, LATER)

    (kept,) = store.rereads.list()
    assert (kept.ended == LATER, kept.done, kept.rows) == (ended, done, 5 * len(states))
    assert bool(store.rereads.orders()) is not ended


def test_what_is_cancelled_stays_so(store: ServiceStore) -> None:
    store.rereads.add(ASKED)

    assert store.rereads.cancel("x", "cancelled by bob: wrong table", LATER)
    store.rereads.told([RereadState("x", "shop.a", "s/a", 5, 7)], LATER)

    (kept,) = store.rereads.list()
    assert (kept.done, kept.why) == (False, "cancelled by bob: wrong table")
    assert not store.rereads.cancel("x", "again", LATER)
    assert store.rereads.orders() == ()
