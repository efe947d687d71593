import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from alerts.causes import BEYOND_HELP
from checks.ledger import EVENTS, LedgerEntry, LedgerState, minute_of
from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes import completeness
from checks.probes.completeness import (
    Completeness,
    EventCount,
    Promises,
    count_events,
    count_minutes,
    expected_events,
)
from checks.run import Check, run_probe
from checks.world import ShardBase, Transaction
from pipeline.model import Op, Shard, Table
from pipeline.readings import NO_BASES
from tests.checks.world_fake import ONE, TABLE, TWO, Event, FakeLog, FakeWorld, in_step


@pytest.mark.parametrize(
    ("transaction", "truth"),
    [
        pytest.param(Transaction("a", 7, 7, 1), 7, id="begun once"),
        pytest.param(
            Transaction("a", 52_997, 59_990, 1, begun=2, resumed=(6_994,)), 59_990, id="begun twice"
        ),
        pytest.param(
            Transaction("a", 10, 0, 1, begun=3, resumed=(4, 6)), 18, id="begun three times"
        ),
        pytest.param(Transaction("a", 10, 0, 1, begun=2, resumed=(1,)), 10, id="from its start"),
        pytest.param(Transaction("a", 10, 0, 1, begun=2), None, id="resumed nobody knows where"),
    ],
)
def test_a_restarted_transaction_counts_its_first_run_up_to_the_second(
    transaction: Transaction, truth: int | None
) -> None:
    assert expected_events(transaction) == truth


SHORT = Transaction("s", 3, 2, 1)
OVER = Transaction("o", 3, 4, 1)
WHOLE = Transaction("w", 3, 3, 1)
VAGUE = Transaction("v", 3, 3, 1, begun=2)


def test_both_signs_are_counted() -> None:
    assert count_events([SHORT, OVER, WHOLE, VAGUE]) == EventCount(1, (SHORT,), (OVER,), 1)


@pytest.mark.parametrize(
    ("transactions", "outcome", "code", "value"),
    [
        pytest.param([WHOLE], Outcome.PASS, "", 0.0, id="complete"),
        pytest.param([], Outcome.PASS, "", 0.0, id="idle"),
        pytest.param([WHOLE, SHORT], Outcome.FAIL, "missing_events", 1.0, id="short"),
        pytest.param([OVER], Outcome.FAIL, "extra_events", -1.0, id="over"),
        pytest.param([VAGUE], Outcome.UNKNOWN, "begun_again", 0.0, id="nothing can be told"),
        pytest.param([VAGUE, WHOLE], Outcome.PASS, "", 0.0, id="the rest is complete"),
    ],
)
def test_a_tally_is_ruled_on(
    transactions: list[Transaction], outcome: Outcome, code: str, value: float
) -> None:
    reading = Promises((), 9, count_events(transactions))

    ruling = Completeness().judge(reading, [])

    assert (ruling.outcome, ruling.code, reading.value) == (outcome, code, value)
    assert outcome is not Outcome.FAIL or ruling.keys


def test_transactions_are_counted_by_the_minute_of_their_end() -> None:
    noon = datetime(2026, 3, 28, 12, tzinfo=UTC)
    at, first = noon + timedelta(minutes=9), minute_of(noon)
    some = [replace(WHOLE, at=noon), replace(SHORT, at=noon + timedelta(seconds=59))]
    later = [replace(OVER, at=noon + timedelta(minutes=1)), replace(VAGUE, at=None)]

    one, two, three = count_minutes([*some, *later], at)

    assert (one.minute, one.went_in, one.missing) == (first, {EVENTS: 6}, {EVENTS: 1})
    assert (two.minute, two.missing, two.found) == (first + 1, {EVENTS: -1}, at)
    assert (three.minute, three.state) == (first + 9, LedgerState.UNKNOWN)


