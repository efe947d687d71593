from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.baseline import (
    CountedInterval,
    Past,
    SilentPeriod,
    comparable_counts,
    expected_changes,
    silent_period,
    usual_range,
    usual_range_of,
)
from checks.model import NotYet, Outcome, Ruling, Undecided, Verdict
from checks.probes.range_counts import RangeCounts
from checks.probes.volatility import Changes, Volatility
from checks.run import Check, run_probe
from pipeline.errors import ConfigError
from pipeline.model import Fence, Head, Op, Table
from pipeline.sources.mysql.position import binlog_position
from tests.checks.world_fake import ONE, TABLE, FakeLog, FakeWorld, in_step

HOUR = timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
counts = st.lists(st.floats(0, 1e6), min_size=1, max_size=40)


@given(counts, st.floats(1, 9), st.floats(0, 1))
def test_the_median_is_always_ordinary(past: list[float], width: float, slack: float) -> None:
    found = usual_range_of(past, width=width, slack=slack)

    assert 0 <= found.low <= found.middle <= found.high


def test_one_outlier_does_not_widen_the_band() -> None:
    calm = usual_range_of([100.0] * 9, width=6, slack=0.1)
    shaken = usual_range_of([100.0] * 8 + [1e9], width=6, slack=0.1)

    assert calm == shaken


def history(days: int, count: float, *, hour: int = 9) -> list[CountedInterval]:
    start = MONDAY.replace(hour=hour)
    return [CountedInterval(start - timedelta(days=day), count) for day in range(days, 0, -1)]


def test_only_the_same_hour_compares() -> None:
    mixed = sorted([*history(3, 5.0), *history(3, 900.0, hour=3)], key=lambda each: each.start)

    assert comparable_counts(mixed, MONDAY) == Past((5.0, 5.0, 5.0))


def test_with_four_weeks_only_the_same_weekday_compares() -> None:
    short = [CountedInterval(i.start, float(i.start.weekday())) for i in history(27, 0)]
    long = [CountedInterval(i.start, float(i.start.weekday())) for i in history(35, 0)]

    assert len(set(comparable_counts(short, MONDAY).counts)) == 7
    assert comparable_counts(long, MONDAY) == Past((0.0,) * 5, weekday=True)


def test_the_first_weekend_is_no_fault_but_the_fifth_would_be() -> None:
    mixed = Past((1000.0,) * 5 + (0.0,) * 2)

    assert usual_range(mixed, width=6, slack=0.5).low == 0
    assert usual_range(Past((1000.0,) * 5, weekday=True), width=6, slack=0.5).low == 500


def test_a_slow_table_is_missed_only_when_its_silence_adds_up() -> None:
    days = history(60, 4.0)
    silence = [CountedInterval(MONDAY + timedelta(days=n), 0.0) for n in range(12)]

    assert expected_changes(days, 7) == 0
    assert expected_changes([*days, silence[0]], 7) == 4.0
    assert expected_changes([*days, *silence], 7) >= 36
    assert expected_changes(silence, 7) == 0


def day_intervals(pattern: str) -> list[CountedInterval]:
    """One letter a day from a Monday on: ``.`` is none, ``x`` some changes."""
    return [
        CountedInterval(MONDAY + timedelta(days=n), 3.0 * (c == "x")) for n, c in enumerate(pattern)
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("", SilentPeriod(), id="nothing"),
        pytest.param("....", SilentPeriod(4), id="never changed"),
        pytest.param("x..x...x", SilentPeriod(0, 3, 3), id="changes now"),
        pytest.param("x..x....", SilentPeriod(4, 2, 2), id="quiet for longer than ever"),
        pytest.param("....x.", SilentPeriod(1, 4, 1), id="before its first change, too"),
    ],
)
def test_a_silence_is_as_long_as_it_was_seen(pattern: str, expected: SilentPeriod) -> None:
    assert silent_period(day_intervals(pattern)) == expected


