"""The SYNC hop is that of the newest heartbeat which the mirror has brought with all before it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from monitor.observe.fence_book import FenceBook
from monitor.observe.synced import newest_below, synced
from pipeline.model import Acknowledged, Fence, Head, Hop, Missing
from tests.monitor.rig import SOURCE, USERS, Rig

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
FENCES = tuple(
    Fence("shop", n, NOON + timedelta(seconds=n), Head("old" if n < 3 else "A", 1, n * 100))
    for n in range(1, 6)
)


@pytest.mark.parametrize(
    ("arrived", "number"),
    [
        pytest.param(Acknowledged(1, 450), 4, id="the newest that it has passed"),
        pytest.param(Acknowledged(1, 400), 4, id="its own place is enough"),
        pytest.param(Acknowledged(2, 4), 5, id="in a later file"),
        pytest.param(Acknowledged(1, 250), None, id="one of another server says nothing"),
    ],
)
def test_the_newest_heartbeat_below_what_has_arrived(
    arrived: Acknowledged, number: int | None
) -> None:
    found = newest_below(FENCES, arrived)

    assert (found.number if found else None) == number


def test_f04_what_arrived_of_the_server_before_says_nothing_of_the_one_now() -> None:
    old, new = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
    fences = (Fence("shop", 1, NOON, Head("B", 1, 100, f"{old}:1-80,{new}:1")),)

    assert newest_below(fences, Acknowledged(9, 9, f"{old}:1-80")) is None
    assert newest_below(fences, Acknowledged(9, 9, f"{old}:1-80,{new}:1-2")) == fences[0]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def _hops(rig: Rig) -> dict[Hop, object]:
    view = rig.current.board.table(USERS)
    assert view is not None
    return {each.hop: each.lag for each in view.lags.hops}


def test_without_a_mirror_there_is_no_such_hop(rig: Rig) -> None:
    rig.round()

    assert synced([SOURCE], {"shop": rig.collector}, FenceBook(rig.store.fences)) == {}
    assert Hop.SYNC not in _hops(rig)


def test_a_mirror_that_lags_shows_as_its_own_hop_and_a_silent_one_as_missing(rig: Rig) -> None:
    rig.watcher.sampler.synced = {"shop": lambda: 1}
    rig.round()
    for _ in range(3):
        rig.beat()
    rig.cycle.watch()
    assert _hops(rig)[Hop.SYNC] == timedelta(seconds=4)

    rig.watcher.sampler.synced = {"shop": lambda: Missing("the mirror does not answer")}
    rig.round()
    assert isinstance(_hops(rig)[Hop.SYNC], Missing)
