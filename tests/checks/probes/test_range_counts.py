from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from checks import counting
from checks.counting import (
    MOST_OPEN,
    Differences,
    OpenRange,
    SuspectState,
    differing_ranges,
    rule_differences,
)
from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes import range_counts
from checks.probes.range_counts import RangeCounts
from checks.probes.values import Values
from checks.run import Check, run_probe
from pipeline.errors import ProofError, SluiceError, TooManyRowsError, UnreachableError
from pipeline.model import Op, Shard, Table
from pipeline.sources.budget import Allowance
from tests.checks.world_fake import ONE, TABLE, TWO, Event, FakeWorld

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


class BothChecks:
    """A table with both checks: `values` compares rows, `range_counts` rules on its proof."""

    def __init__(self) -> None:
        self.world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
        self.world.alter(ONE, v="int")
        self.world.alter(TWO, v="int")
        self.world.commit(*[(Op.CREATE, ONE, id_) for id_ in range(1, 200)])
        self.world.catch_up()

    def compare(self, rounds: int = 1, **settings: Any) -> Verdict | NotYet:
        """Rounds of `values`, after each of which the mirror has caught up; the last answer."""
        probe = Values(**{"block_rows": 16, **settings})
        for _ in range(rounds):
            answer = run_probe(Check("values", probe, TABLE), self.world)
            self.world.catch_up()
        return answer

    def count(self, table: Table = TABLE) -> tuple[Verdict | NotYet, bool]:
        """One round of `range_counts`: its answer, and whether it has counted at the source."""
        before = self.world.asked
        answer = run_probe(Check("range_counts", PROBE, table), self.world)
        return answer, self.world.asked > before

    def passes_by_proof(self, table: Table = TABLE) -> bool:
        """Whether `range_counts` passes at once, and counts nothing."""
        answer, counted = self.count(table)
        return isinstance(answer, Verdict) and answer.ruling.outcome is Outcome.PASS and not counted


@pytest.fixture
def both() -> BothChecks:
    """All rows were compared, and `values` passes."""
    table = BothChecks()
    table.compare(4)
    return table


def test_what_values_has_proven_is_ruled_on_as_of_its_position_and_nothing_is_counted(
    both: BothChecks,
) -> None:
    proven = both.compare()

    answer, counted = both.count()

    assert isinstance(proven, Verdict)
    assert isinstance(answer, Verdict)
    assert (answer.ruling.outcome, counted) == (Outcome.PASS, False)
    assert answer.as_of == proven.as_of
    assert answer.ruling.reason.startswith("as values has proven: each row was compared since 2026")
    assert proven.ruling.reason.endswith(answer.ruling.reason.partition(": ")[2])


