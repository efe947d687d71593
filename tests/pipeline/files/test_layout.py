"""Which hours and files are looked at, and when a file is opened."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pipeline.files.layout import (
    UNFINISHED,
    Due,
    FileStamp,
    HourPartition,
    LogRule,
    PartitionRange,
    Patience,
    WaitingFile,
    is_finished,
    is_overdue,
    judge_file,
)

NOW = datetime(2026, 11, 23, 12, 30, tzinfo=UTC)
RANGE = PartitionRange(timedelta(hours=3), timedelta(hours=1), ZoneInfo("Asia/Shanghai"))


@pytest.mark.parametrize(
    ("day", "hour", "held"),
    [
        pytest.param("2026_11_23", "20", True, id="now, in its own zone"),
        pytest.param("2026_11_23", "17", True, id="ended less than three hours ago"),
        pytest.param("2026_11_23", "16", False, id="ended before"),
        pytest.param("2026_11_23", "21", True, id="begins within an hour"),
        pytest.param("2026_11_23", "22", False, id="begins later"),
        pytest.param("2026_11_31", "20", False, id="no day"),
        pytest.param("2026_11_23", "24", False, id="no hour"),
        pytest.param("archive", "20", False, id="no partition"),
    ],
)
def test_an_hour_is_looked_at_if_any_of_it_is_in_range(day: str, hour: str, *, held: bool) -> None:
    assert RANGE.holds(HourPartition("l", day, hour), NOW) is held
    assert RANGE.days(day, NOW) or not held
    assert RANGE.is_before(HourPartition("l", day, hour), NOW) is (hour == "16")


def test_an_hour_that_begins_where_the_clock_is_set_forward_has_a_beginning() -> None:
    begins = HourPartition("l", "2026_03_29", "02").begins(ZoneInfo("Europe/Berlin"))

    assert begins == datetime(2026, 3, 29, 1, tzinfo=UTC)


def test_how_rows_are_written_is_told_by_the_rule_or_by_the_name() -> None:
    assert LogRule().kind("a.b.parquet") == "parquet"
    assert LogRule(format="csv").kind("a.json") == "csv"
    assert LogRule().kind("a") == LogRule().kind("a.gz") == LogRule().kind("gz") == ""
    assert LogRule().kind("a.csv.gz") == "csv.gz"
    assert LogRule(format="json_lines").kind("a.gz") == "json_lines.gz"


def test_names_that_say_so_are_no_files_yet() -> None:
    names = ("a.json", "a.tmp", "_SUCCESS", ".hidden", "a._COPYING_", "tmp.json")

    assert [name for name in names if is_finished(name, UNFINISHED)] == ["a.json", "tmp.json"]


FOUND = FileStamp(1, 10, 100, 100)
PATIENCE = Patience(timedelta(seconds=10), timedelta(minutes=1))


@pytest.mark.parametrize(
    ("taken", "waiting", "now", "what"),
    [
        pytest.param(FOUND, None, 0, Due.NOTHING, id="taken as it is"),
        pytest.param(None, None, 0, Due.REMEMBER, id="new"),
        pytest.param(None, WaitingFile(FOUND, 1, 95), 100, Due.NOTHING, id="seen just now"),
        pytest.param(None, WaitingFile(FOUND, 1, 90), 100, Due.OPEN, id="stood still"),
        pytest.param(
            *(None, WaitingFile(replace(FOUND, size=9), 1, 0), 100, Due.REMEMBER), id="grows"
        ),
        pytest.param(
            *(None, WaitingFile(replace(FOUND, changed=9), 1, 0), 100, Due.REMEMBER),
            id="written, its own time set back",
        ),
        pytest.param(replace(FOUND, size=9), None, 0, Due.REMEMBER, id="other than it was taken"),
        pytest.param(None, WaitingFile(FOUND, 1, 200), 100, Due.REMEMBER, id="our clock went back"),
    ],
)
def test_a_file_is_ruled_by_what_two_looks_have_found(
    taken: FileStamp | None, waiting: WaitingFile | None, now: float, what: Due
) -> None:
    assert judge_file(FOUND, taken, waiting, now, PATIENCE) is what


def test_a_file_is_overdue_from_the_limit_on() -> None:
    one = WaitingFile(FOUND, 1, 0)

    assert [is_overdue(one, now, PATIENCE) for now in (59.9, 60)] == [False, True]
