"""Each changed row is looked at again by its key, whatever happens in between."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.compare.changed import ChangedProgress, LogSegment
from checks.compare.coverage import Coverage
from checks.model import NotYet, Outcome, Verdict
from checks.probes.values import NAME, Values
from checks.run import Check, run_probe
from pipeline.errors import UnreachableError
from pipeline.formats.json_text import canonical_key
from pipeline.model import Op, Shard
from tests.checks.world_fake import ONE, TABLE, TWO, Event, FakeWorld, in_step

VALUED = {"id": "bigint", "v": "int"}
SILENT = UnreachableError("source:shop: down")


def made(rows: int = 200) -> FakeWorld:
    """Rows in each of two shards, in step."""
    world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    world.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(rows)))
    world.catch_up()
    return world


@pytest.fixture
def world() -> FakeWorld:
    return made()


def probe(**more: Any) -> Values:
    """Ranges are looked at only where the newest rows are."""
    return Values(**{"block_rows": 16, "newest": 1, "rotating": 0, "ranges": 0, **more})


def progress(world: FakeWorld) -> ChangedProgress:
    return ChangedProgress.loads(world.memory[NAME]["progress"], TABLE)


def update(world: FakeWorld, *ids: int, shard: Shard = ONE) -> None:
    world.commit(*((Op.UPDATE, shard, id_) for id_ in ids))


def test_a_wrong_row_is_named_after_its_change_though_its_range_is_not_looked_at(
    world: FakeWorld,
) -> None:
    in_step(NAME, probe(), world, 2)
    update(world, 3)
    world.contents[ONE, 3] += 1  # with sql_log_bin=0, right after it

    *_, last = in_step(NAME, probe(), world, 4)

    assert (last.outcome, last.code) == (Outcome.FAIL, "different_rows")
    assert last.keys == ("shop/shop_00.orders:3",)
    assert last.reason.endswith("they differ in v")


def test_a_changed_row_is_ruled_on_as_soon_as_the_mirror_has_passed_its_look(
    world: FakeWorld,
) -> None:
    """It was read alone, on both sides: there is no second reading to wait for."""
    in_step(NAME, probe(), world, 2)
    update(world, 3, 4)
    world.contents[ONE, 3] += 1

    first, second = in_step(NAME, probe(), world, 2)

    assert (first.outcome, second.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert second.keys == ("shop/shop_00.orders:3",)


def test_what_is_confirmed_is_told_while_other_rows_keep_moving(world: FakeWorld) -> None:
    in_step(NAME, probe(), world, 2)
    update(world, 3, 4)
    world.catch_up()
    world.contents[ONE, 3] += 1
    world.copied_contents[ONE, 4] += 9
    run_probe(Check(NAME, probe(), TABLE), world)
    answers, said = list[Verdict | NotYet](), list[bool]()
    for _ in range(3):
        world.catch_up()
        world.contents[ONE, 4] += 1  # without a change in the log
        answers.append(run_probe(Check(NAME, probe(), TABLE), world))
        said.append(answers[-1].suspicious)

    rulings = [one.ruling for one in answers if isinstance(one, Verdict)]
    assert [one.keys for one in rulings] == [("shop/shop_00.orders:3",)] * len(answers)
    assert said == [True] * len(answers)


def test_a_row_that_was_found_is_not_taken_for_right_while_it_moves(world: FakeWorld) -> None:
    """Another one is confirmed beside it, and waits for that one's end."""
    in_step(NAME, probe(), world, 2)
    update(world, 4)
    world.contents[ONE, 4] += 1
    in_step(NAME, probe(), world, 1)
    update(world, 3)
    world.contents[ONE, 3] += 1
    (found,) = in_step(NAME, probe(), world, 1)
    answers = list[Verdict | NotYet]()
    for moves in (True, True, False):
        world.catch_up()
        world.contents[ONE, 4] += moves
        answers.append(run_probe(Check(NAME, probe(), TABLE), world))

    assert found.keys == ("shop/shop_00.orders:4",)
    *waits, last = answers
    assert all(isinstance(one, NotYet) for one in waits)
    assert isinstance(last, Verdict)
    assert last.ruling.keys == ("shop/shop_00.orders:3-4",)