@pytest.mark.parametrize("count", [-1, 2**40 + 1, 10**19])
def test_a_count_that_no_transaction_can_have_makes_its_minute_unknown(count: int) -> None:
    noon = datetime(2026, 3, 28, 12, tzinfo=UTC)
    end = replace(WHOLE, promised=count, at=noon)

    (one,) = count_minutes([replace(SHORT, at=noon), end], noon)

    assert (one.unknown, one.missing) == (True, {EVENTS: 1})


def test_each_transaction_is_counted_for_the_ledger_once_though_it_is_judged_again() -> None:
    world, counted = FakeWorld(), list[LedgerEntry]()
    write_row(world, 1)
    lose(world, (Op.CREATE, ONE, 2))
    check = Check("completeness", Completeness(), TABLE)
    for _ in range(6):
        world.catch_up()
        found = run_probe(check, world)
        counted += () if isinstance(found, NotYet) else found.counted

    assert sum(one.went_in.get(EVENTS, 0) for one in counted) == 2
    assert sum(one.missing.get(EVENTS, 0) for one in counted) == 1


def write_row(world: FakeWorld, id_: int, *, metadata: bool = True) -> None:
    world.metadata = metadata
    world.commit((Op.CREATE, ONE, id_))


def test_a_collector_that_tells_of_no_transactions_is_never_passed() -> None:
    """Changes come, idle rounds come: it stays UNKNOWN, and nobody is called for it."""
    world = FakeWorld()
    found = []
    for id_ in range(1, 4):
        write_row(world, id_, metadata=False)
        found += in_step("completeness", Completeness(), world, 2)

    assert {(each.outcome, each.code) for each in found} == {(Outcome.UNKNOWN, "unsupported")}
    assert found[0].reason == "its changes name no transaction: none can be counted"
    assert found[0].code in BEYOND_HELP


def test_what_has_not_ended_one_transaction_is_not_ruled_on() -> None:
    world, check = FakeWorld(), Check("completeness", Completeness(), TABLE)
    seen = []
    for _ in range(3):
        world.catch_up()
        seen.append(run_probe(check, world))

    assert seen[1:] == [NotYet("no transaction has ended yet")] * 2


def test_transactions_that_are_told_of_no_more_are_missed_until_they_are_again() -> None:
    world = FakeWorld()
    outcomes = []
    for id_, metadata in enumerate([True, True, False, True]):
        write_row(world, id_, metadata=metadata)
        outcomes.append(in_step("completeness", Completeness(), world, 2)[-1].outcome)

    assert outcomes == [Outcome.PASS, Outcome.PASS, Outcome.UNKNOWN, Outcome.PASS]


def test_an_idle_table_whose_transactions_were_told_passes() -> None:
    world = FakeWorld()
    write_row(world, 1)
    in_step("completeness", Completeness(), world, 2)

    assert in_step("completeness", Completeness(), world, 3)[-1].outcome is Outcome.PASS


def commit_without_end(world: FakeWorld, id_: int) -> Event:
    world.commit((Op.CREATE, ONE, id_))
    end = world.log_[-1]
    end.lost = True
    return end


def test_changes_of_which_no_transaction_ends_any_more_are_unknown_and_never_pass() -> None:
    world, rulings = FakeWorld(), []
    write_row(world, 1)
    assert outcomes(world, 2) == "P"
    for id_ in range(2, 8):
        commit_without_end(world, id_)
        world.log_[-2].lost = id_ % 2 == 1  # some events are lost too
        world.time += timedelta(minutes=3)
        rulings += in_step("completeness", Completeness(), world, 1)
    idle = outcomes(world, 3)

    assert (outcomes_of(rulings), idle) == ("PU", "UUU")
    assert "changes of source shop name transactions, and no END has" in rulings[-1].reason
    write_row(world, 9)
    assert outcomes(world, 3)[-1] == "P"


def test_one_long_transaction_is_waited_for_and_passes_once_it_ends() -> None:
    world, check = FakeWorld(), Check("completeness", Completeness(), TABLE)
    write_row(world, 1)
    outcomes(world, 2)
    end = commit_without_end(world, 2)
    world.catch_up()
    run_probe(check, world)
    world.catch_up()
    waits = run_probe(check, world)
    world.log_.remove(end)
    end.lost, end.order = False, None
    world.ends = [min(place, len(world.log_)) for place in world.ends]
    world.log_.append(end)

    assert isinstance(waits, NotYet)
    assert outcomes(world, 3)[-1] == "P"


