"""The ends of business days of which images are due."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from monitor.observe.cuts import DueCuts
from pipeline.model import Fence, Head
from pipeline.sources.mysql.position import binlog_position

BERLIN = ZoneInfo("Europe/Berlin")


def beats(since: datetime, count: int) -> tuple[Fence, ...]:
    """One an hour."""
    head = Head("A", binlog_position(1, 4))
    return tuple(Fence("shop", n, since + n * timedelta(hours=1), head) for n in range(count))


def test_today_is_told_before_it_ends_and_days_before_with_their_heartbeats() -> None:
    now = datetime(2026, 3, 10, 12, tzinfo=UTC)
    known = {"shop": beats(datetime(2026, 3, 9, 12, 30, tzinfo=UTC), 20), "new": ()}

    found = DueCuts(lambda: known, BERLIN, lambda: now)()

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
    *_, before, after = DueCuts(dict, BERLIN, lambda: day)()

    assert after.at - before.at == timedelta(hours=hours)


def test_where_no_images_are_made_no_cut_is_told() -> None:
    assert DueCuts(dict, BERLIN, lambda: datetime.now(UTC), wanted=False)() == ()