def test_what_an_earlier_version_found_is_not_taken_for_right(world: FakeWorld) -> None:
    """It did not look at that row again with those that were changed."""
    in_step(NAME, probe(), world, 2)
    update(world, 3)
    world.contents[ONE, 3] += 1
    *_, found = in_step(NAME, probe(), world, 2)
    changed = dict(world.memory[NAME]["changed"])
    del changed["landed"]
    world.memory[NAME] = {**world.memory[NAME], "changed": {**changed, "looks": []}}

    after = in_step(NAME, probe(), world, 3)

    assert {one.keys for one in (found, *after)} == {("shop/shop_00.orders:3",)}


@pytest.mark.parametrize(
    ("change", "harm", "code"),
    [
        (Op.UPDATE, lambda world: world.copy[ONE].pop(3), "missing_rows"),
        (Op.DELETE, lambda world: world.copy[ONE].update({3: 1}), "extra_rows"),
        (Op.UPDATE, lambda world: world.copy[ONE].update({3: 1}), "doubled_rows"),
    ],
)
def test_a_change_that_a_merge_did_not_make_right_is_told_by_its_kind(
    world: FakeWorld, change: Op, harm: Any, code: str
) -> None:
    in_step(NAME, probe(), world, 2)
    world.commit((change, ONE, 3))
    world.catch_up()
    harm(world)

    *_, last = in_step(NAME, probe(), world, 4)

    assert (last.outcome, last.code, last.keys) == (Outcome.FAIL, code, ("shop/shop_00.orders:3",))


def test_rows_that_change_all_the_time_are_read_once_each_and_verified(world: FakeWorld) -> None:
    """Some rows change in each round, some of them while both sides are read."""
    in_step(NAME, probe(), world, 2)
    world.asked_rows, changed, began = 0, 0, world.fences[0][0].at
    for round_ in range(40):
        cold = range(round_ % 20, 200, 20)
        update(world, 1, 2, *cold)
        world.meanwhile = [lambda: update(world, 1, 2)] * 3
        changed += 2 + len(cold)
        assert {one.outcome for one in in_step(NAME, probe(), world, 1)} <= {Outcome.PASS}
    in_step(NAME, probe(), world, 1)

    assert 0.5 * changed < world.asked_rows <= 1.2 * changed
    assert (progress(world).through or began) >= world.fences[-5][0].at > began


def test_more_rows_than_one_cycle_looks_at_wait_and_none_is_skipped(world: FakeWorld) -> None:
    narrow = probe(changed_rows=5)
    in_step(NAME, narrow, world, 2)
    update(world, *range(100))
    world.contents[ONE, 99] += 1  # the last one by its key, too
    in_step(NAME, narrow, world, 2)
    before = progress(world).through

    found = in_step(NAME, narrow, world, 8)

    assert {one.outcome for one in found} == {Outcome.PASS}
    assert progress(world).through == before
    assert [one.outcome for one in in_step(NAME, narrow, world, 20)][-1] is Outcome.FAIL
    assert progress(world).through == before
    world.copied_contents[ONE, 99] = world.contents[ONE, 99]
    assert in_step(NAME, narrow, world, 4)[-1].outcome is Outcome.PASS
    assert progress(world).through != before


def test_waiting_for_longer_than_the_patience_is_unknown_with_figures(world: FakeWorld) -> None:
    narrow = probe(changed_rows=2)
    in_step(NAME, narrow, world, 2)
    for _ in range(8):
        update(world, *range(20))
        world.time += narrow.patience / 4
        *_, last = in_step(NAME, narrow, world, 1)

    assert (last.outcome, last.code) == (Outcome.UNKNOWN, "behind")
    assert "one cycle looks at 2; raise changed_rows" in last.reason


def test_a_row_in_flight_is_looked_at_again_and_holds_back_what_is_verified(
    world: FakeWorld,
) -> None:
    """It differs, and the source says something else each time it is asked."""
    in_step(NAME, probe(tries=1), world, 2)
    update(world, 3)
    world.catch_up()
    world.copied_contents[ONE, 3] += 9
    for _ in range(4):
        before = progress(world).through
        world.contents[ONE, 3] += 1  # without a change in the log
        world.meanwhile = []
        for _ in range(3):
            world.catch_up()
            world.contents[ONE, 3] += 1
            run_probe(Check(NAME, probe(tries=1), TABLE), world)
    assert (ONE, 3) in progress(world).pending
    assert progress(world).through == before

    world.copied_contents[ONE, 3] = world.contents[ONE, 3]
    in_step(NAME, probe(tries=1), world, 4)

    assert progress(world).pending == ()
    assert progress(world).through != before


