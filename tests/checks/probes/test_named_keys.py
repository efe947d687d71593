"""A FAIL says whether its keys name all that is wrong, also at the most keys that a probe names."""

from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest

from checks.days import DayDifference
from checks.model import MOST_KEYS, Ruling
from checks.probes.completeness import Completeness, Promises, count_events
from checks.probes.day_counts import DayCounts, DayReading
from checks.probes.inversions import FallingTimes, Inversions
from checks.probes.offset_keys import EndKeys, OffsetKeys
from checks.probes.schema import Columns, Schema
from checks.world import LogKey
from pipeline.model import Order, Ordering, TopicPartition
from pipeline.readings import KeyTimes, Transaction
from tests.checks.world_fake import ONE

AT = datetime(2026, 3, 1, tzinfo=UTC)


def _missing_rows(number: int) -> Ruling:
    place = TopicPartition("shop.orders", 0)
    missing = tuple(LogKey(ONE, f'["{n}"]', place, n) for n in range(number))
    return OffsetKeys().judge(EndKeys((), number, missing), [])


def _fallen_keys(number: int) -> Ruling:
    found = tuple(KeyTimes(str(n), AT, AT, str(ONE), Order(1, 1, n)) for n in range(number))
    return Inversions().judge(FallingTimes(Ordering.OFFSET, found=found), [])


def _different_days(number: int) -> Ruling:
    days = (date.fromordinal(AT.toordinal() + n) for n in range(number))
    found = tuple(DayDifference(ONE, "created", day, 2, 1, (), 0) for day in days)
    return DayCounts().judge(DayReading((), number, number, found), [])


def _short_transactions(number: int) -> Ruling:
    short = [Transaction(str(n), 3, 2, 1) for n in range(number)]
    return Completeness().judge(Promises((), 9, count_events(short)), [])


def _different_columns(number: int) -> Ruling:
    different = {f"column c{n} differs": f"{ONE}:c{n}@1#differs" for n in range(number)}
    return Schema().judge(Columns(different=different), [])


@pytest.mark.parametrize(
    "fail",
    [_missing_rows, _fallen_keys, _different_days, _short_transactions, _different_columns],
    ids=["offset_keys", "inversions", "day_counts", "completeness", "schema"],
)
def test_a_fail_that_names_all_keys_is_complete_and_one_more_cuts_it_off(
    fail: Callable[[int], Ruling],
) -> None:
    whole, cut = fail(MOST_KEYS), fail(MOST_KEYS + 1)

    assert (len(whole.keys), whole.more, whole.is_cut_off) == (MOST_KEYS, 0, False)
    assert (len(cut.keys), cut.more, cut.is_cut_off) == (MOST_KEYS, 1, True)
