"""Landing and merges count the same rows by minute and op, each by what it saw itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipeline.changelog.table import Stamp
from pipeline.landing.batch_stats import gather_stats, tally_rows
from pipeline.landing.task import slim_columns
from pipeline.minute_counts import (
    MOST_MINUTES,
    NO_MINUTE,
    MinuteCounts,
    add_counts,
    add_tables,
    bounded,
    count_minutes,
)
from pipeline.model import Op
from tests.builders.change_log import take_out
from tests.builders.lake import NOW, LocalLake, row, stamped

FIRST, NEXT = NOW - timedelta(minutes=2), NOW - timedelta(minutes=1)
STAMP = Stamp("main", 0, NOW)


def minute(instant: datetime) -> str:
    return str(int(instant.timestamp()) // 60)


def landed(*rows: dict[str, Any]) -> MinuteCounts:
    """What landing counts of *rows*, which two tasks may have read."""
    runs = [
        tally_rows(pa.Table.from_batches([slim_columns(stamped([one], STAMP))])) for one in rows
    ]
    if all(one["topic"] for one in rows):
        return gather_stats(runs, {}, {}).minutes.get("db.t", {})
    return add_tables(one.minutes for one in runs).get("db.t", {})


def test_rows_are_counted_by_minute_and_op_and_rows_without_a_topic_are_not() -> None:
    found = landed(
        row(Op.CREATE, 1, 1, "a", at=FIRST),
        row(Op.CREATE, 2, 2, "a", at=FIRST + timedelta(seconds=3)),
        row(Op.UPDATE, 3, 1, "b", at=NEXT),
        row(Op.TOMBSTONE, 4, None, at=None),
        row(Op.READ, 5, 9, "backfilled", at=FIRST, topic=None),
        row(Op.CREATE, 6, 9, "of no table", at=FIRST, table=None),
        row(Op.HEARTBEAT, 7, 9, "7", at=FIRST),
    )

    assert found == {
        minute(FIRST): {"c": 2},
        minute(NEXT): {"u": 1},
        NO_MINUTE: {"tombstone": 1},
    }


def test_a_minute_before_1970_is_a_minute() -> None:
    at = datetime(1969, 12, 31, 23, 59, 1, tzinfo=UTC)

    rows = pa.Table.from_batches([stamped([row(Op.CREATE, 1, 1, "a", at=at)], STAMP)])

    assert count_minutes(rows) == {"db.t": {"-1": {"c": 1}}}


@pytest.mark.parametrize("at", [2**62, -(2**62)], ids=["far ahead", "long ago"])
def test_a_time_that_no_calendar_has_counts_as_none(at: int) -> None:
    (batch,) = pa.Table.from_batches([stamped([row(Op.CREATE, 1, 1, "a")], STAMP)]).to_batches()
    place = batch.schema.get_field_index("at")
    times = pa.array([at]).cast(batch.schema.field(place).type)
    rows = pa.Table.from_batches([batch.set_column(place, batch.schema.field(place), times)])

    assert count_minutes(rows) == {"db.t": {NO_MINUTE: {"c": 1}}}


@pytest.mark.parametrize(
    "at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)], ids=str
)
def test_the_first_and_the_last_minute_of_the_calendar_are_minutes(at: datetime) -> None:
    rows = pa.Table.from_batches([stamped([row(Op.CREATE, 1, 1, "a", at=at)], STAMP)])

    (found,) = count_minutes(rows)["db.t"]

    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=int(found)) == at.replace(
        second=0, microsecond=0
    )


def test_counts_of_too_many_minutes_are_unknown() -> None:
    few: MinuteCounts = {str(one): {"c": 1} for one in range(MOST_MINUTES)}

    assert bounded(few) == few
    assert bounded({**few, "-1": {"c": 1}}) is None


def test_counts_add_up() -> None:
    assert add_counts([{"1": {"c": 1}}, {"1": {"c": 2, "d": 1}, "2": {"u": 1}}]) == {
        "1": {"c": 3, "d": 1},
        "2": {"u": 1},
    }


ROWS = (
    row(Op.CREATE, 2, 1, "a", at=FIRST),
    row(Op.UPDATE, 3, 1, "b", at=NEXT),
    row(Op.UPDATE, 4, 1, "c", at=NEXT),
    row(Op.CREATE, 5, 2, "d", at=NEXT),
    row(Op.TOMBSTONE, 6, None, at=None),
    row(Op.ERROR, 7, None, at=None),
)


def test_a_merge_reads_by_minute_what_landing_counted_and_explains_it(lake: LocalLake) -> None:
    lake.land(*ROWS)
    account = lake.apply().account

    assert account.minutes == landed(*ROWS)
    assert account.explained == {
        minute(FIRST): {"superseded": 1},
        minute(NEXT): {"superseded": 1, "applied": 2},
        NO_MINUTE: {"tombstone": 1, "quarantined": 1},
    }


def test_what_is_explained_is_as_much_as_was_read(lake: LocalLake) -> None:
    lake.land(*ROWS)
    lake.apply()
    late = (
        row(Op.UPDATE, 3, 1, "b", at=NEXT),
        row(Op.UPDATE, 4, 1, "c", at=NEXT),
        row(Op.DELETE, 8, 2, "d", at=NEXT),
        row(Op.TRUNCATE, 1, None, at=FIRST),
    )
    lake.land(*late)
    account = lake.apply().account

    assert account.minutes == landed(*late)
    assert account.explained is not None
    assert {at: sum(terms.values()) for at, terms in account.explained.items()} == {
        at: sum(ops.values()) for at, ops in landed(*late).items()
    }
    assert account.explained[minute(NEXT)]["redelivered"] == 1


def test_the_next_process_reports_the_counts_with_the_batch_it_was_read_after(
    lake: LocalLake,
) -> None:
    lake.play((row(Op.CREATE, 2, 1, "a", at=FIRST),))
    lake.land(row(Op.UPDATE, 3, 1, "b", at=NEXT))
    merged = lake.apply()
    lake.reopen()

    (again,) = lake.run()

    assert (again.since, again.batch) == (merged.since, merged.batch) == (0, 1)
    assert again.account.minutes == merged.account.minutes == {minute(NEXT): {"u": 1}}


def test_a_row_that_is_taken_out_of_the_change_log_is_not_counted_by_the_merge(
    lake: LocalLake,
) -> None:
    lake.land(*ROWS)
    take_out(lake.log, "offset", 5)

    account = lake.apply().account

    assert account.residual == 0
    assert account.minutes == landed(*(one for one in ROWS if one["offset"] != 5))