@pytest.mark.parametrize("text", [None, "x", "1.5", ""], ids=repr)
def test_a_key_that_is_no_whole_number_hides_no_other_and_its_shard_is_compared_anew(
    text: str | None,
) -> None:
    world, check = lapped()
    update(world, 3)
    world.contents[ONE, 3] += 1  # with sql_log_bin=0, right after it
    key = canonical_key([text], ONE.source, ONE.name)
    world.log_.append(Event(Op.UPDATE, ONE, 150, content=1, key=key))

    found = rule(check, world, 4)
    after = rule(replace(check, ranges=400), world, 6)

    assert ("shop/shop_00.orders:3",) in [one.ruling.keys for one in found]
    assert any(one.verified and one.verified.oldest is None for one in found)
    assert after[-1].verified
    assert after[-1].verified.oldest


def test_a_cycle_without_the_row_of_a_key_is_no_pass() -> None:
    world, check = lapped()
    keys = [canonical_key([text], ONE.source, ONE.name) for text in ("x", "y")]
    world.log_ += [Event(Op.UPDATE, ONE, 150, content=1, key=key) for key in keys]

    *_, first, last = rule(check, world, 3)

    assert (first.ruling.outcome, first.ruling.code) == (Outcome.UNKNOWN, "behind")
    assert "shop_00.orders" in first.ruling.reason
    assert "(and 1 more) is not a whole number" in first.ruling.reason
    assert last.ruling.outcome is Outcome.PASS


def test_a_long_key_that_is_not_a_number_is_not_shown_in_part() -> None:
    """Half of a JSON array cannot be hidden by ``text_keys``."""
    world, check = lapped()
    key = canonical_key(["anna.schmidt@" + 60 * "x"], ONE.source, ONE.name)
    world.log_.append(Event(Op.UPDATE, ONE, 150, content=1, key=key))

    said = [one.ruling.reason for one in rule(check, world, 4)]

    assert any("a long key of the change log is not a whole number" in one for one in said)
    assert not any("anna" in one for one in said)