def test_without_transactions_no_end_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, world = list[int](), FakeWorld()
    monkeypatch.setattr(FakeLog, "ended_sources", lambda _, after, until: asked.append(until))
    write_row(world, 1, metadata=False)

    assert outcomes(world, 4) == "UUU"  # also while the table is idle
    assert asked == []


def test_after_a_pause_an_end_is_waited_for_from_now_on() -> None:
    world = FakeWorld()
    write_row(world, 1)
    outcomes(world, 2)
    commit_without_end(world, 2)
    world.catch_up()
    run_probe(Check("completeness", Completeness(), TABLE), world)
    world.time += timedelta(hours=3)
    world.catch_up()

    assert isinstance(run_probe(Check("completeness", Completeness(), TABLE), world), NotYet)
    world.time += timedelta(minutes=11)
    assert outcomes(world, 1) == "U"


def test_an_end_that_is_not_judged_yet_is_not_waited_for() -> None:
    world, check = FakeWorld(), Check("completeness", Completeness(), TABLE)
    write_row(world, 1)
    outcomes(world, 2)
    commit_without_end(world, 2)
    world.catch_up()
    run_probe(check, world)
    world.catch_up()
    assert isinstance(run_probe(check, world), NotYet)
    commit_without_end(world, 3)
    world.catch_up()
    assert isinstance(run_probe(check, world), NotYet)
    world.time += timedelta(hours=3)  # a pause; then this lands
    write_row(world, 4)
    world.catch_up()

    found = run_probe(check, world)
    assert isinstance(found, Verdict)
    assert found.ruling.outcome is Outcome.PASS


def test_an_end_that_landed_before_its_changes_is_not_waited_for() -> None:
    world = FakeWorld()
    write_row(world, 1)
    outcomes(world, 2)
    world.commit((Op.CREATE, ONE, 2))
    world.log_[-2:] = reversed(world.log_[-2:])
    world.land(most=1)
    in_step("completeness", Completeness(), world, 2)
    world.time += timedelta(hours=1)

    assert outcomes(world, 3) == "PPP"


def test_a_loss_fails_also_while_no_transaction_ends() -> None:
    world = FakeWorld()
    write_row(world, 1)
    outcomes(world, 2)
    lose(world, (Op.CREATE, ONE, 2))
    outcomes(world, 2)
    commit_without_end(world, 3)
    outcomes(world, 2)
    world.time += timedelta(hours=1)

    assert outcomes(world, 2) == "FF"


def outcomes_of(rulings: list[Ruling]) -> str:
    return "".join(str(each.outcome)[0].upper() for each in rulings)


def lose(world: FakeWorld, *changes: tuple[str, Shard, int]) -> None:
    """Commit *changes* that all are promised, of which none ever lands."""
    before = len(world.log_)
    world.commit(*changes)
    for event in world.log_[before:]:
        event.lost = event.shard is not None


def outcomes(world: FakeWorld, rounds: int) -> str:
    return outcomes_of(in_step("completeness", Completeness(), world, rounds))


def test_what_was_lost_below_a_new_base_ends_by_being_seen_good() -> None:
    world = FakeWorld()
    write_row(world, 1)
    before = outcomes(world, 2)
    for id_ in range(2, 32):  # more than could be waived one by one
        lose(world, (Op.CREATE, ONE, id_))
    lost = outcomes(world, 3)

    world.snapshot(ONE)

    assert (before, lost, outcomes(world, 3)) == ("P", "PFF", "PPP")


def test_a_wrong_batch_is_counted_once_beside_the_rest_that_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completeness, "MOST_WRONG", 2)
    world = FakeWorld()
    outcomes(world, 2)
    for shard in (ONE, TWO, TWO):
        lose(world, (Op.CREATE, shard, len(world.log_)))
        world.catch_up()
    outcomes(world, 2)

    world.snapshot(ONE)

    assert in_step("completeness", Completeness(), world, 1)[-1].reason.startswith("2 transactions")


