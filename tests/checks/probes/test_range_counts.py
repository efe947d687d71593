from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from checks.counting import (
    MOST_OPEN,
    Differences,
    OpenRange,
    SuspectState,
    differing_ranges,
    rule_differences,
)
from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes.range_counts import RangeCounts
from checks.probes.values import Values
from checks.run import Check, run_probe
from pipeline.errors import SluiceError, TooManyRowsError, UnreachableError
from pipeline.model import Op
from pipeline.sources.budget import Allowance
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld

VALUED = {"id": "bigint", "v": "int"}
KEY = "shop/shop_00.orders:"
PROBE = RangeCounts(block_rows=16, newest=1, rotating=2, leaf=4, suspects=20)


def filled(*ids: int) -> FakeWorld:
    """A table whose first shard holds *ids*, in step."""
    world = FakeWorld()
    world.commit(*[(Op.CREATE, ONE, id_) for id_ in ids])
    world.catch_up()
    return world


def rulings(world: FakeWorld, rounds: int, probe: RangeCounts = PROBE) -> list[Ruling]:
    found = []
    for _ in range(rounds):
        world.catch_up()
        answer = run_probe(Check("range_counts", probe, TABLE), world)
        if isinstance(answer, Verdict):
            found.append(answer.ruling)
    return found


def first_failure(world: FakeWorld, rounds: int) -> Ruling:
    found = [each for each in rulings(world, rounds) if each.outcome is Outcome.FAIL]
    assert found
    return found[0]


def test_f28_a_mirror_that_was_emptied_fails_though_its_source_is_too_large_to_count() -> None:
    world = filled(*range(1, 2000))
    assert rulings(world, 3)[-1].outcome is Outcome.PASS
    world.allowed = 100

    world.copy[ONE].clear()
    failed = first_failure(world, 6)

    assert failed.code == "missing_rows"
    assert failed.keys[0].startswith(KEY)
    assert "more rows differ" in failed.reason


@pytest.mark.parametrize(
    "purged",
    [
        pytest.param(range(1, 5900), id="all but the newest"),
        pytest.param(range(1, 6000, 2), id="each second row"),
        pytest.param(range(1, 6000), id="all"),
    ],
)
def test_f28_a_purge_that_no_log_shows_is_named_by_few_questions(purged: range) -> None:
    world = filled(*range(1, 6000))
    rulings(world, 2)
    before = world.asked

    world.rows[ONE] -= set(purged)
    failed = first_failure(world, 6)

    assert failed.code == "extra_rows"
    assert failed.keys[0].startswith(KEY)
    assert (world.asked - before) / 6 < 400


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(TooManyRowsError("too many"), id="refused"),
        pytest.param(UnreachableError("source:shop: slow: ended"), id="ended at its time limit"),
    ],
)
def test_f28_a_dense_block_among_wide_ones_is_counted_by_parts(refusal: SluiceError) -> None:
    world = filled(*range(1, 400), 2**20)
    world.allowed, world.refusal = 50, refusal
    del world.copy[ONE][7]

    failed = first_failure(world, 200)

    assert failed.keys == (f"{KEY}7",)


def test_a_block_that_is_refused_at_its_narrowest_is_unknown() -> None:
    world = filled(*range(1, 20))
    world.allowed = 0

    (found,) = rulings(world, 1)

    assert (found.outcome, found.code) == (Outcome.UNKNOWN, "unprovable")


def test_f28_every_part_of_a_dense_block_has_its_turn() -> None:
    world = filled(*range(1, 400), 2**20)
    world.allowed = 50
    for id_ in (7, 130, 260, 390):
        del world.copy[ONE][id_]

    failed = {key for each in rulings(world, 150) for key in each.keys}

    assert failed == {f"{KEY}{id_}" for id_ in (7, 130, 260, 390)}


def test_f28_a_finding_is_told_though_the_next_count_fails_and_stays_one() -> None:
    world = filled(*range(1, 20))
    world.rows[ONE].add(500)
    check = Check("range_counts", PROBE, TABLE)
    for _ in range(2):
        assert isinstance(run_probe(check, world), NotYet)
        world.catch_up()

    def falls_silent() -> None:
        world.error = UnreachableError("source:shop: loaded: 65 threads run, 64 may")

    world.meanwhile = [falls_silent]  # the suspects are the last that it answers for
    told = run_probe(check, world)
    silent = run_probe(check, world)
    world.error = None

    assert isinstance(told, Verdict)
    assert (told.ruling.code, told.ruling.keys) == ("missing_rows", (f"{KEY}500",))
    assert isinstance(silent, Verdict)
    assert silent.ruling.code == "unreachable"
    assert rulings(world, 4)[-1].keys == (f"{KEY}500",)


def test_a_row_doubled_more_often_than_a_list_is_long_is_named() -> None:
    world = filled(*range(1, 20))

    world.copy[ONE][7] = 1000

    assert first_failure(world, 8).code == "doubled_rows"