@pytest.mark.parametrize(
    ("pattern", "stopped"),
    [
        pytest.param("xxxxx..xxxxx..xxxxx....", False, id="a long weekend"),
        pytest.param("xxxxx..xxxxx..xxxxx.....", True, id="a week without a change"),
        pytest.param("x...x...x...x...x...x...x.......", True, id="one that changes seldom"),
        pytest.param("x...x...x...x...x...x...x......", False, id="not yet"),
        pytest.param("xxxxxx.......", False, id="too few days to know it"),
        pytest.param("." * 60, False, id="always idle: no change is its usual"),
    ],
)
def test_a_table_is_missed_once_it_is_silent_for_far_longer_than_ever(
    pattern: str, stopped: bool
) -> None:
    quiet = silent_period(day_intervals(pattern))
    probe = Volatility(interval=timedelta(days=1))

    ruling = probe.judge(Changes((), 0.0, Past((0.0,) * 10), 0.0, quiet), [])

    assert (ruling.code == "stopped") is stopped


def test_a_table_that_was_moved_away_has_equal_counts_and_is_found() -> None:
    """Ctrip's: it stops changing, and every count still agrees."""
    probe, world = Volatility(interval=timedelta(days=1)), FakeWorld()
    world.commit((Op.CREATE, ONE, 1))
    world.catch_up()
    probe.measure(TABLE, world)
    codes = []
    for day in range(40):
        work(world, timedelta(days=1), 1 if day % 3 == 0 and day < 30 else 0)
        reading = probe.measure(TABLE, world)
        codes.append(probe.judge(reading, []).code if isinstance(reading, Changes) else None)

    (*_, counts) = in_step("range_counts", RangeCounts(), world, 4)
    assert counts.outcome is Outcome.PASS
    assert "stopped" not in codes[:30]
    assert codes[-1] == "stopped"


@pytest.mark.parametrize("every", [1, 3], ids=["each day", "seldom"])
def test_a_table_that_has_stopped_is_missed_until_it_changes_again(every: int) -> None:
    """Its silence does not become its usual once all that was before it is old."""
    probe, world = Volatility(interval=timedelta(days=1), weeks=5), FakeWorld()
    world.commit((Op.CREATE, ONE, 1))
    world.catch_up()
    probe.measure(TABLE, world)
    codes, kept = [], 0
    for day in range(40 + 150 + 1):
        changes = int(day >= 190 or (day < 40 and day % every == 0))
        work(world, timedelta(days=1), changes)
        reading = probe.measure(TABLE, world)
        codes.append(probe.judge(reading, []).code if isinstance(reading, Changes) else None)
        kept = max(kept, len((world.recall(TABLE, "volatility") or {"counts": ()})["counts"]))

    assert "stopped" not in codes[:40]
    assert set(codes[80:190]) == {"stopped"}
    assert codes[190] != "stopped"
    assert kept <= 2 * 35 + 2, "a memory is short"


@pytest.mark.parametrize(
    ("count", "past", "awaited_", "outcome", "code"),
    [
        pytest.param(100.0, [100.0] * 6, 0.0, Outcome.UNKNOWN, "no_history", id="short history"),
        pytest.param(100.0, [95.0, 105.0] * 5, 0.0, Outcome.PASS, "", id="as usual"),
        pytest.param(0.0, [1000.0] * 10, 1000.0, Outcome.FAIL, "stopped", id="stopped"),
        pytest.param(0.0, [4.0] * 10, 4.0, Outcome.PASS, "", id="a slow table pauses"),
        pytest.param(0.0, [4.0] * 10, 40.0, Outcome.FAIL, "stopped", id="a slow table stopped"),
        pytest.param(300.0, [1000.0] * 10, 0.0, Outcome.FAIL, "too_few", id="too few"),
        pytest.param(9000.0, [1000.0] * 10, 0.0, Outcome.FAIL, "too_many", id="too many"),
        pytest.param(0.0, [0.0] * 10, 0.0, Outcome.PASS, "", id="always idle"),
    ],
)
def test_an_interval_is_ruled_on_by_its_band(
    count: float, past: Sequence[float], awaited_: float, outcome: Outcome, code: str
) -> None:
    ruling = Volatility().judge(
        Changes((), count, Past(tuple(past), weekday=len(past) > 9), awaited_), []
    )

    assert (ruling.outcome, ruling.code) == (outcome, code)