def test_a_loss_of_a_shard_without_a_new_base_stays() -> None:
    world = FakeWorld()
    in_step("completeness", Completeness(), world, 2)
    lose(world, (Op.CREATE, ONE, 1), (Op.CREATE, TWO, 1))
    in_step("completeness", Completeness(), world, 2)

    world.snapshot(ONE)
    (other,) = in_step("completeness", Completeness(), world, 1)
    world.snapshot(TWO)

    assert other.reason == f"1 transactions: {other.keys[0]} promised 1 events, 0 landed"
    assert outcomes(world, 2) == "PP"


def test_what_is_lost_above_a_base_is_missed() -> None:
    world = FakeWorld()
    in_step("completeness", Completeness(), world, 2)
    world.snapshot(ONE)
    lose(world, (Op.CREATE, ONE, 1))

    assert outcomes(world, 3)[-1] == "F"


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_of_more_wrong_batches_than_are_counted_again_none_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(completeness, "MOST_WRONG", most)
    world = FakeWorld()
    outcomes(world, 2)
    for shard in (ONE, ONE, ONE, TWO, TWO):
        lose(world, (Op.CREATE, shard, len(world.log_)))
        outcomes(world, 1)
    outcomes(world, 2)

    world.snapshot(ONE)
    still = outcomes(world, 3)
    world.snapshot(TWO)

    assert (still, outcomes(world, 2)) == ("FFF", "PP")


def drop_days(world: FakeWorld) -> None:
    """The change log drops all days but the newest, of one batch."""
    world.catch_up()
    world.dropped = world.landed_batch() - 1


def find_wrong_row(world: FakeWorld) -> None:
    """Row 2 never lands, and that is found."""
    write_row(world, 1)
    in_step("completeness", Completeness(), world, 2)
    lose(world, (Op.CREATE, ONE, 2))
    assert outcomes(world, 3) == "PFF"


def test_a_loss_whose_day_was_dropped_ends_by_new_bases_of_all_shards() -> None:
    world = FakeWorld()
    find_wrong_row(world)
    drop_days(world)
    write_row(world, 3)
    (*_, stays) = in_step("completeness", Completeness(), world, 4)
    world.snapshot(ONE)
    one = outcomes(world, 3)
    world.snapshot(TWO)

    assert (stays.outcome, stays.code) == (Outcome.FAIL, "missing_events")
    assert stays.reason == (
        f"1 transactions: {stays.keys[0]} promised 1 events, 0 landed; the change log no longer has"
        " 1 of them, so they cannot be counted again; run `sluice bootstrap shop.orders --reason"
        " ...`, or waive them"
    )
    assert (one, outcomes(world, 3)) == ("FFF", "PPP")


def drop_unjudged(world: FakeWorld) -> None:
    """A row is lost, and the days of its batch and later ones go before they are judged."""
    write_row(world, 1)
    in_step("completeness", Completeness(), world, 3)
    lose(world, (Op.CREATE, ONE, 2))
    for id_ in range(3, 8):
        write_row(world, id_)
        world.catch_up()
    drop_days(world)


def test_ends_that_were_dropped_before_they_were_judged_are_unknown_until_new_bases() -> None:
    world = FakeWorld()
    drop_unjudged(world)
    before = world.memory["completeness"]["after"]
    (first, *_, stays) = in_step("completeness", Completeness(), world, 4)
    write_row(world, 9)
    later = outcomes(world, 3)
    world.snapshot(ONE)
    one = outcomes(world, 3)
    world.snapshot(TWO)

    assert first == stays
    assert (first.outcome, first.code) == (Outcome.UNKNOWN, "behind")
    assert first.reason == (
        f"the change log dropped {world.dropped - before} batches, the newest {world.dropped},"
        " before the transactions that ended in them were counted; run `sluice bootstrap"
        " shop.orders --reason ...`"
    )
    assert (later, one, outcomes(world, 3)) == ("UUU", "UUU", "PPP")