def test_a_round_that_only_waits_asks_neither_the_source_nor_the_log(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_step(NAME, probe(), world, 2)
    monkeypatch.delattr(FakeWorld, "log")
    world.error = SILENT

    answer = run_probe(Check(NAME, probe(), TABLE), world)

    assert isinstance(answer, NotYet)
    assert "no heartbeat since" in answer.why


def test_rows_are_not_looked_at_before_they_are_merged(world: FakeWorld) -> None:
    in_step(NAME, probe(), world, 2)
    update(world, 3)
    world.write_heartbeat()
    world.land()
    world.asked_rows = 0

    run_probe(Check(NAME, probe(), TABLE), world)

    assert world.asked_rows == 0


def test_a_new_column_while_rows_are_looked_at_skips_none(world: FakeWorld) -> None:
    in_step(NAME, probe(), world, 2)
    update(world, 3)
    world.catch_up()
    world.contents[ONE, 3] += 1
    in_step(NAME, probe(), world, 1)  # has looked at row 3, and not ruled
    world.alter(ONE, v="int", more="int")

    found = in_step(NAME, probe(), world, 6)

    assert found[-1].keys == ("shop/shop_00.orders:3",)


steps = st.lists(
    st.tuples(
        st.sampled_from(["update", "delete", "create", "land", "apply", "probe", "fail", "harm"]),
        st.integers(0, 30),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(steps, st.integers(1, 6))
def test_each_changed_row_that_is_wrong_is_named_in_the_end(
    history: list[tuple[str, int]], budget: int
) -> None:
    """Whatever lands, fails and waits in between, and however little one cycle looks at."""
    world, narrow = made(30), probe(changed_rows=budget, tries=2)
    in_step(NAME, narrow, world, 2)
    changed, wrong = set[int](), set[int]()
    ops = {"update": Op.UPDATE, "delete": Op.DELETE, "create": Op.CREATE}
    for what, id_ in history:
        if what in ops:
            logged = len(world.log_)
            world.commit((ops[what], ONE, id_))
            changed |= {id_} if len(world.log_) > logged else set()  # there may be no such change
        elif what == "land":
            world.write_heartbeat()
            world.land(3 + id_)
        elif what == "apply":
            world.apply(1 + id_ % 3)
        elif what == "harm" and id_ in changed and id_ in world.rows[ONE]:
            world.contents[ONE, id_] = world.contents.get((ONE, id_), 0) + 1000
        else:
            world.error = SILENT if what == "fail" else None
            run_probe(Check(NAME, narrow, TABLE), world)
    world.error = None
    for _ in range(90):
        world.catch_up()
        answer = run_probe(Check(NAME, narrow, TABLE), world)
    wrong = {
        id_
        for id_ in world.rows[ONE]
        if world.contents.get((ONE, id_), 0) != world.copied_contents.get((ONE, id_), 0)
    }

    kept = {id_ for _, id_ in progress(world).wrong}
    assert kept == wrong
    assert not isinstance(answer, Verdict) or (answer.ruling.outcome is Outcome.FAIL) == bool(wrong)


def harm(world: FakeWorld, shard: Shard, *ids: int) -> None:
    """Let the mirror have other values of rows than their last change."""
    update(world, *ids, shard=shard)
    world.catch_up()
    for id_ in ids:
        world.copied_contents[shard, id_] += 1000


def repair(world: FakeWorld, *ids: int) -> None:
    world.copied_contents |= {(ONE, id_): world.contents[ONE, id_] for id_ in ids}


@pytest.mark.parametrize("in_time", [1, 3, 10])
def test_rows_that_are_read_too_slowly_at_once_are_read_in_turn(in_time: int) -> None:
    """They have become wide, and twenty of them are wrong; then another one becomes wrong."""
    world, check = made(30), probe(newest=0)
    in_step(NAME, check, world, 2)
    harm(world, ONE, *range(20))
    assert len(rule(check, world, 8)[-1].ruling.keys) == 1  # 0-19
    world.in_time = in_time
    found = rule(check, world, 30)
    assert sum(one.ruling.code == "unreachable" for one in found) <= 3
    assert Outcome.FAIL in {one.ruling.outcome for one in found[-20:]}

    harm(world, TWO, 3)
    found += rule(check, world, 60)

    assert any(f"{TWO}:3" in one.ruling.keys for one in found)
    assert sum(one.ruling.code == "unreachable" for one in found) <= 3
    assert Outcome.PASS not in {one.ruling.outcome for one in found}
    assert {*progress(world).wrong} == {(TWO, 3), *((ONE, id_) for id_ in range(20))}


@pytest.mark.parametrize("in_time", [1, 3, 10])
def test_no_pass_while_a_wrong_row_waits_for_its_turn(in_time: int) -> None:
    """All rows are repaired but for one."""
    world, check = made(30), probe(newest=0)
    in_step(NAME, check, world, 2)
    harm(world, ONE, *range(20))
    rule(check, world, 8)
    world.in_time = in_time
    rule(check, world, 20)
    repair(world, *(id_ for id_ in range(20) if id_ != 7))

    found = rule(check, world, 60)

    assert Outcome.PASS not in {one.ruling.outcome for one in found}
    assert found[-1].ruling.keys == (f"{ONE}:7",)
    assert {*progress(world).wrong} == {(ONE, 7)}
    repair(world, 7)
    assert rule(check, world, 12)[-1].ruling.outcome is Outcome.PASS


def test_rows_are_read_all_at_once_again_after_a_source_was_slow(world: FakeWorld) -> None:
    check = probe(newest=0)
    in_step(NAME, check, world, 2)
    world.in_time = 0
    for _ in range(3):
        update(world, *range(60))
        rule(check, world, 2)
    world.in_time = 1_000_000
    rule(check, world, 20)
    update(world, *range(60))

    *_, last = rule(check, world, 2)

    assert "and 60 changed rows" in last.ruling.reason


def test_a_row_that_is_too_large_to_be_read_in_time_holds_no_other_row() -> None:
    """It is named, is not claimed to be verified, and is tried again; another is found wrong."""
    world, check = made(60), probe(newest=0)
    in_step(NAME, check, world, 3)
    world.huge = {(ONE, 7)}
    update(world, *range(40))
    rule(check, world, 14)
    verified = progress(world).through

    update(world, *range(60))
    found = rule(check, world, 14)

    assert {one.ruling.outcome for one in found} == {Outcome.UNKNOWN}
    assert f"{ONE}:7 is not read in time: source:shop: slow" in found[-1].ruling.reason
    assert "limits.statement" in found[-1].ruling.reason
    assert progress(world).through == verified
    assert {*progress(world).pending} == {(ONE, 7)}
    harm(world, ONE, 20)
    assert rule(check, world, 3)[-1].ruling.keys == (f"{ONE}:20",)


def test_a_row_that_is_too_large_is_tried_again_in_turn_and_is_verified_in_the_end() -> None:
    world, check = made(60), probe(newest=0)
    in_step(NAME, check, world, 3)
    world.huge = {(ONE, 7)}
    update(world, *range(10))
    rule(check, world, 14)
    tried = world.huge_reads
    for _ in range(20):
        update(world, *range(10))
        rule(check, world, 1)
    assert world.huge_reads == tried
    world.time += timedelta(minutes=11)
    rule(check, world, 2)
    assert world.huge_reads == tried + 1

    world.huge = set()
    world.time += timedelta(minutes=11)
    found = rule(check, world, 4)

    assert found[-1].ruling.outcome is Outcome.PASS
    assert progress(world).pending == ()
    assert found[-1].verified is not None


@pytest.mark.parametrize("id_", [60, 61, 62])
def test_a_new_row_that_is_too_large_holds_no_other_new_row(id_: int) -> None:
    world, check = made(60), probe(newest=0)
    in_step(NAME, check, world, 3)
    world.huge = {(ONE, id_)}
    world.commit(*((Op.CREATE, ONE, new) for new in (60, 61, 62)))
    rule(check, world, 14)

    world.commit(*((Op.CREATE, ONE, new) for new in (63, 64)))
    world.catch_up()
    world.copied_contents[ONE, 64] += 1
    found = rule(check, world, 14)

    assert found[-1].ruling.keys == (f"{ONE}:64",)
    assert {*progress(world).pending} == {(ONE, id_)}


@pytest.mark.parametrize("changed", [True, False])
def test_a_row_that_is_too_large_leaves_its_range_open_and_other_ranges_go_on(
    changed: bool,
) -> None:
    world, check = made(60), probe(newest=0, ranges=20)
    in_step(NAME, check, world, 3)
    world.huge = {(ONE, 7)}
    update(world, *([7] if changed else []))
    world.time += timedelta(days=8)
    rule(check, world, 40)
    world.contents[TWO, 40] += 1
    world.time += timedelta(days=8)

    found = rule(check, world, 12)

    assert found[-1].ruling.keys == (f"{TWO}:40",)
    assert [ONE.name, [7, 8]] in [
        [own.partition("/")[2], one]
        for own, many in world.memory[NAME]["open"].items()
        for one in many
    ]
    assert {one.verified.through for one in found if one.verified} <= {
        None,
        progress(world).through,
    }


slow_steps = st.lists(
    st.tuples(
        st.sampled_from(["update", "harm", "repair", "slow", "fail", "run"]), st.integers(0, 9)
    ),
    max_size=50,
)


@settings(max_examples=20, deadline=None)
@given(slow_steps, st.integers(1, 6), st.integers(1, 4))
def test_each_changed_row_that_is_wrong_is_named_in_the_end_by_a_slow_source(
    history: list[tuple[str, int]], budget: int, in_time: int
) -> None:
    world, narrow = made(10), probe(changed_rows=budget, tries=2)
    in_step(NAME, narrow, world, 2)
    wrong = set[int]()
    for what, id_ in history:
        world.error = SILENT if what == "fail" else None
        world.in_time = 1 + id_ if what == "slow" else world.in_time
        if what == "update":
            update(world, id_)
            wrong -= {id_}
        elif what == "harm":
            harm(world, ONE, id_)
            wrong |= {id_}
        elif what == "repair":
            repair(world, id_)
            wrong -= {id_}
        rule(narrow, world, 1)
    world.error, world.in_time = None, in_time
    rule(narrow, world, 50)

    found = rule(narrow, world, 40)

    assert {id_ for _, id_ in progress(world).wrong} == wrong
    assert (Outcome.PASS in {one.ruling.outcome for one in found}) == (not wrong)
    assert (Outcome.FAIL in {one.ruling.outcome for one in found}) == bool(wrong)
    keys = {id_ for one in found for key in one.ruling.keys for id_ in ids_of(key)}
    assert keys == wrong


def ids_of(key: str) -> range:
    """The ids of a key or of a run of keys."""
    first, _, last = key.rpartition(":")[2].partition("-")
    return range(int(first), int(last or first) + 1)


def test_what_an_earlier_version_remembered_is_taken_up(world: FakeWorld) -> None:
    """It knew what it had found, and nothing of changed rows or of when ranges were compared."""
    world.contents[ONE, 3] += 1
    told: dict[str, object] = {
        "asked": {},
        "looks": [],
        "rows": None,
        "ended": world.time.isoformat(),
        "open": {},
    }
    asked = {str(one): ["id:integer:1", "v:integer:1"] for one in (ONE, TWO)}
    found = {"found": [[str(ONE), 3]], "spans": {}, "cursors": {}, "failed": 0}
    world.remember(TABLE, NAME, {**told, **found, "asked": asked})

    answers = in_step(NAME, probe(), world, 4)

    assert [one.keys for one in answers][-1] == ("shop/shop_00.orders:3",)


def lapped(**more: Any) -> tuple[FakeWorld, Values]:
    """All rows were compared once; from then on few ranges are."""
    world, all_ranges = made(), probe(ranges=400, **more)
    *_, last = rule(all_ranges, world, 6)
    assert last.verified is not None
    assert last.verified.oldest is not None
    return world, replace(all_ranges, ranges=2)


def rule(check: Values, world: FakeWorld, rounds: int) -> list[Verdict]:
    """Verdicts of rounds, each on a mirror that has caught up."""
    found = []
    for _ in range(rounds):
        world.catch_up()
        answer = run_probe(Check(NAME, check, TABLE), world)
        found += [answer] if isinstance(answer, Verdict) else []
    return found


def through(found: Sequence[Verdict]) -> list[datetime]:
    """Up to when changed rows are verified, of the verdicts that say so."""
    return [one.verified.through for one in found if one.verified and one.verified.through]


def test_nothing_is_claimed_of_changed_rows_while_more_changes_may_be_lost() -> None:
    """A setting of the collector lasts, and is waived after a row was lost by it."""
    world, check = lapped()
    lap = rule(check, world, 1)[-1].verified
    assert lap is not None
    world.losing = True
    rule(check, world, 3)
    update(world, 3)
    world.log_[-2].lost = True

    lasting = rule(check, world, 4)
    world.losing = False
    world.open_losses.add("setting:shop:skipped.operations@0a1b2c3d")
    waived = rule(check, world, 4)
    found = rule(replace(check, ranges=400), world, 6)

    assert through(lasting) == []
    assert {one.verified.oldest for one in lasting if one.verified} == {lap.oldest}
    assert not any("each row changed" in one.ruling.reason for one in lasting)
    assert not any("each one changed" in one.ruling.reason for one in lasting)
    assert through(waived[1:]) == []
    assert found[-1].ruling.keys == (f"{ONE}:3",)


def test_a_segment_of_several_rounds_vouches_for_its_own_batches_only() -> None:
    """Row 100 is changed, and merged wrongly, while the rows of earlier batches are looked at."""
    world, narrow = lapped(changed_rows=5)
    update(world, *range(150, 162))
    rule(narrow, world, 2)
    world.tick()
    update(world, 100)
    changed_at = world.time
    world.contents[ONE, 100] += 1

    found = rule(narrow, world, 14)

    assert found[-1].ruling.keys == ("shop/shop_00.orders:100",)
    assert max(through(found)) < changed_at


def test_a_segment_in_the_memory_of_an_earlier_version_vouches_for_nothing() -> None:
    assert LogSegment.loads([3, 7, ["shop", "s", "k"]]) == LogSegment(3, 7, ("shop", "s", "k"))


def test_a_wrong_row_beyond_those_that_are_stored_holds_back_what_is_verified() -> None:
    """No range has it; the one that is stored is in the newest rows, and is repaired later."""
    world, check = lapped(suspects=1)
    rule(check, world, 3)
    update(world, 110, shard=TWO)
    changed_at = world.time
    world.contents[TWO, 110] += 1
    world.contents[ONE, 195] += 1
    *_, both = rule(check, world, 3)
    world.contents[ONE, 195] -= 1

    found = rule(check, world, 4)

    assert both.ruling.keys == ("shop/shop_00.orders:195", "shop/shop_01.orders:110")
    assert found[-1].ruling.keys == ("shop/shop_01.orders:110",)
    assert max(through(found)) < changed_at


@pytest.mark.parametrize("waits", [0, 1, 4])
def test_a_mirror_that_was_put_back_vouches_for_nothing_before_its_rows_were_compared(
    waits: int,
) -> None:
    """It is merged again from there, and wrongly.  The check may see it before that."""
    world, check = lapped()
    saved = (world.applied, dict(world.copied_contents), dict(world.copied_orders))
    update(world, 100)
    changed_at = world.time
    assert max(through(rule(check, world, 6))) > changed_at
    world.applied, world.copied_contents, world.copied_orders = saved
    for _ in range(1 + waits):
        world.write_heartbeat()
        world.land(0)
        answer = run_probe(Check(NAME, check, TABLE), world)
        assert not isinstance(answer, Verdict) or not through([answer])
    world.apply()
    world.copied_contents[ONE, 100] -= 1

    found = rule(check, world, 8)

    assert found[-1].ruling.keys == ("shop/shop_00.orders:100",)
    assert all(at < changed_at for at in through(found))


def newest_only(**more: Any) -> Values:
    """No range is looked at but the edges: the newest rows are read one by one."""
    return probe(newest=0, **more)


def insert(world: FakeWorld, *ids: int, lost: int | None = None) -> None:
    """New rows of a shard; no message of the *lost* one is ever sent."""
    for id_ in ids:
        world.commit((Op.CREATE, ONE, id_))
        event = next(one for one in reversed(world.log_) if one.shard == ONE)
        event.lost = id_ == lost
        if id_ == lost:
            event.shard = None


@pytest.mark.parametrize("lost", [202, 205], ids=["in the middle", "at the end"])
def test_a_lost_row_at_the_end_is_named_though_no_range_holds_it(
    world: FakeWorld, lost: int
) -> None:
    in_step(NAME, newest_only(), world, 2)
    insert(world, *range(200, 206), lost=lost)

    found = in_step(NAME, newest_only(), world, 4)

    assert found[0].outcome is Outcome.PASS
    assert found[-1].keys == (f"shop/shop_00.orders:{lost}",)


def test_a_row_too_many_at_the_end_of_the_mirror_is_named(world: FakeWorld) -> None:
    in_step(NAME, newest_only(), world, 2)
    insert(world, *range(200, 206))
    world.catch_up()
    world.rows[ONE].remove(203)  # with sql_log_bin=0

    *_, last = in_step(NAME, newest_only(), world, 4)

    assert (last.code, last.keys) == ("extra_rows", ("shop/shop_00.orders:203",))


def test_new_rows_are_read_once_each_though_the_log_names_them(world: FakeWorld) -> None:
    """Some of them are changed, too, and old rows with them."""
    in_step(NAME, newest_only(), world, 2)
    world.asked_rows, high = 0, 200
    for _ in range(30):
        insert(world, *range(high, high + 5))
        update(world, 7)
        world.meanwhile = [partial(insert, world, high + 5)]
        assert {one.outcome for one in in_step(NAME, newest_only(), world, 1)} == {Outcome.PASS}
        high += 6
    in_step(NAME, newest_only(), world, 2)

    assert high - 200 + 30 <= world.asked_rows <= 1.1 * (high - 200 + 30)


def test_more_new_rows_than_one_cycle_reads_are_read_in_turn(world: FakeWorld) -> None:
    narrow = newest_only(changed_rows=4)
    in_step(NAME, narrow, world, 2)
    insert(world, *range(200, 260), lost=257)

    found = in_step(NAME, narrow, world, 40)

    assert found[-1].keys == ("shop/shop_00.orders:257",)


def test_a_lost_row_at_the_end_is_found_though_its_cycle_was_given_up(world: FakeWorld) -> None:
    """The mirror was put back after the look that read it."""
    in_step(NAME, newest_only(), world, 2)
    insert(world, *range(200, 206), lost=202)
    in_step(NAME, newest_only(), world, 1)
    looked = world.memory[NAME]["changed"]["newest"][str(ONE)]
    world.applied -= 1
    run_probe(Check(NAME, newest_only(), TABLE), world)

    found = in_step(NAME, newest_only(), world, 4)

    assert looked == [205, 205]
    assert found[-1].keys == ("shop/shop_00.orders:202",)


def test_ids_that_start_over_are_newest_again(world: FakeWorld) -> None:
    in_step(NAME, newest_only(), world, 2)
    world.truncate(ONE)
    in_step(NAME, newest_only(), world, 3)
    insert(world, *range(20), lost=10)

    found = in_step(NAME, newest_only(), world, 4)

    assert found[-1].keys == ("shop/shop_00.orders:10",)


def drop_changes(world: FakeWorld) -> None:
    """Rows are changed for days, and the change log drops all of that but the newest batch."""
    world.tick(timedelta(days=2))
    world.catch_up()
    world.catch_up()
    world.dropped = world.landed_batch() - 1


def test_changed_rows_of_dropped_batches_are_not_taken_for_compared() -> None:
    """The check was switched off, and meanwhile a merge has lost the change of row 3."""
    world, few = lapped()
    update(world, 3)
    world.catch_up()
    world.copied_contents[ONE, 3] -= 1
    drop_changes(world)
    update(world, 7)

    found = rule(few, world, 3)
    wrong = rule(replace(few, ranges=400), world, 3)

    assert [one.ruling.outcome for one in found] == [Outcome.PASS] * len(found)
    assert [one.verified.oldest for one in found[1:] if one.verified] == [None, None]
    assert "each row" not in found[1].ruling.reason
    assert wrong[-1].ruling.keys == ("shop/shop_00.orders:3",)


def test_after_dropped_batches_the_claim_begins_with_a_new_lap() -> None:
    world, few = lapped()
    drop_changes(world)
    began = world.now

    found = rule(replace(few, ranges=400), world, 8)

    assert all(at > began for at in through(found[1:]))
    last = found[-1].verified
    assert last is not None
    assert last.oldest is not None
    assert last.oldest > began
    assert last.through is not None


def test_batches_that_are_dropped_between_the_rounds_of_a_segment_begin_a_lap_once() -> None:
    world, narrow = lapped(changed_rows=5)
    update(world, *range(100, 110))
    world.catch_up()
    update(world, *range(110, 130))
    rule(narrow, world, 2)
    before, segment = progress(world).since, progress(world).segment
    assert segment.last is not None
    world.dropped = segment.until - 1
    world.tick(timedelta(days=2))

    rule(narrow, world, 2)
    since = progress(world).since
    rule(replace(narrow, ranges=400), world, 12)

    assert before < since == progress(world).since
    coverage = world.memory[NAME]["coverage"]
    assert all(Coverage.loads(own).oldest is not None for own in coverage.values())


@pytest.mark.parametrize("harm", ["doubled", "missing", "other"])
def test_a_wrong_row_is_no_pass_however_often_it_changes(harm: str) -> None:
    """Its changes explain what the source has; the mirror must have what the last one made."""
    world, found = made(40), list[Verdict]()
    for _ in range(20):
        world.commit((Op.UPDATE, TWO, 3))
        world.catch_up()
        if harm == "missing":
            world.copy[TWO].pop(3, None)
        elif harm == "doubled":
            world.copy[TWO][3] = 2
        else:
            world.copied_contents[TWO, 3] = 77_777
        world.commit((Op.UPDATE, TWO, 3))
        answer = run_probe(Check("values", Values(), TABLE), world)
        found += [answer] if isinstance(answer, Verdict) else []

    assert found
    assert Outcome.PASS not in {one.ruling.outcome for one in found}