def test_a_guilty_range_that_grew_too_large_does_not_keep_the_others_from_being_counted() -> None:
    world = filled(*range(100_000, 100_200))
    world.copy[ONE][5] = 1
    assert first_failure(world, 6).keys == (f"{KEY}5",)

    world.commit(*[(Op.CREATE, ONE, id_) for id_ in range(6, 600)])
    world.allowed = 100

    assert rulings(world, 20)[-1].keys == (f"{KEY}5",)


def test_ids_found_are_asked_again_but_no_more_than_may_be() -> None:
    world = filled(*range(1, 3000))
    rulings(world, 2)

    world.rows[ONE] -= set(range(1, 3000, 2))
    rulings(world, 30)

    assert len(world.memory["range_counts"]["found"]) <= PROBE.suspects


def test_f104_there_is_no_pass_while_rows_that_were_not_named_are_lost() -> None:
    world, probe = filled(*range(1, 3000)), replace(PROBE, block_rows=64)
    lost = {*range(900, 960, 2), *range(1030, 1094, 2)}  # 62 in two blocks; 20 are asked at once
    for id_ in lost:
        del world.copy[ONE][id_]
    while not any(one.outcome is Outcome.FAIL for one in rulings(world, 1, probe)):
        assert world.asked < 10_000

    for _ in range(20):  # the runbook's way: repair what is named, look again
        seen = rulings(world, 8, probe)
        assert all(one.outcome is not Outcome.PASS for one in seen)
        named = {key for one in seen for key in one.keys}
        for id_ in [one for one in lost if f"{KEY}{one}" in named]:
            world.copy[ONE][id_] = 1
            lost.discard(id_)
        if not lost:
            break

    assert not lost
    assert rulings(world, 8, probe)[-1].outcome is Outcome.PASS


def test_f104_a_finding_that_is_cut_off_says_so() -> None:
    world = filled(*range(1, 2000))
    for id_ in range(500, 600):
        del world.copy[ONE][id_]

    failed = first_failure(world, 200)

    assert failed.keys
    assert failed.more > 0


def test_f104_what_differed_is_not_forgotten_with_the_batches_of_the_change_log() -> None:
    world = filled(*range(1, 2000))
    for id_ in range(300, 1900, 40):
        del world.copy[ONE][id_]
    assert first_failure(world, 100).keys

    world.outdated.add("range_counts")
    world.catch_up()
    run_probe(Check("range_counts", PROBE, TABLE), world)
    world.outdated.clear()

    assert world.memory["range_counts"]["open"]
    assert all(one.outcome is not Outcome.PASS for one in rulings(world, 20))


def test_f104_a_range_that_was_found_equal_is_counted_no_more() -> None:
    world = filled(*range(1, 3000))
    del world.copy[ONE][1500]
    assert first_failure(world, 400).keys
    assert world.memory["range_counts"]["open"]

    world.copy[ONE][1500] = 1
    rulings(world, 6)

    assert not world.memory["range_counts"]["open"]


def test_f104_a_range_that_differed_is_counted_also_once_its_shard_is_empty() -> None:
    world = filled(*range(1, 3000))
    del world.copy[ONE][1500]
    assert first_failure(world, 400).keys

    world.commit(*[(Op.DELETE, ONE, id_) for id_ in range(1, 3000)])
    rulings(world, 6)

    assert not world.memory["range_counts"]["open"]


def test_f104_ranges_too_many_to_remember_become_wider_and_none_is_forgotten() -> None:
    left = {KEY[:-1]: tuple(OpenRange((at, at + 1), 1) for at in range(0, 5000, 2))}

    opened = differing_ranges({}, left)[KEY[:-1]]

    assert len(opened) <= MOST_OPEN
    assert sum(one.rows for one in opened) == 2500
    assert all(any(a.span[0] <= at < a.span[1] for a in opened) for at in range(0, 5000, 2))


def test_what_was_not_asked_for_is_no_pass() -> None:
    world = filled(*range(1, 600))
    check = Check("range_counts", replace(PROBE, block_rows=4096), TABLE)
    assert isinstance(run_probe(check, world), NotYet)
    world.commit(*[(Op.DELETE, ONE, id_) for id_ in range(1, 300)])
    world.catch_up()
    world.commit(*[(Op.DELETE, ONE, id_) for id_ in range(300, 600)])

    assert run_probe(check, world) == NotYet("asking 20 ids again", suspicious=True)
    world.catch_up()
    answer = run_probe(check, world)

    assert isinstance(answer, Verdict)
    assert answer.ruling.code == "not_all_asked"
    assert rulings(world, 2)[-1].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("reading", "outcome", "code"),
    [
        pytest.param(Differences((), "all"), Outcome.PASS, "", id="alike"),
        pytest.param(Differences((), "", more=3), Outcome.UNKNOWN, "not_all_asked", id="too many"),
        pytest.param(Differences((), "", moving=1), Outcome.UNKNOWN, "in_motion", id="moving"),
        pytest.param(
            Differences((), "", (((TWO, 4), SuspectState.EXTRA),), 1, 3),
            Outcome.FAIL,
            "extra_rows",
            id="found comes first",
        ),
        pytest.param(
            Differences((), "", (((TWO, 4), SuspectState.EXTRA), ((ONE, 9), SuspectState.MISSING))),
            Outcome.FAIL,
            "missing_rows",
            id="missing is named before extra",
        ),
    ],
)
def test_a_cycle_is_ruled_on_by_what_was_confirmed(
    reading: Differences, outcome: Outcome, code: str
) -> None:
    ruling = rule_differences(reading)

    assert (ruling.outcome, ruling.code) == (outcome, code)
    assert ruling.reason or outcome is Outcome.PASS