def test_a_loss_beside_ends_that_were_dropped_fails() -> None:
    world = FakeWorld()
    find_wrong_row(world)
    drop_unjudged(world)

    assert outcomes(world, 3) == "FFF"


def test_ends_that_were_dropped_stay_unknown_in_a_log_that_was_replaced() -> None:
    world = FakeWorld()
    drop_unjudged(world)
    assert outcomes(world, 3) == "UUU"
    world.replace_lake()
    world.dropped = -1
    write_row(world, 9)

    assert set(outcomes(world, 5)) == {"U"}


def test_a_base_that_began_before_the_loss_does_not_end_it() -> None:
    world = FakeWorld()
    find_wrong_row(world)
    drop_days(world)
    outcomes(world, 1)
    for shard in (ONE, TWO):
        world.snapshot(shard)
        world.based[str(shard)] = replace(world.based[str(shard)], since=world.dropped - 4)

    assert outcomes(world, 3) == "FFF"


def test_a_loss_whose_end_is_gone_for_an_unknown_reason_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    find_wrong_row(world)
    monkeypatch.setattr(FakeLog, "transactions", lambda *_: ())

    assert outcomes(world, 3) == "FFF"
    for shard in (ONE, TWO):
        world.snapshot(shard)
    assert outcomes(world, 3) == "PPP"


def test_more_losses_than_are_counted_again_stay_when_their_day_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completeness, "MOST_WRONG", 1)
    world = FakeWorld()
    outcomes(world, 2)
    for id_ in range(3):
        lose(world, (Op.CREATE, ONE, id_))
        outcomes(world, 1)
    outcomes(world, 2)
    drop_days(world)

    (*_, last) = in_step("completeness", Completeness(), world, 3)

    assert last.reason.startswith("3 transactions")
    for shard in (ONE, TWO):
        world.snapshot(shard)
    assert outcomes(world, 3) == "PPP"


def test_a_loss_outlives_a_change_log_that_was_replaced() -> None:
    world = FakeWorld()
    find_wrong_row(world)
    world.replace_lake()
    write_row(world, 3)
    stays = outcomes(world, 4)
    for shard in (ONE, TWO):
        world.snapshot(shard)

    assert (stays, outcomes(world, 2)) == ("FFF", "PP")


def put_back(world: FakeWorld, batch: int) -> None:
    """The change log loses its batches above *batch*."""
    world.ends = world.ends[: batch + 1]
    world.applied = batch
    world.outdated = {*world.memory}


def test_a_loss_of_a_log_that_was_put_back_ends_once_all_of_it_has_landed() -> None:
    world = FakeWorld()
    write_row(world, 1)
    in_step("completeness", Completeness(), world, 2)
    before = world.landed_batch()
    lose(world, (Op.CREATE, ONE, 2))
    lost = outcomes(world, 3)
    put_back(world, before)
    (waits,) = [run_probe(Check("completeness", Completeness(), TABLE), world)]
    for event in world.log_:
        event.lost = False

    assert (lost, outcomes(world, 3)) == ("PFF", "FPP")
    assert isinstance(waits, NotYet)


def test_batches_that_landed_since_a_change_log_was_put_back_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    write_row(world, 1)
    before = in_step("completeness", Completeness(), world, 4)
    again = world.landed_batch() - 1
    put_back(world, again)
    monkeypatch.setattr(FakeWorld, "incarnation", lambda _, batch: 1 + (batch > again))
    world.memory["completeness"] = {**world.memory["completeness"], "incarnation": 1}
    lose(world, (Op.CREATE, ONE, 2))
    for _ in range(5):
        world.catch_up()  # the loss is no longer in the newest batch when it is asked

    assert before[-1].outcome is Outcome.PASS
    assert outcomes(world, 3) == "FF"