def test_a_pass_of_values_that_took_too_long_is_no_proof(
    both: BothChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = property(lambda world: world.time - timedelta(seconds=1))
    with monkeypatch.context() as patched:
        patched.setattr(FakeWorld, "now", began)
        late = both.compare(limit=timedelta(microseconds=1))

    assert isinstance(late, Verdict)
    assert (late.ruling.outcome, late.ruling.code) == (Outcome.UNKNOWN, "over_time")
    assert not both.passes_by_proof()


def test_each_proof_is_ruled_on_once(both: BothChecks) -> None:
    answers = [both.count()[0] for _ in range(3)]
    both.compare()
    answers.append(both.count()[0])

    assert [isinstance(one, Verdict) for one in answers] == [True, False, False, True]


def test_no_table_is_proven_before_all_of_its_rows_were_compared() -> None:
    """One range in a cycle: the first lap takes a while, and its ranges are counted meanwhile."""
    table = BothChecks()
    answer = table.compare(4, ranges=1)

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.PASS
    assert table.count()[1]


def give_new_base(both: BothChecks) -> None:
    both.world.snapshot(ONE)


def read_rows_again(both: BothChecks) -> None:
    """As in a snapshot in parts: no base is complete yet."""
    both.world.log_.append(Event(Op.READ, ONE, 20, content=1))


def truncate(both: BothChecks) -> None:
    both.world.truncate(ONE)


def alter_columns(both: BothChecks) -> None:
    both.world.alter(ONE, v="int", more="int")


def create_again(both: BothChecks) -> None:
    """With the same columns."""
    both.world.alter(ONE)
    both.world.alter(ONE, v="int")


def put_mirror_back(both: BothChecks) -> None:
    both.world.applied = 0


def recreate_mirror(both: BothChecks) -> None:
    both.world.mirror_id = "another"


def write_to_mirror(both: BothChecks) -> None:
    """By another writer, and a person may have waived it."""
    both.world.foreign.add(len(both.world.versions))


def merge_again(both: BothChecks) -> None:
    """It was put back and merged again since the last look, so its batch is the same."""
    both.world.entries = dict.fromkeys(range(len(both.world.versions)), "of the second merge")


def lose_change_log(both: BothChecks) -> None:
    both.world.outdated.add("values")


def wait_for_values(both: BothChecks) -> None:
    """No longer than a changed row may wait."""
    both.world.time += timedelta(minutes=10)


def refuse_values(both: BothChecks) -> None:
    both.world.error = UnreachableError("source:shop: down")
    both.compare()
    both.world.error = None


def mask_columns(both: BothChecks) -> None:
    """At the collector, so that none can be compared."""
    both.world.alters = "masked: {}".format
    answer = both.compare()
    assert isinstance(answer, Verdict)
    assert answer.ruling.code == "unsupported"


def leave_rows_behind(both: BothChecks) -> None:
    """`values` is UNKNOWN: its changed rows wait for the budget of the source."""
    both.world.allowed_now = Allowance(0, "waited")
    both.world.time += timedelta(minutes=3)
    answer = both.compare()
    assert isinstance(answer, Verdict)
    assert answer.ruling.code == "behind"


def stop_comparing_all_rows(both: BothChecks) -> None:
    both.compare(30, ranges=0)
    both.world.snapshot(ONE)
    both.compare(2, ranges=0)


@pytest.mark.parametrize(
    "happen",
    [
        give_new_base,
        read_rows_again,
        truncate,
        alter_columns,
        create_again,
        put_mirror_back,
        recreate_mirror,
        write_to_mirror,
        merge_again,
        lose_change_log,
        wait_for_values,
        refuse_values,
        mask_columns,
        leave_rows_behind,
        stop_comparing_all_rows,
    ],
)
def test_a_table_is_not_proven_after(
    both: BothChecks, happen: Callable[[BothChecks], None]
) -> None:
    both.compare()
    happen(both)
    if happen is not put_mirror_back:
        both.world.catch_up()

    answer, counted = both.count()

    assert isinstance(answer, NotYet)
    assert counted


@pytest.mark.parametrize("happen", [recreate_mirror, write_to_mirror, merge_again])
def test_the_proof_of_an_altered_mirror_is_left_while_values_goes_on(
    both: BothChecks, happen: Callable[[BothChecks], None]
) -> None:
    both.compare()
    assert both.passes_by_proof()
    rests, none = both.count()
    happen(both)

    _, counted = both.count()

    assert isinstance(rests, NotYet)
    assert (rests.why, none, counted) == ("values goes on", False, True)


@pytest.mark.parametrize("happen", [recreate_mirror, write_to_mirror, merge_again])
def test_rows_that_an_altered_mirror_lost_without_a_change_are_found(
    both: BothChecks, happen: Callable[[BothChecks], None]
) -> None:
    both.compare(4, ranges=1, within=timedelta(days=7))
    assert both.passes_by_proof()
    happen(both)
    for id_ in range(20, 60):
        del both.world.copy[ONE][id_]

    answer, found = both.compare(ranges=1), list[Verdict]()
    early = both.passes_by_proof()
    for _ in range(60):
        one = both.compare(ranges=1)
        found += [one] if isinstance(one, Verdict) else []
    told = [one.verified for one in found if one.verified]

    assert isinstance(answer, Verdict)
    assert (answer.ruling.outcome, answer.ruling.code) == (Outcome.UNKNOWN, "put_back")
    assert not early
    assert found[-1].ruling.keys == ("shop/shop_00.orders:20-59",)
    first = next(place for place, one in enumerate(told) if one.oldest is not None)
    fails = [one.ruling.outcome is Outcome.FAIL for one in found if one.verified]
    assert any(fails[: first + 1]), "no lap ends before the rows are found"


def test_a_table_with_another_set_of_shards_is_not_proven(
    both: BothChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the third one has landed yet."""
    schema, three = FakeWorld.schema, Shard("shop", "shop_02.orders")
    monkeypatch.setattr(
        FakeWorld, "schema", lambda own, shard: schema(own, shard) if shard != three else None
    )
    both.compare()

    assert not both.passes_by_proof(replace(TABLE, shards=(ONE,)))
    assert both.passes_by_proof()
    both.compare(2)
    both.world.rows[three], both.world.copy[three] = set(), Counter()
    both.world.columns[three] = VALUED
    assert not both.passes_by_proof(replace(TABLE, shards=(ONE, TWO, three)))


def test_a_held_table_is_unknown_as_it_is_without_a_proof(both: BothChecks) -> None:
    """Nothing is merged: the look of `values` waits, and so does `range_counts`."""
    both.compare()
    assert both.passes_by_proof()
    both.world.time += timedelta(minutes=9)
    both.world.write_heartbeat()
    run_probe(Check("values", Values(block_rows=16), TABLE), both.world)
    (waits, _), (still, _) = both.count(), both.count()
    both.world.time += timedelta(minutes=11)
    run_probe(Check("values", Values(block_rows=16), TABLE), both.world)
    held, counted = both.count()

    assert isinstance(waits, Verdict)  # the mirror had passed that look
    assert isinstance(still, NotYet)
    assert isinstance(held, Verdict)
    assert (held.ruling.outcome, held.ruling.code) == (Outcome.UNKNOWN, "not_reached")
    assert not counted


def test_what_range_counts_has_found_itself_is_no_pass_though_values_passes(
    both: BothChecks,
) -> None:
    """`values` compared that row before it was lost, and its lap is long."""
    both.world.time += timedelta(minutes=11)
    both.world.copy[ONE].pop(3)
    own, probe = list[Ruling](), replace(PROBE, rotating=20)
    for _ in range(12):
        both.world.catch_up()
        theirs = both.compare() if Outcome.FAIL in {one.outcome for one in own} else None
        assert not isinstance(theirs, Verdict) or theirs.ruling.outcome is Outcome.PASS
        answer = run_probe(Check("range_counts", probe, TABLE), both.world)
        own += [answer.ruling] if isinstance(answer, Verdict) else []

    assert {one.keys for one in own} == {(f"{KEY}3",)}
    assert isinstance(theirs, Verdict)


@pytest.mark.parametrize("id_", [199, 3], ids=["newest", "oldest"])
def test_a_lost_row_that_values_has_found_is_named_without_counting_its_range(
    both: BothChecks, id_: int
) -> None:
    """It is one of the ids that are asked for; its range has its turn much later."""
    both.world.copy[ONE].pop(id_)
    both.compare(8, rotating=20)
    found, probe = list[Ruling](), replace(PROBE, rotating=0)
    for _ in range(4):
        answer = run_probe(Check("range_counts", probe, TABLE), both.world)
        found += [answer.ruling] if isinstance(answer, Verdict) else []
        both.world.catch_up()

    assert [one.keys for one in found][:1] == [(f"{KEY}{id_}",)]


def test_what_was_found_is_counted_again_without_the_other_check(both: BothChecks) -> None:
    """Else a repair would be seen only once the other check looks at that range again."""
    both.world.copy[ONE].pop(199)
    both.compare(8, rotating=20)
    found = list[Outcome]()
    for _ in range(8):
        answer, _ = both.count()
        found += [answer.ruling.outcome] if isinstance(answer, Verdict) else []
        if found:
            both.world.copy[ONE][199] = 1
        both.compare(rotating=20)

    assert (found[0], found[-1]) == (Outcome.FAIL, Outcome.PASS)
    assert both.passes_by_proof()


def test_rows_that_values_has_found_and_that_count_right_are_no_finding(both: BothChecks) -> None:
    both.world.contents[ONE, 3] += 1
    theirs, answers = list[Verdict | NotYet](), list[Verdict | NotYet]()
    for _ in range(16):
        theirs.append(both.compare(rotating=20))
        if both.world.memory["values"]["found"]:
            answers.append(both.count()[0])

    assert "different_rows" in {one.ruling.code for one in theirs if isinstance(one, Verdict)}
    rulings = [one.ruling.outcome for one in answers if isinstance(one, Verdict)]
    assert rulings == [Outcome.PASS] * len(rulings) != []


LATE, DAY = "2026-13-01T00:00:00+00:00", "2026-03-02T00:00:00"


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(None, id="an unreadable row"),
        {"proof": {"v2": 1}},
        {"proof": [1]},
        {"proof": {"times": [DAY] * 6, "ranges": {}, "schemas": {}, "bases": {}, "batch": 1}},
        {"ended": LATE},
        {"ended": DAY},
        {"ended": f"{DAY}+00:00", "found": [["a"]]},
        {"ended": f"{DAY}+00:00", "found": 7},
        {"ended": f"{DAY}+00:00", "found": [["shop/shop_00.orders", "x"]]},
    ],
)
@pytest.mark.parametrize("before", ["at once", "after a proof", "with ranges left to it"])
def test_ranges_are_counted_where_the_memory_of_values_is_unreadable(
    both: BothChecks, memory: Mapping[str, Any] | None, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before == "after a proof":
        assert both.passes_by_proof()
    if before == "with ranges left to it":
        open_ranges(both)
        both.compare(4)
        both.count()
    both.world.copy[ONE].pop(199)
    recall = FakeWorld.recall

    def refuse(
        own: FakeWorld, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        if check == "values":
            raise ProofError(f"the stored memory of check {check} is unreadable")
        return recall(own, table, check, lasting=lasting)

    if memory is None:
        monkeypatch.setattr(FakeWorld, "recall", refuse)
    else:
        both.world.memory["values"] = memory

    found = rulings(both.world, 8)

    assert {one.outcome for one in found} == {Outcome.FAIL}
    assert f"{KEY}199" in found[0].keys


def test_no_check_waits_for_one_that_is_switched_off(both: BothChecks) -> None:
    assert both.passes_by_proof()
    assert both.count() == (NotYet("values goes on"), False)

    both.world.off.add("values")

    assert both.count() == (NotYet("a cycle has begun"), True)


def test_values_compares_no_ranges_of_a_check_whose_memory_is_unreadable(both: BothChecks) -> None:
    both.world.memory["range_counts"] = {"handed": {"v2": 1}}

    answer = both.compare(2)

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.PASS


def open_ranges(both: BothChecks) -> None:
    """Rows move while they are counted, more than are asked for one by one."""
    both.world.memory.pop("values")
    probe = Check("range_counts", replace(PROBE, block_rows=4096), TABLE)
    assert isinstance(run_probe(probe, both.world), NotYet)
    both.world.commit(*[(Op.DELETE, ONE, id_) for id_ in range(1, 100)])
    both.world.catch_up()
    both.world.commit(*[(Op.DELETE, ONE, id_) for id_ in range(100, 150)])
    assert isinstance(run_probe(probe, both.world), NotYet)
    both.world.catch_up()
    answer = run_probe(probe, both.world)
    assert isinstance(answer, Verdict)
    assert answer.ruling.code == "not_all_asked"
    assert both.world.memory["range_counts"]["open"]


def test_ranges_that_cannot_be_explained_are_compared_by_values(both: BothChecks) -> None:
    open_ranges(both)
    both.compare(4, rotating=20)
    waits = NotYet("values compares 1 ranges that differ in their counts")

    assert both.count() == (waits, False)
    both.compare(ranges=1)
    assert both.count() == (waits, False)  # it has passed with a look that began before
    both.compare(2, ranges=1)

    assert isinstance(both.count()[0], NotYet)
    assert both.passes_by_proof()


def test_a_row_lost_in_such_a_range_is_found(both: BothChecks) -> None:
    open_ranges(both)
    both.compare(4)
    both.count()
    del both.world.copy[ONE][170]

    found = list[Ruling]()
    for _ in range(8):
        both.compare(ranges=1)
        answer, _ = both.count()
        found += [answer.ruling] if isinstance(answer, Verdict) else []

    assert Outcome.PASS not in {one.outcome for one in found}
    assert (found[-1].outcome, found[-1].keys) == (Outcome.FAIL, (f"{KEY}170",))


def test_ranges_that_values_does_not_compare_in_time_are_counted_again(both: BothChecks) -> None:
    open_ranges(both)
    both.compare(4)
    both.count()
    both.world.time += timedelta(minutes=11)

    answer, _ = both.count()

    assert isinstance(answer, Verdict)
    assert answer.ruling.reason.startswith("50 rows in")  # as counted


def test_ranges_that_are_too_large_for_values_do_not_stop_it(both: BothChecks) -> None:
    open_ranges(both)
    both.compare(4)
    both.count()
    both.world.allowed = 16

    answer = both.compare(4)

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.PASS
    assert [both.passes_by_proof() for _ in range(3)] == [False] * 3


def test_ranges_are_not_handed_to_a_check_that_runs_no_more(both: BothChecks) -> None:
    open_ranges(both)
    both.compare(4)
    both.world.time += timedelta(days=1)
    both.world.catch_up()

    assert isinstance(both.count()[0], Verdict)


def test_what_values_has_compared_is_handed_over_once(both: BothChecks) -> None:
    open_ranges(both)
    both.compare(4)
    spans = [[at, at + 1, 1] for at in range(1000, 1300, 2)]
    memory = both.world.memory["range_counts"]
    both.world.memory["range_counts"] = {**memory, "open": {KEY[:-1]: spans}}
    both.count()
    both.compare(3)
    both.count()

    assert len(both.world.memory["range_counts"]["open"][KEY[:-1]]) < len(spans)


def test_what_a_scan_by_keys_remembers_of_a_table_names_no_rows(both: BothChecks) -> None:
    """Before the table had an id column."""
    both.world.memory.clear()
    keyed = Check("values", Values(), replace(TABLE, id_column=None))
    for _ in range(3):
        run_probe(keyed, both.world)
        both.world.catch_up()

    assert both.count()[0] == NotYet("a cycle has begun")


def test_a_range_that_waits_for_its_turn_stays_open_while_another_one_is_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that was counted is explained by row 20, and the range of row 200 was not counted."""
    for module in (counting, range_counts):
        monkeypatch.setattr(module, "AGAIN", 1)
    world, one = filled(*range(1, 400)), replace(PROBE, leaf=16, rotating=50, suspects=1)
    rulings(world, 3, one)
    for id_ in (20, 200):
        del world.copy[ONE][id_]
    rulings(world, 2, one)
    narrow = replace(one, rotating=0)
    rulings(world, 4, narrow)
    world.copy[ONE][20] = 1

    found = rulings(world, 8, narrow)

    assert Outcome.PASS not in {each.outcome for each in found}
    assert found[-1].keys == (f"{KEY}200",)
