"""The ends of business days of which images are due, and the heartbeats that stand for them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from monitor.observe.heartbeats import FenceBook
from monitor.observe.table_states import DueCuts
from monitor.store.store import ServiceStore
from pipeline.model import Fence, Head
from pipeline.sources.mysql.position import binlog_position
from tests.monitor.store.blank import blank_store

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)


def beats(since: datetime, count: int) -> tuple[Fence, ...]:
    """One an hour."""
    head = Head("A", binlog_position(1, 4))
    return tuple(Fence("shop", n, since + n * timedelta(hours=1), head) for n in range(count))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceStore]:
    opened = ServiceStore.open(blank_store(tmp_path / "sluice.db"), service=True)
    yield opened
    opened.close()


def first_of(
    known: Mapping[str, Sequence[Fence]],
) -> Callable[[str, datetime], Fence | None]:
    return lambda source, at: next((one for one in known[source] if one.at >= at), None)


def test_today_is_told_before_it_ends_and_days_before_with_their_heartbeats() -> None:
    now = datetime(2026, 3, 10, 12, tzinfo=UTC)
    known = {"shop": beats(datetime(2026, 3, 9, 12, 30, tzinfo=UTC), 20), "new": ()}

    found = DueCuts(lambda: known, first_of(known), BERLIN, lambda: now)()

    assert [one.at for one in found] == [datetime(2026, 3, d, 23, tzinfo=UTC) for d in range(7, 11)]
    numbers = [{name: one.number for name, one in cut.fences.items()} for cut in found]
    assert numbers == [{"shop": 0}, {"shop": 0}, {"shop": 11}, {}]


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        pytest.param(datetime(2026, 3, 29, 12, tzinfo=UTC), 23, id="the clock goes forward"),
        pytest.param(datetime(2026, 10, 25, 12, tzinfo=UTC), 25, id="the clock goes back"),
    ],
)
def test_days_of_23_and_25_hours_end_where_they_end(day: datetime, hours: int) -> None:
    *_, before, after = DueCuts(dict, first_of({}), BERLIN, lambda: day)()

    assert after.at - before.at == timedelta(hours=hours)


def test_where_no_images_are_made_no_cut_is_told() -> None:
    assert DueCuts(dict, first_of({}), BERLIN, lambda: datetime.now(UTC), wanted=False)() == ()


def night(store: ServiceStore, seconds: int) -> tuple[FenceBook, datetime, DueCuts]:
    """A heartbeat each second since a minute before midnight, as a book that was opened late."""
    midnight = datetime(2026, 3, 28, 23, tzinfo=UTC)
    head = Head("A", binlog_position(1, 4))
    for number in range(-60, 61):
        at = midnight + timedelta(seconds=number + 0.4)
        store.fences.add(Fence("shop", 1_000 + number, at, head))
    now = midnight + timedelta(seconds=seconds)
    book = FenceBook(store.fences)
    book.load(["shop"], midnight - timedelta(hours=1))
    cuts = DueCuts(book.known, book.first, BERLIN, lambda: now)
    return book, midnight, cuts


def at_midnight(cuts: DueCuts, midnight: datetime) -> Fence | None:
    (cut,) = (one for one in cuts() if one.at == midnight)
    return cut.fences.get("shop")


def test_the_heartbeat_of_a_cut_stays_the_first_one_when_those_remembered_are_thinned(
    store: ServiceStore,
) -> None:
    book, midnight, cuts = night(store, 82_800)
    left = [one for one in book.of("shop") if not midnight <= one.at < midnight + MINUTE / 2]
    book._known["shop"] = tuple(left)

    found = at_midnight(cuts, midnight)
    store.fences.prune(midnight + timedelta(days=3))
    book._firsts.clear()
    later = at_midnight(cuts, midnight)

    assert found == later
    assert (found and found.number) == 1_000


def test_a_clock_that_goes_back_after_midnight_leaves_the_first_heartbeat_where_it_is(
    store: ServiceStore,
) -> None:
    """The source's goes on, so those that come meanwhile are of no earlier time."""
    book, midnight, _ = night(store, 60)
    newest = book.of("shop")[-1]
    for second in range(1, 4):
        again = replace(newest, number=newest.number + second, at=newest.at - MINUTE / 20)
        book.add(again, newest.at + timedelta(seconds=second))
    cut = newest.at - MINUTE / 120

    restarted = FenceBook(store.fences)
    restarted.load(["shop"], midnight - timedelta(hours=1))

    assert [one.number for one in restarted.of("shop")[-4:]] == [1_060, 1_061, 1_062, 1_063]
    for known in (book, restarted):
        first = known.first("shop", cut)
        assert (first and first.number) == newest.number


def test_after_a_fail_over_past_the_cut_no_heartbeat_stands_for_it(store: ServiceStore) -> None:
    """The first of the other server is as much later as that was."""
    book, midnight, cuts = night(store, 2_500)
    other = Head("B", binlog_position(1, 4))
    book.add(Fence("shop", 2_000, midnight + timedelta(minutes=41), other))

    assert at_midnight(cuts, midnight) is None


def test_a_heartbeat_whose_time_proved_wrong_stands_for_no_cut(store: ServiceStore) -> None:
    book, midnight, cuts = night(store, 100)
    assert at_midnight(cuts, midnight) is not None

    back = replace(book.of("shop")[-1], number=1_061, at=midnight - timedelta(seconds=50))
    book.add(back)
    book.add(replace(back, number=1_062, at=midnight + timedelta(seconds=5)))

    found = at_midnight(cuts, midnight)
    assert (found and found.number) == 1_062
