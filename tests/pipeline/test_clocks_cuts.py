from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clocks import day_end, first_fence, parse_cut
from pipeline.errors import ConfigError
from tests.builders.values import fence

NOW = datetime(2026, 3, 2, 0, 15, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "zone", "instant"),
    [
        pytest.param("2026-03-01", "UTC", "2026-03-02T00:00:00+00:00", id="a plain day"),
        pytest.param(
            "2026-03-29", "Europe/Berlin", "2026-03-29T22:00:00+00:00", id="a day of 23 hours"
        ),
        pytest.param(
            "2026-10-25", "Europe/Berlin", "2026-10-25T23:00:00+00:00", id="a day of 25 hours"
        ),
        pytest.param(
            "2018-11-03", "America/Sao_Paulo", "2018-11-04T03:00:00+00:00", id="no midnight"
        ),
        pytest.param(
            "2026-10-31", "America/Havana", "2026-11-01T04:00:00+00:00", id="midnight occurs twice"
        ),
        pytest.param("now", "UTC", "2026-03-02T00:15:00+00:00", id="now is the clock's"),
        pytest.param(
            "2026-03-01T08:00:00+08:00", "UTC", "2026-03-01T00:00:00+00:00", id="an instant"
        ),
        pytest.param(
            "2026-03-01t00:00:00.5z", "UTC", "2026-03-01T00:00:00.500000+00:00", id="lower case"
        ),
    ],
)
def test_a_cut_is_one_instant(text: str, zone: str, instant: str) -> None:
    assert parse_cut(text, ZoneInfo(zone), NOW).isoformat() == instant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "bad cut", id="empty"),
        pytest.param("yesterday", "bad cut", id="a word"),
        pytest.param("2026-02-30", "no such cut", id="no such day"),
        pytest.param("9999-12-31", "no such cut", id="past the calendar's end"),
        pytest.param("2026-03-01T00:00:00", "with its offset", id="without offset"),
        pytest.param("2026-03-01T00:00:00 08:00", "%2B", id="a plus lost in a URL"),
        pytest.param("2026-03-01T25:00:00Z", "no such cut", id="no such hour"),
        pytest.param("20260301", "bad cut", id="basic form"),
    ],
)
def test_a_bad_cut_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as told:
        parse_cut(text, BERLIN, NOW)

    assert ("%2B" in str(told.value)) is (says == "%2B"), "a hint where it helps, and only there"


@given(
    st.dates(date(1970, 1, 1), date(2100, 1, 1)),
    st.sampled_from(["Europe/Berlin", "Asia/Shanghai", "America/Havana", "Pacific/Apia"]),
)
def test_days_follow_each_other_without_gap_or_overlap(day: date, zone: str) -> None:
    name = ZoneInfo(zone)

    ends = day_end(day, name), day_end(day + timedelta(days=1), name)

    assert ends[0] <= ends[1] <= ends[0] + timedelta(hours=25)
    assert (ends[0] - timedelta(microseconds=1)).astimezone(name).date() <= day
    assert ends[0].astimezone(name).date() > day


def test_the_fence_of_a_cut_is_the_first_at_or_after_it() -> None:
    beats = [fence(n, NOW + timedelta(seconds=n)) for n in range(5)]

    assert first_fence(beats, NOW + timedelta(seconds=2)) == beats[2]
    assert first_fence(beats, NOW + timedelta(seconds=2.5)) == beats[3]
    assert first_fence(beats, NOW + timedelta(seconds=4.5)) is None


def test_f01_no_fence_counts_that_has_a_later_one_before_the_cut() -> None:
    """The clock was twelve minutes fast for two beats, and was then set back."""
    fast, right = NOW + timedelta(minutes=12), NOW - timedelta(seconds=3)
    at = [right, fast, fast + timedelta(seconds=1), *(right + timedelta(seconds=n) for n in (2, 4))]
    beats = [fence(number, one) for number, one in enumerate(at)]

    assert first_fence(beats, NOW) == beats[4]
    assert first_fence(beats[:4], NOW) is None
