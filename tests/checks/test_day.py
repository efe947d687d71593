from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.days import next_part

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