def work(world: FakeWorld, length: timedelta, changes: int) -> None:
    """*length* of time with *changes* changes in it, then in step."""
    for _ in range(changes):
        world.commit((Op.UPDATE, ONE, 1))
    world.tick(length)
    world.catch_up()


def started_probe(changes: int = 60, days: int = 9) -> tuple[Volatility, FakeWorld]:
    probe, world = Volatility(interval=timedelta(days=1)), FakeWorld()
    world.commit((Op.CREATE, ONE, 1))
    world.catch_up()
    assert isinstance(probe.measure(TABLE, world), NotYet)
    for _ in range(days):
        work(world, timedelta(days=1), changes)
        probe.measure(TABLE, world)
    return probe, world


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param(60, "", id="as usual"),
        pytest.param(0, "stopped", id="stopped"),
        pytest.param(400, "too_many", id="a storm"),
    ],
)
def test_a_day_is_compared_with_the_days_before(changes: int, code: str) -> None:
    probe, world = started_probe()

    work(world, timedelta(days=1), changes)
    reading = probe.measure(TABLE, world)

    assert isinstance(reading, Changes)
    assert probe.judge(reading, []).code == code
    assert reading.count == pytest.approx(changes, rel=0.1)


def test_an_interval_is_not_cut_while_the_mirror_is_far_behind() -> None:
    probe, world = started_probe()

    world.tick(timedelta(days=1))
    late = probe.measure(TABLE, world)
    world.tick(timedelta(hours=1))
    overdue = probe.measure(TABLE, world)

    assert isinstance(late, NotYet)
    assert isinstance(overdue, Undecided)
    assert overdue.code == "not_reached"


def test_a_replaced_lake_is_no_table_that_stopped() -> None:
    """Batches begin anew: none is above the one remembered, and what was counted is kept."""
    probe, world = started_probe()
    world.replace_lake()

    codes = []
    for changes in (60, 60, 0):
        work(world, timedelta(days=1), changes)
        reading = probe.measure(TABLE, world)
        codes.append(probe.judge(reading, []).code if isinstance(reading, Changes) else None)

    assert codes == [None, "", "stopped"]


def test_an_interval_nobody_cut_in_time_is_left_out() -> None:
    probe, world = started_probe()

    work(world, timedelta(days=4), 10)

    assert isinstance(probe.measure(TABLE, world), NotYet)
    work(world, timedelta(days=1), 60)
    reading = probe.measure(TABLE, world)
    assert isinstance(reading, Changes)
    assert probe.judge(reading, []).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "memory",
    [
        {"v2": 1},
        {"since": "2026-03-02T09:00:00", "batch": 1, "counts": []},
        {"since": "2026-03-01T09:00:00+00:00", "batch": 1, "counts": 7},
        {"since": "2026-03-01T09:00:00+00:00", "batch": None, "counts": []},
        {"since": "2026-03-01T09:00:00+00:00", "batch": 1, "counts": [[1e300, 1]]},
        {"since": "2026-03-01T09:00:00+00:00", "batch": 1, "counts": [[1, float("nan")]]},
    ],
)
def test_a_memory_of_another_shape_is_named_once_and_ends_no_finding(
    memory: Mapping[str, Any],
) -> None:
    probe, world = started_probe()
    work(world, timedelta(days=1), 0)
    stopped = probe.measure(TABLE, world)
    assert isinstance(stopped, Changes)
    assert probe.judge(stopped, []).code == "stopped"

    world.memory["volatility"] = memory
    quiet = rulings_of_days(probe, world, [0] * 20)
    busy = rulings_of_days(probe, world, [60] * 9)

    assert quiet[0].code == "unprovable"
    assert "the stored memory of check volatility for shop.orders" in quiet[0].reason
    assert {one.code for one in quiet[1:]} == {"no_history"}
    assert busy[-1].outcome is Outcome.PASS


def rulings_of_days(probe: Volatility, world: FakeWorld, days: Sequence[int]) -> list[Ruling]:
    """What it says of days with so many changes."""
    found = []
    for changes in days:
        work(world, timedelta(days=1), changes)
        answer = run_probe(Check("volatility", probe, TABLE), world)
        found += [answer.ruling] if isinstance(answer, Verdict) else []
    return found


