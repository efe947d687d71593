"""What went into a hop and did not come out is named by minute and op; what is unknown is no 0."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from checks.ledger import (
    EXTRA,
    LANDING_HOP,
    MOST_MINUTES_SHOWN,
    LandedBatch,
    LedgerEntry,
    LedgerState,
    MergedBatches,
    MirrorFacts,
    NewBase,
    Recorded,
    Residual,
    add_entries,
    copy_hop,
    count_in_flight,
    find_proof,
    group_residuals,
    minute_of,
    settle_landing,
    settle_merge,
)
from pipeline.minute_counts import NO_MINUTE, MinuteCounts
from pipeline.model import Hop
from pipeline.reports import TopicCounts

AT = datetime(2026, 3, 28, 12, 0, 30, tzinfo=UTC)
ALL = Recorded(0, 9)
Found = list[tuple[int, LedgerState, int | None]]


def landed(batch: int, counts: MinuteCounts | None) -> LandedBatch:
    return LandedBatch(batch, AT, counts)


def merged(since: int, batch: int, counts: MinuteCounts | None) -> MergedBatches:
    return MergedBatches(since, batch, AT, counts)


def shown(entries: Sequence[LedgerEntry]) -> Found:
    return [(one.minute, one.state, one.residual) for one in entries]


def test_what_was_read_as_it_was_landed_balances() -> None:
    batches = [landed(3, {"7": {"c": 2}, "8": {"c": 1}}), landed(4, {"8": {"u": 1}})]

    found = settle_merge(merged(2, 4, {"7": {"c": 2}, "8": {"c": 1, "u": 1}}), batches, ALL, 2)

    assert shown(found) == [(7, LedgerState.BALANCED, 0), (8, LedgerState.BALANCED, 0)]


@pytest.mark.parametrize(
    ("read", "missing"),
    [
        pytest.param({"7": {"c": 2}, "8": {"c": 1}}, {8: {"u": 1}}, id="an op of a minute"),
        pytest.param({"7": {"c": 2}}, {8: {"c": 1, "u": 1}}, id="a minute"),
        pytest.param({}, {7: {"c": 2}, 8: {"c": 1, "u": 1}}, id="all of it"),
        pytest.param(
            {"7": {"c": 3}, "8": {"c": 1, "u": 1}}, {7: {"c": -1}}, id="too many are named, too"
        ),
        pytest.param(
            {"7": {"c": 1}, "8": {"c": 2, "u": 1}},
            {7: {"c": 1}, 8: {"c": -1}},
            id="one minute does not make good another",
        ),
    ],
)
def test_what_is_missing_is_named_by_minute_and_op(
    read: MinuteCounts, missing: dict[int, dict[str, int]]
) -> None:
    batches = [landed(3, {"7": {"c": 2}}), landed(4, {"8": {"c": 1, "u": 1}})]

    found = settle_merge(merged(2, 4, read), batches, ALL, 2)

    wrong = [one for one in found if one.state is LedgerState.RESIDUAL]
    assert {one.minute: one.missing for one in wrong} == missing
    assert [one.residual for one in wrong] == [
        sum(map(abs, ops.values())) for ops in missing.values()
    ]


@pytest.mark.parametrize(
    ("merge", "recorded", "settled"),
    [
        pytest.param(merged(2, 4, None), ALL, 2, id="the merge did not count"),
        pytest.param(merged(2, 4, {}), Recorded(4, 9), 2, id="a batch before was not recorded"),
        pytest.param(merged(2, 4, {}), Recorded(0, 3), 2, id="the last batch was not recorded"),
        pytest.param(merged(0, 4, {}), ALL, 2, id="it read again what was compared before"),
        pytest.param(merged(4, 4, {}), ALL, 2, id="another merge read them, of which none is told"),
    ],
)
def test_what_cannot_be_compared_is_unknown_and_no_residual(
    merge: MergedBatches, recorded: Recorded, settled: int
) -> None:
    batches = [landed(3, {"7": {"c": 2}}), landed(4, {"8": {"c": 1}})]

    found = settle_merge(merge, batches, recorded, settled)

    assert {(7, LedgerState.UNKNOWN, None), (8, LedgerState.UNKNOWN, None)} <= {*shown(found)}
    assert LedgerState.RESIDUAL not in {one.state for one in found}


def test_a_batch_of_too_many_minutes_makes_its_merge_unknown() -> None:
    batches = [landed(3, None), landed(4, {"8": {"c": 1}})]

    found = settle_merge(merged(2, 4, {"8": {"c": 1}}), batches, ALL, 2)

    minutes = {minute_of(AT), 8}
    assert {(one.minute, one.state) for one in found} == {
        (minute, LedgerState.UNKNOWN) for minute in minutes
    }


def test_rows_without_a_time_count_in_the_minute_in_which_they_landed() -> None:
    batches = [landed(3, {NO_MINUTE: {"error": 2}})]

    (found,) = settle_merge(merged(2, 3, {NO_MINUTE: {"error": 1}}), batches, ALL, 2)

    assert (found.minute, found.missing) == (minute_of(AT), {"error": 1})


def test_what_no_merge_has_reached_is_in_flight_and_not_missing() -> None:
    (found,) = count_in_flight([landed(5, {"7": {"c": 2}}), landed(6, {"7": {"d": 1}})])

    assert (found.state, found.residual) == (LedgerState.IN_FLIGHT, None)
    assert found.in_flight == {"c": 2, "d": 1}


def test_a_residual_is_shown_though_more_of_its_minute_is_unknown_or_in_flight() -> None:
    lost = LedgerEntry(7, {"c": 2}, {"c": 1})

    both = lost.with_more(LedgerEntry(7, in_flight={"c": 1}, unknown=True))

    assert (both.state, both.residual) == (LedgerState.RESIDUAL, 1)


def test_batches_are_recorded_only_without_a_gap() -> None:
    known = Recorded().with_batch(0).with_batch(1)

    assert known == Recorded(0, 1)
    assert known.with_batch(3) == Recorded(3, 3)
    assert known.with_batch(1) == Recorded(1, 1)  # the change log lost that batch


LATER, SOONER = AT + timedelta(seconds=1), AT - timedelta(seconds=1)
SHARDS = ("shop/a", "shop/b")


def facts(
    *,
    asked: datetime = LATER,
    batch: int = 9,
    compared: datetime | None = None,
    looked: int = 7,
    began: int = 8,
    **complete: int,
) -> MirrorFacts:
    by_shard = {f"shop/{name}": done for name, done in complete.items()}
    known = NewBase("b1", asked, by_shard, {"shop/a": began})
    return MirrorFacts(SHARDS, batch, (known,), compared, looked)


@pytest.mark.parametrize(
    ("mirror", "proof"),
    [
        pytest.param(facts(a=8, b=9), "new base b1", id="a base that the mirror holds"),
        pytest.param(facts(a=8, b=10), "", id="a base that the mirror does not hold yet"),
        pytest.param(facts(a=8), "", id="a base of one shard"),
        pytest.param(facts(a=8, b=9, asked=AT), "", id="a base that was requested before"),
        pytest.param(facts(a=8, b=7), "", id="a base of an older batch, by a clock that was ahead"),
        pytest.param(facts(a=8, b=9, began=7), "", id="a base that began in an older batch"),
        pytest.param(MirrorFacts((), 9, (NewBase("b1", LATER, {}),)), "", id="no shard"),
        pytest.param(MirrorFacts(SHARDS, 9), "", id="nothing"),
        pytest.param(facts(compared=AT), "", id="rows that were compared before"),
        pytest.param(
            facts(compared=LATER),
            "each row was compared since 2026-03-28 12:00:31 UTC",
            id="rows that were compared since",
        ),
        pytest.param(
            facts(compared=LATER, looked=6),
            "",
            id="rows that were compared at an older batch, by a clock that was ahead",
        ),
    ],
)
def test_a_residual_is_made_good_by_what_read_all_rows_after_it_was_found(
    mirror: MirrorFacts, proof: str
) -> None:
    assert find_proof(Residual(Hop.MERGE, AT, {7: {"u": 1}}, 7), mirror) == proof


def lost(minute: int, found: datetime | None = AT, **ops: int) -> LedgerEntry:
    return LedgerEntry(minute, ops, {}, batch=4, found=found)


def test_residuals_are_grouped_by_when_they_were_found() -> None:
    whole = LedgerEntry(6, {"c": 1}, {"c": 1}, found=AT)

    found = group_residuals(
        Hop.MERGE, [replace(lost(9, u=1), batch=6), lost(7, SOONER, d=2), lost(8, c=1), whole]
    )

    assert [one.missing for one in found] == [{7: {"d": 2}}, {8: {"c": 1}, 9: {"u": 1}}]
    assert [one.batch for one in found] == [4, 6]
    assert found[1].key == f"merge@{int(AT.timestamp())}000"


@pytest.mark.parametrize("later", [LATER, SOONER, AT - timedelta(hours=1)])
def test_rows_that_are_found_later_have_another_key_though_the_clock_steps_back(
    later: datetime,
) -> None:
    both = [lost(7, c=1), lost(8, c=1)]
    known = {one.key for one in group_residuals(Hop.MERGE, both)}
    assert len(known) == 1

    for n in range(5):
        at = later + timedelta(milliseconds=n // 2)
        both[n % 2] = both[n % 2].with_more(lost(7 + n % 2, at - n * timedelta(seconds=9), c=1))
        (newest,) = [one for one in group_residuals(Hop.MERGE, both) if 7 + n % 2 in one.missing]
        assert newest.key not in known
        assert newest.at > AT
        known.add(newest.key)


def test_minutes_of_one_report_are_one_residual_though_the_clock_stepped_back() -> None:
    known = [lost(7, c=1), lost(8, c=1)]
    report = [lost(7, SOONER, c=1), lost(7, SOONER, u=1), lost(8, SOONER, c=1)]

    (found,) = group_residuals(Hop.MERGE, add_entries([*known, *report]))

    assert found.rows == 5


def test_the_text_of_a_residual_is_short_and_counts_the_rest() -> None:
    many = {minute: {"c": 1, "u": -1} for minute in range(MOST_MINUTES_SHOWN + 2)}

    text = Residual(Hop.MERGE, AT, many).text

    assert text.startswith("14 rows (c: 7, u: -7) at hop merge, of 1970-01-01 00:00, ")
    assert text.endswith("00:04 and 2 more UTC")


@pytest.mark.parametrize(
    ("hop", "number", "text"),
    [
        (Hop.COLLECTION, 1, "1 event"),
        (Hop.COLLECTION, 2, "2 events"),
        (LANDING_HOP, 1, "1 message or row"),
        (LANDING_HOP, 2, "2 messages or rows"),
        (Hop.MERGE, 1, "1 row"),
        (copy_hop("cache"), 2, "2 rows"),
    ],
)
def test_a_residual_is_in_the_units_of_its_hop(hop: str, number: int, text: str) -> None:
    assert Residual(hop, AT, {7: {"c": number}}).text.startswith(f"{text} (c: {number}) at hop ")


def test_a_minute_that_was_made_good_shows_only_what_is_lost_after_that() -> None:
    good = lost(7, u=2).with_proof("a new base")
    assert (good.state, good.missing, good.residual) == (LedgerState.MADE_GOOD, {}, 0)

    late = good.with_more(LedgerEntry(7, {"c": 1}, {"c": 1}))
    assert (late.state, late.found, late.proof) == (LedgerState.MADE_GOOD, AT, "a new base")

    again = good.with_more(lost(7, LATER, u=1))
    assert (again.state, again.missing) == (LedgerState.RESIDUAL, {"u": 1})
    assert again.found == LATER


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_a_row_too_many_of_one_merge_makes_up_for_none_that_another_lost(
    order: tuple[int, ...],
) -> None:
    parts = [
        LedgerEntry(7, {"c": 5}, {"c": 4}, found=LATER),
        LedgerEntry(7, {"c": 1}, {"c": 3}, found=LATER),
        LedgerEntry(7, {"c": 2}, {"c": 2}),
    ]

    (both,) = add_entries(parts[n] for n in order)

    assert (both.state, both.residual) == (LedgerState.RESIDUAL, 3)
    assert both.missing == {"c": 1, f"c{EXTRA}": -2}
    assert both.with_proof("a base").state is LedgerState.MADE_GOOD


@pytest.mark.parametrize("batches", [(5, 9), (9, 5)])
def test_a_base_that_began_between_two_merges_proves_no_minute_of_both(
    batches: tuple[int, int],
) -> None:
    minutes = [replace(lost(7, c=1), batch=batch) for batch in batches]
    (residual,) = group_residuals(Hop.MERGE, add_entries(minutes))

    assert residual.batch == 9
    assert find_proof(residual, facts(a=9, b=9, began=9)) == ""
    assert find_proof(residual, facts(a=10, b=10, began=10, batch=10)) == "new base b1"


def test_a_base_proves_what_landing_lost_only_if_it_began_in_a_newer_batch() -> None:
    name = "rows of t:0 in batch 7"
    lost = settle_landing(TopicCounts({name: 2}, {name: 1}, {}), 7, SOONER, AT)

    (residual,) = group_residuals(LANDING_HOP, [lost])

    assert find_proof(residual, facts(a=8, b=9, began=7)) == ""
    assert find_proof(residual, facts(a=8, b=9, began=8)) == "new base b1"


def test_a_residual_has_the_newest_batch_of_its_minutes() -> None:
    minutes = [replace(lost(7, c=1), batch=9), replace(lost(8, c=1), batch=5)]

    assert [one.batch for one in group_residuals(Hop.MERGE, minutes)] == [9]


@pytest.mark.parametrize("unknown", [(True, False), (False, True)])
def test_a_minute_is_unknown_if_a_part_of_it_is(unknown: tuple[bool, bool]) -> None:
    (both,) = add_entries(LedgerEntry(7, {"c": 1}, {"c": 1}, unknown=one) for one in unknown)

    assert (both.state, both.residual) == (LedgerState.UNKNOWN, None)


def test_two_merges_that_miss_rows_of_one_minute_have_none_too_many() -> None:
    (both,) = add_entries([lost(7, c=1), lost(7, c=2)])

    assert both.missing == {"c": 3}