def land_again(world: FakeWorld, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """The log is put back to *batch*, and what lands above it is of another incarnation."""
    put_back(world, batch)
    monkeypatch.setattr(FakeWorld, "incarnation", lambda _, one: 1 + (one > batch))
    world.memory["completeness"] = {**world.memory["completeness"], "incarnation": 1}


def test_judged_batches_that_landed_again_since_a_log_was_put_back_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    write_row(world, 1)
    assert set(outcomes(world, 8)) == {"P"}
    land_again(world, monkeypatch, world.memory["completeness"]["after"] - 4)
    lose(world, (Op.CREATE, ONE, 2))
    for _ in range(8):
        world.catch_up()

    assert outcomes(world, 3) == "FF"


def test_a_log_of_an_unknown_incarnation_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    find_wrong_row(world)
    after = world.memory["completeness"]["after"]
    world.outdated = {"completeness"}
    monkeypatch.setattr(FakeWorld, "incarnation", lambda *_: 2)
    run_probe(Check("completeness", Completeness(), TABLE), world)

    assert world.memory["completeness"]["after"] == after


def test_the_last_common_batch_is_looked_for_in_so_many_batches_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completeness, "MOST_AGAIN", 3)
    world = FakeWorld()
    write_row(world, 1)
    outcomes(world, 12)
    land_again(world, monkeypatch, 1)
    for _ in range(12):
        world.land()
    until = world.memory["completeness"]["until"]
    run_probe(Check("completeness", Completeness(), TABLE), world)

    assert world.memory["completeness"]["after"] == until - 3


def test_a_loss_below_the_batch_that_a_log_was_put_back_to_is_counted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    find_wrong_row(world)
    ((*_, batch, _),) = world.memory["completeness"]["lost"]
    outcomes(world, 4)
    land_again(world, monkeypatch, batch)
    run_probe(Check("completeness", Completeness(), TABLE), world)

    assert [one[3] for one in world.memory["completeness"]["lost"]] == [batch]


def test_an_end_is_not_judged_before_the_mirror_is_past_it() -> None:
    """Its rows may land in a later batch, from another topic."""
    world, check = FakeWorld(), Check("completeness", Completeness(), TABLE)
    world.catch_up()
    run_probe(check, world)
    lose(world, (Op.CREATE, ONE, 1))
    world.catch_up()
    run_probe(check, world)
    world.land()
    early = run_probe(check, world)
    for event in world.log_:
        event.lost = False

    assert isinstance(early, NotYet)
    assert outcomes(world, 2) == "PP"


def test_batches_that_were_dropped_are_not_counted(asked: list[range]) -> None:
    world = FakeWorld()
    drop_unjudged(world)
    asked.clear()

    outcomes(world, 4)

    assert min(one.start for one in asked) == world.dropped


@pytest.mark.parametrize(("early", "outcome"), [(0, "U"), (-1, "P")])
def test_a_base_has_what_was_dropped_only_if_a_whole_batch_lies_between(
    early: int, outcome: str
) -> None:
    world = FakeWorld()
    drop_unjudged(world)
    assert outcomes(world, 1) == "U"
    for shard in (ONE, TWO):
        world.snapshot(shard)
        since = world.dropped + 1 - early
        world.based[str(shard)] = replace(world.based[str(shard)], since=since)

    assert set(outcomes(world, 3)) == {outcome}


def test_no_more_wrong_batches_are_counted_again_than_fit(
    monkeypatch: pytest.MonkeyPatch, asked: list[range]
) -> None:
    monkeypatch.setattr(completeness, "MOST_WRONG", 2)
    world = FakeWorld()
    outcomes(world, 2)
    for id_ in range(5):
        lose(world, (Op.CREATE, ONE, id_))
        outcomes(world, 1)
    outcomes(world, 2)
    asked.clear()

    assert outcomes(world, 1) == "F"
    assert len(world.memory["completeness"]["wrong"]) == 2
    assert max(map(len, asked)) == 1  # two batches, and the new one


PARTS = 10_000