@dataclass
class NightJob(FakeWorld):
    """In step by the minute; a job at 00:30 by the clocks of *zone* changes 5,000 rows.

    The other changes are twenty in each hour.  A batch lands in each minute.
    """

    zone: ZoneInfo = BERLIN

    def fence_after(self, source: str, instant: datetime) -> Fence:
        return Fence(source, 0, instant, Head("A", binlog_position(1, 1)))

    def reached(self, table: Table, fences: Sequence[Fence]) -> bool:
        return True

    def landed_batch(self) -> int:
        return (self.time - NIGHTS) // timedelta(minutes=1)

    def log(self) -> "NightLog":
        return NightLog(self)

    def counted(self, after: int, until: int) -> int:
        minutes = (NIGHTS + timedelta(minutes=each) for each in range(after + 1, until + 1))
        return sum(map(self.changes, minutes))

    def changes(self, minute: datetime) -> int:
        local = minute.astimezone(self.zone)
        return (5_000 if (local.hour, local.minute) == (0, 30) else 0) + (minute.minute % 3 == 0)


class NightLog(FakeLog):
    """The log of a NightJob."""

    def __init__(self, job: NightJob) -> None:
        super().__init__(job)
        self.job = job

    def change_counts(self, table: Table, after: int, until: int) -> int:
        return self.job.counted(after, until)


NIGHTS = datetime(2026, 2, 1, tzinfo=UTC)


def usual_hours(world: NightJob, until: datetime) -> Mapping[str, Any]:
    """The memory of an hourly probe that has cut at each full hour up to *until*."""
    hours = (until - NIGHTS) // HOUR
    counts = [
        [int((NIGHTS + n * HOUR).timestamp()), world.counted(60 * n - 1, 60 * n + 59)]
        for n in range(hours - 12 * 24, hours)
    ]
    return {"since": until.isoformat(), "batch": 60 * hours - 1, "counts": counts}


@pytest.mark.parametrize(
    "until",
    [
        pytest.param(datetime(2026, 3, 28, 21, tzinfo=UTC), id="summer time begins"),
        pytest.param(datetime(2026, 10, 24, 20, tzinfo=UTC), id="summer time ends"),
    ],
)
def test_f32_a_nightly_job_is_usual_by_local_clocks(until: datetime) -> None:
    probe, world = Volatility(), NightJob(time=until)
    world.memory["volatility"] = usual_hours(world, until)

    rulings = []
    for _ in range(30 * 12):  # two nights and the day between
        world.time += timedelta(minutes=5)
        reading = probe.measure(TABLE, world)
        if isinstance(reading, Changes):
            rulings.append(probe.judge(reading, []))

    assert len(rulings) >= 29
    assert {each.outcome for each in rulings} == {Outcome.PASS}


def test_the_probes_own_zone_comes_before_the_pipelines() -> None:
    probe, world = Volatility(interval=timedelta(days=1), zone="Asia/Tokyo"), FakeWorld()
    world.catch_up()
    probe.measure(TABLE, world)

    world.tick(timedelta(hours=15))  # midnight in Tokyo
    world.catch_up()

    assert isinstance(probe.measure(TABLE, world), Changes)


def test_a_first_part_of_an_hour_is_no_measure_of_it() -> None:
    probe, world = Volatility(), FakeWorld(time=MONDAY + timedelta(minutes=50))
    world.catch_up()
    probe.measure(TABLE, world)

    work(world, timedelta(minutes=10), 50)
    short = probe.measure(TABLE, world)
    work(world, HOUR, 50)

    assert short == NotYet("the interval has no exact ends; it is left out")
    assert isinstance(probe.measure(TABLE, world), Changes)
    assert len(world.memory["volatility"]["counts"]) == 1


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        pytest.param({"zone": "Europe/Atlantis"}, "the nearest is Europe/", id="no such zone"),
        pytest.param({"zone": "../etc"}, "write a name such as ", id="no name of a zone"),
        pytest.param({"interval": timedelta()}, "longer than 0s", id="no interval"),
        pytest.param({"interval": -HOUR}, "longer than 0s", id="an interval that goes back"),
    ],
)
def test_settings_that_could_never_rule_are_refused(wrong: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))}: .* {why}"):
        Volatility(**wrong)
