from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from checks.days import days_before, place, span_of
from pipeline.errors import ProofError

BERLIN, SHANGHAI, UTC_ZONE = (ZoneInfo(n) for n in ("Europe/Berlin", "Asia/Shanghai", "UTC"))
INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        pytest.param(date(2026, 3, 28), 24, id="a usual one"),
        pytest.param(date(2026, 3, 29), 23, id="clocks are put forward"),
        pytest.param(date(2026, 10, 25), 25, id="clocks are put back"),
    ],
)
def test_a_day_is_as_long_as_it_is(day: date, hours: int) -> None:
    first, until = span_of(day, INSTANT, BERLIN, BERLIN)
    wall = span_of(day, WALL, BERLIN, BERLIN)

    assert isinstance(first, datetime)
    assert isinstance(until, datetime)
    assert until - first == timedelta(hours=hours)
    assert wall == (datetime(day.year, day.month, day.day), wall[0] + timedelta(days=1))  # noqa: DTZ001


def test_a_wall_in_another_zone_shows_other_hours() -> None:
    span = span_of(date(2026, 3, 28), WALL, SHANGHAI, UTC_ZONE)

    assert span == (datetime(2026, 3, 27, 16), datetime(2026, 3, 28, 16))  # noqa: DTZ001


def test_a_date_is_the_day_itself() -> None:
    assert span_of(date(2026, 3, 28), pa.date32(), BERLIN, BERLIN) == (
        date(2026, 3, 28),
        date(2026, 3, 29),
    )


def test_days_are_those_that_are_over_in_the_zone() -> None:
    late = datetime(2026, 3, 28, 17, tzinfo=UTC)  # already the 29th in Shanghai

    assert days_before(late, 2, SHANGHAI) == (date(2026, 3, 27), date(2026, 3, 28))
    assert days_before(late, 2, BERLIN) == (date(2026, 3, 26), date(2026, 3, 27))


def test_a_bound_belongs_to_the_later_day() -> None:
    spans = [span_of(date(2026, 3, n), INSTANT, UTC_ZONE, UTC_ZONE) for n in (1, 2)]

    assert place(datetime(2026, 3, 2, tzinfo=UTC), spans) == 1
    assert place(datetime(2026, 3, 3, tzinfo=UTC), spans) is None


def test_a_number_is_no_date() -> None:
    with pytest.raises(ProofError, match="int64 holds no dates"):
        span_of(date(2026, 3, 1), pa.int64(), UTC_ZONE, UTC_ZONE)