def stand_still(world: FakeWorld, *lost: int) -> None:
    """Some 10,000 batches land before the mirror goes on; of *lost* ones the row never lands."""
    write_row(world, 1)
    in_step("completeness", Completeness(), world, 2)
    for id_ in range(2, PARTS + 2):
        (lose if id_ in lost else FakeWorld.commit)(world, (Op.CREATE, ONE, id_))
        world.land()
    in_step("completeness", Completeness(), world, 1)  # what had landed before it stood still


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The batches of each count."""
    found, count = list[range](), FakeLog.transactions

    def noted(
        log: FakeLog,
        table: Table,
        after: int,
        until: int,
        bases: Mapping[str, ShardBase] = NO_BASES,
    ) -> tuple[Transaction, ...]:
        found.append(range(after, until))
        return count(log, table, after, until, bases)

    monkeypatch.setattr(FakeLog, "transactions", noted)
    return found


def test_what_landed_while_a_table_stood_still_is_judged_in_parts_and_passes_after_the_last(
    asked: list[range],
) -> None:
    world, check = FakeWorld(), Check("completeness", Completeness(), TABLE)
    stand_still(world)
    asked.clear()
    found = list[Verdict]()
    while not found or found[-1].ruling.outcome is Outcome.UNKNOWN:
        world.catch_up()
        verdict = run_probe(check, world)
        assert isinstance(verdict, Verdict)
        found.append(verdict)

    *parts, last = found
    assert len(parts) == PARTS // completeness.MOST_BATCHES
    assert {(one.ruling.code, one.suspicious) for one in parts} == {("behind", True)}
    assert parts[0].ruling.reason == (
        f"transactions are judged up to batch {asked[0].stop}, not yet up to {asked[-1].stop}"
    )
    assert (last.ruling.outcome, last.suspicious) == (Outcome.PASS, False)
    assert max(map(len, asked)) == completeness.MOST_BATCHES
    assert sum(map(len, asked)) == asked[-1].stop - asked[0].start  # each batch once
    assert sum(each.went_in[EVENTS] for one in found for each in one.counted) >= PARTS


def test_a_part_has_no_more_ends_than_fit(
    monkeypatch: pytest.MonkeyPatch, asked: list[range]
) -> None:
    monkeypatch.setattr(completeness, "MOST_ENDS", 300)
    world = FakeWorld()
    stand_still(world)
    asked.clear()

    assert set(outcomes(world, 5)) == {"U"}
    assert {len(one) for one in asked} == {300}


@pytest.mark.parametrize("lost", [2, PARTS // 2, PARTS + 1], ids=["first", "middle", "last"])
def test_a_row_that_was_lost_in_any_part_is_found_and_stays(lost: int) -> None:
    world = FakeWorld()
    stand_still(world, lost)

    found = outcomes(world, 14)

    assert found == "U" * found.index("F") + "F" * (14 - found.index("F"))


def test_after_a_restart_the_next_part_is_judged(asked: list[range]) -> None:
    world = FakeWorld()
    stand_still(world)
    before = outcomes(world, 4)
    again = FakeWorld(**vars(world) | {"memory": json.loads(json.dumps(world.memory))})
    asked.clear()

    assert (before, outcomes(again, 7)) == ("UUUU", "UUUUUUP")
    assert asked[0].start > 4 * completeness.MOST_BATCHES


def test_more_wrong_batches_than_one_part_has_are_counted_again_in_parts(
    monkeypatch: pytest.MonkeyPatch, asked: list[range]
) -> None:
    monkeypatch.setattr(completeness, "MOST_WRONG", 2)
    monkeypatch.setattr(completeness, "MOST_BATCHES", 5)
    world = FakeWorld()
    outcomes(world, 2)
    for id_ in range(1, 30):
        lose(world, (Op.CREATE, ONE if id_ < 28 else TWO, id_))
        world.land()
    lost = outcomes(world, 12)
    world.snapshot(ONE)
    asked.clear()
    still = outcomes(world, 12)
    world.snapshot(TWO)

    assert (lost.strip("P"), still[-1], outcomes(world, 12)[-1]) == ("F" * 11, "F", "P")
    assert "P" not in still
    assert max(map(len, asked)) <= 5
