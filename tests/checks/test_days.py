from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.days import days_before, find_span, next_part, span_of
from pipeline.errors import ProofError

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("after", "length", "then"),
    [
        pytest.param("2026-03-02T09:17", HOUR, "2026-03-02T10:00", id="the next hour"),
        pytest.param("2026-03-02T10:00", HOUR, "2026-03-02T11:00", id="never the same instant"),
        pytest.param("2026-03-02T22:59", DAY, "2026-03-02T23:00", id="midnight in Berlin"),
        pytest.param("2026-03-28T23:00", DAY, "2026-03-29T22:00", id="a day of 23 hours"),
        pytest.param("2026-10-24T22:00", DAY, "2026-10-25T23:00", id="a day of 25 hours"),
        pytest.param("2026-10-25T00:10", HOUR, "2026-10-25T01:00", id="an hour comes twice"),
        pytest.param("2026-10-25T01:10", HOUR, "2026-10-25T02:00", id="and is over"),
        pytest.param("2026-03-29T00:10", HOUR, "2026-03-29T01:00", id="an hour is left out"),
        pytest.param("2026-03-02T20:10", 7 * HOUR, "2026-03-02T23:00", id="midnight ends a part"),
        pytest.param("2026-03-02T23:00", 7 * DAY, "2026-03-09T23:00", id="a week"),
    ],
)
def test_a_part_begins_by_local_clocks(after: str, length: timedelta, then: str) -> None:
    found = next_part(datetime.fromisoformat(after).replace(tzinfo=UTC), length, BERLIN)

    assert found == datetime.fromisoformat(then).replace(tzinfo=UTC)
    assert found.tzinfo is UTC


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from([timedelta(minutes=15), HOUR, 6 * HOUR, DAY]),
    st.sampled_from(["Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe"]),
)
def test_parts_follow_one_another_without_a_hole(
    after: datetime, length: timedelta, zone: str
) -> None:
    first = next_part(after, length, ZoneInfo(zone))
    second = next_part(first, length, ZoneInfo(zone))

    assert after < first <= after + length + HOUR
    assert first < second <= first + length + HOUR
    wall = first.astimezone(ZoneInfo(zone))
    skipped = wall.utcoffset() != (after.astimezone(ZoneInfo(zone))).utcoffset()
    assert skipped or timedelta(hours=wall.hour, minutes=wall.minute) % length == timedelta()


SHANGHAI, UTC_ZONE = ZoneInfo("Asia/Shanghai"), ZoneInfo("UTC")
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

    assert find_span(datetime(2026, 3, 2, tzinfo=UTC), spans) == 1
    assert find_span(datetime(2026, 3, 3, tzinfo=UTC), spans) is None


def test_a_number_is_no_date() -> None:
    with pytest.raises(ProofError, match="int64 holds no dates"):
        span_of(date(2026, 3, 1), pa.int64(), UTC_ZONE, UTC_ZONE)
