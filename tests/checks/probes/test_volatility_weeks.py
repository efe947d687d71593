"""Simulated weeks with planted faults: what the probe finds hour by hour, and what it does not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from checks.baseline import CountedInterval, comparable_counts, expected_changes, silent_period
from checks.model import Outcome
from checks.probes.volatility import Changes, Volatility

BERLIN = ZoneInfo("Europe/Berlin")
BEGIN = datetime(2026, 2, 16, tzinfo=BERLIN)  # a Monday; clocks change on 29 March
WEEKS = 8
HOLIDAYS = (date(2026, 4, 3), date(2026, 4, 6))
MISSING = datetime(2026, 3, 31, 10, tzinfo=BERLIN)
FAULTS = {date(2026, 4, 8): ("halved", 0.5), date(2026, 4, 9): ("doubled", 2.0)}
PROBE = Volatility()


@dataclass(frozen=True)
class Hour:
    """An interval: what was planted in it (empty: nothing), and what the probe says."""

    start: datetime
    planted: str
    outcome: Outcome
    code: str


def rate(start: datetime) -> float:
    """Changes an hour by local clocks: days and nights, weekends and holidays, a nightly job."""
    usual = 200.0 if 8 <= start.hour < 22 else 20.0
    usual += 5000.0 if start.hour == 4 else 0.0
    return usual * (0.4 if start.weekday() > 4 or start.date() in HOLIDAYS else 1.0)


def play_weeks(seed: int) -> Iterator[Hour]:
    rng = np.random.default_rng(seed)
    history = list[CountedInterval]()
    hours = WEEKS * 7 * 24 - 1  # the clocks skip one
    for number in range(hours):
        start = (BEGIN.astimezone(UTC) + timedelta(hours=number)).astimezone(BERLIN)
        planted, factor = FAULTS.get(start.date(), ("", 1.0))
        if start == MISSING:
            planted, factor = "missing", 0.0
        elif start.date() in HOLIDAYS:
            planted = "holiday"
        count = float(rng.poisson(rate(start) * factor))
        history.append(CountedInterval(start, count))
        past = comparable_counts(history, start)
        awaited = expected_changes(history[-200:], PROBE.needed) if not count else 0.0
        ruling = PROBE.judge(Changes((), count, past, awaited, silent_period(history)), [])
        yield Hour(start, planted, ruling.outcome, ruling.code)


@pytest.fixture(scope="module", params=[1, 2, 3])
def weeks(request: pytest.FixtureRequest) -> list[Hour]:
    return list(play_weeks(request.param))


def alarms(weeks: list[Hour], planted: str) -> Counter[bool]:
    """Hours that were planted so, by whether the probe fails."""
    return Counter(one.outcome is Outcome.FAIL for one in weeks if one.planted == planted)


def test_no_ordinary_hour_of_eight_weeks_is_an_alarm(weeks: list[Hour]) -> None:
    false = [one for one in weeks if not one.planted and one.outcome is Outcome.FAIL]

    assert false == []
    silent = [one for one in weeks if one.outcome is Outcome.UNKNOWN]
    assert len(silent) == 7 * 24  # the first week has no history
    assert any(one.start.date() == date(2026, 3, 29) for one in weeks)


def test_a_missing_hour_and_a_doubled_day_are_found(weeks: list[Hour]) -> None:
    assert alarms(weeks, "missing") == {True: 1}
    assert alarms(weeks, "doubled")[True] >= 14  # each hour of the day, and the nightly job


def test_of_a_halved_day_the_busy_hours_are_found_in_part(weeks: list[Hour]) -> None:
    found = alarms(weeks, "halved")

    assert found[True] >= 3
    assert found[False] >= 9  # so few at night that half of them is no sign