class SharedCounts:
    """A table with both checks: `values` looks, `range_counts` takes what that has counted."""

    def __init__(self) -> None:
        self.world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
        self.world.alter(ONE, v="int")
        self.world.alter(TWO, v="int")
        self.world.commit(*[(Op.CREATE, ONE, id_) for id_ in range(1, 200)])
        self.world.catch_up()

    def look(self, **settings: Any) -> object:
        """One round of `values`."""
        self.world.catch_up()
        probe = Values(**{"block_rows": 16, **settings})
        return run_probe(Check("values", probe, TABLE), self.world)

    def count(self) -> tuple[Ruling | None, int]:
        """One round of `range_counts`: its ruling, and how many ranges the source counted."""
        before = self.world.asked
        answer = run_probe(Check("range_counts", PROBE, TABLE), self.world)
        ruling = answer.ruling if isinstance(answer, Verdict) else None
        return ruling, self.world.asked - before


def test_a_table_with_both_checks_is_read_once() -> None:
    table, passed = SharedCounts(), 0
    for _ in range(8):
        table.look()
        ruling, asked = table.count()
        assert asked == 0
        passed += ruling is not None and ruling.outcome is Outcome.PASS

    assert passed >= 3


def test_what_was_counted_once_is_ruled_on_once() -> None:
    table = SharedCounts()
    table.look()
    found = []
    for _ in range(6):
        table.world.catch_up()
        found.append(table.count())

    assert [ruling is not None for ruling, _ in found] == [False, True, False, False, False, False]
    assert sum(asked for _, asked in found) == 0


def test_counts_of_another_check_are_compared_with_a_mirror_that_has_passed_them() -> None:
    """A row came before the count: the mirror lacks it until it has passed the next heartbeat."""
    table = SharedCounts()
    table.world.commit((Op.CREATE, ONE, 250))
    table.world.fences.clear()
    probe = Values(block_rows=16)
    run_probe(Check("values", probe, TABLE), table.world)

    rulings = [table.count()[0] for _ in range(3)]
    assert rulings == [None, None, None]

    table.world.catch_up()
    ruling, asked = table.count()
    assert (ruling is not None and ruling.outcome, asked) == (Outcome.PASS, 0)


def test_a_loss_is_named_by_counts_of_another_check() -> None:
    table = SharedCounts()
    table.world.copy[ONE].pop(199)
    table.look()
    found = []
    for _ in range(4):
        table.world.catch_up()
        found.append(table.count()[0])

    failed = next(one for one in found if one and one.outcome is Outcome.FAIL)
    assert failed.keys == (f"{KEY}199",)


@pytest.mark.parametrize(
    ("seconds", "itself"), [(44, False), (46, True)], ids=["new enough", "three times its pace old"]
)
def test_counts_of_another_check_that_are_old_are_not_taken(seconds: int, itself: bool) -> None:
    table = SharedCounts()
    table.look()
    table.world.time += timedelta(seconds=seconds)

    _, asked = table.count()

    assert (asked > 0) == itself


def test_a_check_that_compares_no_older_ranges_shares_no_counts() -> None:
    table = SharedCounts()
    table.look(ranges=0)

    assert table.count()[1] > 0


def test_what_was_found_is_counted_again_without_the_other_check() -> None:
    """Else a repair would be seen only once the other check looks at that range again."""
    table, found = SharedCounts(), list[Outcome]()
    table.world.copy[ONE].pop(199)
    table.look()
    for _ in range(8):
        table.world.catch_up()
        ruling, _ = table.count()
        found += [ruling.outcome] if ruling else []
        if found:
            table.world.copy[ONE][199] = 1

    assert (found[0], found[-1]) == (Outcome.FAIL, Outcome.PASS)


def test_an_old_range_has_its_turn_while_the_budget_of_its_source_is_short() -> None:
    """`values` leaves old ranges to an even lap of days then, and its counts are no substitute."""
    table, found = SharedCounts(), set[Outcome]()
    table.world.allowed_now = Allowance(0)
    table.world.copy[ONE].pop(3)
    for _ in range(60):
        table.world.time += timedelta(seconds=20)
        table.world.catch_up()
        table.look()
        ruling, _ = table.count()
        found |= {ruling.outcome} if ruling else set()
        if Outcome.FAIL in found:
            break

    assert Outcome.FAIL in found
