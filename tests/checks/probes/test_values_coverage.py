"""Each row is compared within the promised time, or the check says that it is not."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from checks.compare import look
from checks.compare.look import Comparison, choose_columns, look_again
from checks.counting import AGAIN
from checks.model import Outcome, Verdict, Verified
from checks.probes.values import NAME, READ, SHORTEST_LAP, Values
from checks.run import Check, run_probe
from checks.world import Allowance, Range
from pipeline.errors import SlowError, TooManyRowsError, UnreachableError
from pipeline.model import Op, Shard
from pipeline.row_digest import VERSION
from tests.checks.world_fake import ONE, TABLE, TWO, Event, FakeSource, FakeWorld, in_step

CYCLE = timedelta(seconds=20)
VALUED = {"id": "bigint", "v": "int"}


@pytest.fixture
def world() -> FakeWorld:
    """Sixteen blocks in each of two shards, in step."""
    made = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    made.alter(ONE, v="int")
    made.alter(TWO, v="int")
    made.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(256)))
    made.catch_up()
    return made


def probe(**more: Any) -> Values:
    return Values(**{"block_rows": 16, "newest": 1, "rotating": 0, **more})


def cycles(world: FakeWorld, many: int, **settings: Any) -> list[Verdict]:
    """Verdicts of so many rounds, each after a cycle's time."""
    found = []
    for _ in range(many):
        world.time += CYCLE
        world.catch_up()
        answer = run_probe(Check(NAME, probe(**settings), TABLE), world)
        found += [answer] if isinstance(answer, Verdict) else []
    return found


def compared(verdicts: Sequence[Verdict]) -> list[Verified]:
    return [one.verified for one in verdicts if one.verified is not None]


def test_nothing_is_verified_before_all_rows_were_compared_once(world: FakeWorld) -> None:
    """Five older blocks of each shard in a cycle: three cycles for fifteen."""
    found = compared(cycles(world, 6, ranges=10))

    assert [one.oldest is None for one in found] == [True, True, False, False, False]
    assert [one.through is None for one in found] == [True, True, False, False, False]
    times = [one.through for one in found if one.through is not None]
    assert times == sorted(times)
    assert world.time - times[-1] <= 2 * CYCLE + timedelta(seconds=1)


def test_after_the_first_lap_a_cycle_compares_as_much_as_the_promise_needs(
    world: FakeWorld,
) -> None:
    """Each row within ten minutes: a lap in nine, with ranges as wide as a cycle's part of it."""
    settings = {"ranges": 20, "within": timedelta(minutes=10)}
    cycles(world, 6, **settings)
    older, ages = 0, list[timedelta]()
    for _ in range(60):
        (one,) = compared(cycles(world, 1, **settings))
        older += _older_ids(world)
        assert one.oldest is not None
        ages.append(world.time - one.oldest)

    assert 2 * 240 * 60 * CYCLE / timedelta(minutes=10) <= older
    assert older <= 2 * 256 * 60 * CYCLE / timedelta(minutes=9)
    assert timedelta(minutes=8) <= max(ages) <= timedelta(minutes=10)


@pytest.mark.parametrize("unsettled", ["never read in time", "keeps moving"])
def test_a_row_that_is_not_settled_does_not_keep_the_pace_of_the_first_lap(
    world: FakeWorld, unsettled: str
) -> None:
    """Its range is open, and never verified; a lap over the others takes nine of ten minutes."""
    settings = {"ranges": 20, "within": timedelta(minutes=10), "newest": 0}
    moves, rounds = unsettled == "keeps moving", 50
    world.huge = set() if moves else {(ONE, 100)}
    older, found = dict[str, int](), list[Verdict]()
    for number in range(2 * rounds):
        if moves:
            world.commit((Op.UPDATE, ONE, 100))
            world.contents[ONE, 100] += 1
        found += cycles(world, 1, **settings)
        memory = world.memory[NAME]
        if number >= rounds:
            older[memory["began"]] = sum(
                high - low
                for low, high in memory["ranges"][str(ONE)]
                if low >= 0 and high <= 256 and not low <= 100 < high
            )

    assert {one.oldest for one in compared(found)} == {None}
    assert Outcome.PASS not in {one.ruling.outcome for one in found}
    lap = 256 * rounds * CYCLE / timedelta(minutes=9)
    assert 0.8 * lap <= sum(older.values()) <= 1.2 * lap


def test_older_rows_are_compared_for_changed_ones(world: FakeWorld) -> None:
    """Eight rows of a shard change in each cycle: at a half, four others are compared with them."""
    cycles(world, 6, share=0.5)
    older = []
    for n in range(40):
        world.commit(*((Op.UPDATE, ONE, 8 * n % 256 + id_) for id_ in range(8)))
        cycles(world, 1, share=0.5)
        older.append(_older_ids(world))

    assert older[0] == 0
    assert set(older[1:]) == {4}


def test_a_pause_is_made_up_for_by_what_is_due(world: FakeWorld) -> None:
    """The service was stopped for half of the promised time: those ranges are compared at once."""
    settings = {"ranges": 40, "within": timedelta(hours=10)}
    cycles(world, 6, **settings)
    world.time += timedelta(hours=5)
    cycles(world, 1, **settings)
    made_up = _older_ids(world)
    cycles(world, 1, **settings)

    assert 2 * 256 * 5 / 9 - 2 * 16 <= made_up <= 2 * 256 * 5 / 9 + 2
    assert _older_ids(world) <= 2 * 16


@pytest.mark.parametrize("ranges", [0, 1, 3])
def test_no_cycle_compares_more_older_ranges_of_a_table_than_it_may(
    world: FakeWorld, ranges: int
) -> None:
    edges_and_newest = 3
    cycles(world, 1, ranges=ranges, rotating=5)
    for _ in range(40):
        before = world.asked
        found = compared(cycles(world, 1, ranges=ranges, rotating=5))
        assert world.asked - before <= 2 * edges_and_newest + ranges

    assert (found[-1].oldest is not None) == bool(ranges)
    assert found[-1].lapless == (not ranges)


def test_a_row_that_differs_without_any_change_is_found_within_a_lap(world: FakeWorld) -> None:
    cycles(world, 8, ranges=2)
    world.contents[TWO, 100] += 1

    found = cycles(world, 40, ranges=2)

    assert [one.ruling.keys for one in found][-1] == ("shop/shop_01.orders:100",)


def test_a_budget_that_cannot_keep_the_promise_is_unknown_with_figures(world: FakeWorld) -> None:
    *_, last = cycles(world, 4, ranges=2, within=timedelta(minutes=2))

    assert (last.ruling.outcome, last.ruling.code) == (Outcome.UNKNOWN, "behind")
    assert "16 ranges, 1 of them every 20 s, take 5.3 minutes" in last.ruling.reason
    assert "and not 2.0 minutes; raise `ranges`" in last.ruling.reason


def test_rows_that_were_not_compared_in_time_are_unknown(world: FakeWorld) -> None:
    """A table was paused for a day."""
    cycles(world, 8, within=timedelta(hours=12))
    world.time += timedelta(days=1)

    found = cycles(world, 1, ranges=2, within=timedelta(hours=12))

    assert [one.ruling.code for one in found] == ["behind"]
    assert "were not compared since" in found[0].ruling.reason
    assert "UTC, not `within` 12h; if that stays so, increase `within`" in found[0].ruling.reason


def test_the_shortest_lap_that_a_config_may_promise_is_kept(world: FakeWorld) -> None:
    settings = {"ranges": 40, "within": SHORTEST_LAP * CYCLE}
    cycles(world, 8, **settings)

    found = cycles(world, 30, **settings)

    assert {one.ruling.outcome for one in found} == {Outcome.PASS}


def test_a_lap_that_begins_again_and_again_is_behind(world: FakeWorld) -> None:
    """Each cycle has a row that was read anew, as from a snapshot in parts."""
    found = []
    for _ in range(12):
        world.log_.append(Event(Op.READ, ONE, 200, content=world.contents.get((ONE, 200), 0)))
        found += cycles(world, 1, ranges=8, within=timedelta(minutes=3))

    assert found[-1].ruling.code == "behind"
    assert "were not compared since" in found[-1].ruling.reason


def altered_cycles(world: FakeWorld, many: int, **settings: Any) -> list[Verdict]:
    """Verdicts of cycles with a statement before each third one that leaves the columns alike."""
    found = []
    for n in range(many):
        if n % 3 == 0:
            world.alter(ONE, v="int")
        found += cycles(world, 1, **settings)
    return found


def test_a_lap_that_statements_begin_again_is_behind(world: FakeWorld) -> None:
    assert compared(cycles(world, 6))[-1].oldest is not None

    found = altered_cycles(world, 45, ranges=2, within=timedelta(minutes=10))

    assert found[0].ruling.outcome is Outcome.PASS
    assert {one.oldest for one in compared(found)} == {None}
    assert found[-1].ruling.code == "behind"
    assert f"rows of {ONE} were not compared since" in found[-1].ruling.reason


def test_a_lap_that_statements_begin_again_comes_to_the_lowest_ids(world: FakeWorld) -> None:
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.contents[ONE, 3] += 1

    found = altered_cycles(world, 45, ranges=2)

    assert f"{ONE}:3" in {key for one in found for key in one.ruling.keys}


@pytest.mark.parametrize(
    "clause",
    [
        "ADD PARTITION (PARTITION p20260303 VALUES LESS THAN (20260304))",
        "ADD INDEX by_v (v), ALGORITHM=INPLACE",
        "COMMENT 'orders'",
    ],
)
def test_a_statement_that_leaves_columns_and_values_alike_begins_no_lap(
    world: FakeWorld, clause: str
) -> None:
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.alter(ONE, clause, v="int")

    found = cycles(world, 4, ranges=2)

    assert None not in {one.oldest for one in compared(found)}
    assert {one.ruling.outcome for one in found} == {Outcome.PASS}


@pytest.mark.parametrize(
    "clause",
    [
        "TRUNCATE PARTITION p20260301",
        "DROP PARTITION p20260301",
        "EXCHANGE PARTITION p20260301 WITH TABLE shop_00.old",
        "MODIFY v INT",
        "CONVERT TO CHARACTER SET utf8mb4",
        "COMMENT 'x', WOBBLE",
    ],
)
def test_a_statement_that_may_have_changed_values_begins_a_lap(
    world: FakeWorld, clause: str
) -> None:
    """The described columns are the same: rows left without an event, or texts were recoded."""
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.alter(ONE, clause, v="int")

    assert {one.oldest for one in compared(cycles(world, 4, ranges=2))} == {None}


@pytest.mark.parametrize("columns", ["altered", "as they were, in a new base"])
def test_what_was_compared_before_a_lap_began_again_counts_for_the_promised_time(
    world: FakeWorld, columns: str
) -> None:
    """The lap before ended eight minutes ago; this one takes longer than the two that are left."""
    settings: dict[str, Any] = {"ranges": 2, "within": timedelta(minutes=10)}
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.time += timedelta(minutes=8)
    for shard in (ONE, TWO):
        if columns == "altered":
            world.alter(shard, v="int")
        else:
            world.snapshot(shard)

    found = cycles(world, 8, **settings)

    assert found[-1].ruling.code == "behind"
    assert f"rows of {ONE} were not compared since" in found[-1].ruling.reason
    assert cycles(world, 40, **settings)[-1].ruling.outcome is Outcome.PASS


def test_open_ranges_of_a_shard_that_is_gone_are_forgotten(world: FakeWorld) -> None:
    for id_ in range(20, 60):
        world.contents[TWO, id_] = 100
    cycles(world, 4, ranges=40, suspects=2)
    assert str(TWO) in world.memory[NAME]["open"]
    table = replace(TABLE, shards=(ONE,))
    for _ in range(6):
        world.catch_up()
        answer = run_probe(Check(NAME, probe(ranges=40, suspects=2), table), world)

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.PASS


def test_an_emptied_shard_is_compared_anew(world: FakeWorld) -> None:
    """The log does not name the rows that a TRUNCATE removes; one of them stays in the mirror."""
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.truncate(ONE)
    world.commit(*((Op.CREATE, ONE, id_) for id_ in range(256) if id_ != 100))
    world.catch_up()
    world.copy[ONE][100] = 1

    found = cycles(world, 30, ranges=2)

    assert [one.oldest is None for one in compared(found)][:5] == [False, True, True, True, True]
    assert found[-1].ruling.keys == ("shop/shop_00.orders:100",)


@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_after_a_gap_or_a_quarantine_all_rows_are_compared_anew_also_if_it_is_waived(
    world: FakeWorld, rounds: int
) -> None:
    """The log does not name the rows that were lost, and a waiver brings none of them."""
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.commit((Op.UPDATE, ONE, 100))
    world.contents[ONE, 100] = 7
    world.log_[-2].lost = True
    world.open_losses.add("orders:0:7@9")

    found = cycles(world, rounds, ranges=2)
    world.open_losses.clear()
    found += cycles(world, 30 - rounds, ranges=2)

    oldest = [one.oldest is None for one in compared(found)]
    assert oldest[:5] == [False, True, True, True, True]
    assert found[-1].ruling.keys == ("shop/shop_00.orders:100",)


def test_a_loss_of_one_shard_begins_no_lap_of_others(world: FakeWorld) -> None:
    assert compared(cycles(world, 6))[-1].oldest is not None
    before = world.memory[NAME]["coverage"]
    world.open_losses.add("orders:0:7@9")
    world.lossy = {ONE}

    cycles(world, 2, ranges=2)

    after = world.memory[NAME]["coverage"]
    begun = {own for own in after if after[own]["valid_from"] != before[own]["valid_from"]}
    assert begun == {str(ONE)}


def test_a_gap_that_stays_open_begins_one_lap(world: FakeWorld) -> None:
    world.open_losses.add("orders:0:7@9")

    found = compared(cycles(world, 8))

    assert found[-1].oldest is not None


def test_rows_of_a_new_base_are_compared_by_ranges_and_are_no_changed_rows(
    world: FakeWorld,
) -> None:
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.snapshot(ONE)
    world.copy[ONE].pop(100)

    found = cycles(world, 30, ranges=2, changed_rows=8)

    oldest = [one.oldest is None for one in compared(found)]
    assert oldest[:5] == [False, True, True, True, True]
    assert found[-1].ruling.keys == ("shop/shop_00.orders:100",)
    assert "behind" not in {one.ruling.code for one in found}


def test_a_lap_after_a_new_base_begins_once_however_many_rows_have_changed(
    world: FakeWorld,
) -> None:
    """Its batch changed two hundred rows, too: twenty cycles, ten at a time."""
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.snapshot(ONE)
    world.commit(*((Op.UPDATE, TWO, id_) for id_ in range(200)))
    world.catch_up()

    found = cycles(world, 12, ranges=20, changed_rows=10)

    assert found[-1].verified is not None
    assert found[-1].verified.oldest is not None
    assert any("10 changed rows" in one.ruling.reason for one in found)


def test_new_columns_are_compared_anew(world: FakeWorld) -> None:
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.alter(ONE, v="int", more="int")

    assert {one.oldest for one in compared(cycles(world, 4, ranges=2))} == {None}


def test_a_column_that_has_the_same_form_after_a_statement_is_compared_anew(
    world: FakeWorld,
) -> None:
    """It was altered, or dropped and added again: the log names none of its rows."""
    assert compared(cycles(world, 6))[-1].oldest is not None
    world.alter(ONE, v="bigint")
    assert {one.oldest for one in compared(cycles(world, 4, ranges=2))} == {None}
    assert compared(cycles(world, 30))[-1].oldest is not None
    world.alter(ONE)
    world.alter(ONE, v="bigint")

    assert {one.oldest for one in compared(cycles(world, 4, ranges=2))} == {None}


def test_a_range_that_is_open_stays_so_after_the_source_was_silent(world: FakeWorld) -> None:
    """Its other rows were put right; one still differs, and was not named.

    After a look that failed, open ranges are no part of the next one.
    """
    assert compared(cycles(world, 8))[-1].oldest is not None
    for id_ in range(20, 25):
        world.contents[ONE, id_] = 100
    cycles(world, 2, ranges=40, rotating=20, suspects=2, tries=1)
    world.allowed, world.refusal = 0, UnreachableError("source:shop: down")
    (opened,) = cycles(world, 1, ranges=40, rotating=20, suspects=2, tries=1)
    assert opened.ruling.outcome is Outcome.FAIL
    assert world.memory[NAME]["open"]
    assert [str(ONE), 24] not in world.memory[NAME]["found"]
    for id_ in range(20, 24):
        world.copied_contents[ONE, id_] = 100
    cycles(world, 3, ranges=0, suspects=2, tries=1)
    world.allowed = 1_000_000

    found = cycles(world, 8, ranges=0, suspects=2, tries=1)

    assert Outcome.PASS not in {one.ruling.outcome for one in found}
    assert found[-1].ruling.keys == ("shop/shop_00.orders:24",)


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(TooManyRowsError("too many rows"), id="too many rows"),
        pytest.param(SlowError("source:shop: slow"), id="too slow"),
    ],
)
def test_an_open_range_that_has_become_too_large_is_looked_at_in_parts(refusal: Exception) -> None:
    """A hundred rows of its blocks were lost; all are repaired, but for one that differs."""
    world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    ids = range(0, 64 * 256, 64)
    world.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in ids))
    world.catch_up()
    settings = {"ranges": 20, "suspects": 5, "newest": 0, "within": timedelta(minutes=5)}
    cycles(world, 10, **settings)
    for id_ in ids[:100]:
        world.copy[ONE].pop(id_)
    cycles(world, 20, **settings)
    assert len(world.memory[NAME]["open"][str(ONE)]) > 2
    world.allowed, world.listed, world.refusal = 10, 10, refusal
    world.copy[ONE].update(ids[:100])
    world.contents[ONE, ids[99]] += 1

    found = cycles(world, 60, **settings)

    assert Outcome.PASS not in {one.ruling.outcome for one in found}
    assert found[-1].ruling.keys == (f"{ONE}:{ids[99]}",)
    world.copied_contents[ONE, ids[99]] += 1
    assert cycles(world, 20, **settings)[-1].ruling.outcome is Outcome.PASS
    assert not any(world.memory[NAME]["open"].values())


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(TooManyRowsError("too many rows"), id="too many rows"),
        pytest.param(SlowError("source:shop: slow"), id="too slow"),
    ],
)
def test_a_range_whose_rows_a_source_does_not_list_is_not_compared(
    world: FakeWorld, refusal: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a row of it, so its parts remain open, and no lap ends."""

    def row_digests(*_: Any) -> Any:
        raise refusal

    world.contents[ONE, 100] += 1
    monkeypatch.setattr(FakeSource, "row_digests", row_digests)

    found = cycles(world, 8, newest=1)

    assert {one.oldest for one in compared(found)} == {None}
    assert {(one.ruling.outcome, one.ruling.code) for one in found[4:]} == {
        (Outcome.UNKNOWN, "not_all_asked")
    }
    opened = world.memory[NAME]["open"]
    assert [one for one in opened[str(ONE)] if one[0] <= 100 < one[1]] == [[100, 101]]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(TooManyRowsError("too many rows"), id="too many rows"),
        pytest.param(SlowError("source:shop: slow"), id="too slow"),
    ],
)
def test_a_range_whose_rows_a_source_does_not_list_is_read_in_parts(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """It adds up their digests; a row that was changed is wrong, too."""
    settings: dict[str, Any] = {"newest": 0, "within": timedelta(minutes=10)}
    cycles(world, 6, **settings)
    rows, refused = FakeSource.row_digests, list[Range]()

    def row_digests(own: FakeSource, shard: Shard, column: str, span: Range, *more: Any) -> Any:
        found = rows(own, shard, column, span, *more)
        if len(found) > 10:
            refused.append(span)
            raise refusal
        return found

    monkeypatch.setattr(FakeSource, "row_digests", row_digests)
    world.contents[ONE, 100] += 1
    world.commit((Op.UPDATE, TWO, 7))
    world.catch_up()
    world.copied_contents[TWO, 7] += 1

    found = cycles(world, 60, **settings)

    assert "unreachable" not in {one.ruling.code for one in found}
    assert found[-1].ruling.keys == (f"{ONE}:100", f"{TWO}:7")
    assert len(refused) <= 2
    world.copied_contents[ONE, 100] += 1
    world.copied_contents[TWO, 7] -= 1
    assert cycles(world, 6, **settings)[-1].ruling.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("opened", "allowed", "ranges", "left"),
    [
        pytest.param(
            [(0, 16), (16, 48), (48, 64)], 32, [(0, 16), (16, 48), (48, 64)], None, id="all fit"
        ),
        pytest.param([(0, 16), (16, 48), (48, 64)], 16, [(0, 16)], None, id="not the second"),
        pytest.param(
            *([(16, 80), (80, 96)], 16, [(16, 32)], [(16, 32), (32, 48), (48, 80), (80, 96)]),
            id="not the first",
        ),
        pytest.param([(8, 9), (16, 80)], 0, [], [(16, 80), (8, 9)], id="not even one id"),
        pytest.param([], 0, [], None, id="there are none"),
    ],
)
def test_open_ranges_that_are_too_large_together_are_fewer_and_only_a_large_one_is_narrower(
    world: FakeWorld,
    opened: list[Range],
    allowed: int,
    ranges: list[Range],
    left: list[Range] | None,
) -> None:
    schema = world.schema(ONE)
    assert schema is not None
    world.allowed = allowed
    comparison = Comparison(TABLE, world, {ONE: choose_columns(TABLE, ONE, schema, world)})

    found = look_again(comparison, ONE, opened, AGAIN)

    assert ([*found.ranges], [*found.opened]) == (ranges, opened if left is None else left)
    assert sum(one.ranges for one in found.looks) == len(ranges)


def test_a_range_that_is_not_settled_is_not_compared(world: FakeWorld) -> None:
    """It has more rows that differ than one cycle names."""
    for id_ in range(48):
        world.contents[ONE, id_] += 1

    found = cycles(world, 8, suspects=1)

    assert {one.oldest for one in compared(found)} == {None}
    assert found[-1].ruling.outcome is Outcome.FAIL


def test_many_open_ranges_are_taken_in_turn_and_none_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each row of a hundred blocks differs, in both shards."""
    world, read = FakeWorld(columns={ONE: VALUED, TWO: VALUED}), list[tuple[Shard, Range]]()
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    world.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(200)))
    world.catch_up()
    differ(world, 1)
    settings = {"ranges": 1000, "suspects": 20, "tries": 1, "block_rows": 2}
    cycles(world, 3, **settings)
    first = world.memory[NAME]["open"]
    assert min(len(spans) for spans in first.values()) > AGAIN
    rows = FakeSource.row_digests

    def row_digests(own: FakeSource, shard: Shard, column: str, span: Range, *more: Any) -> Any:
        read.append((shard, span))
        return rows(own, shard, column, span, *more)

    monkeypatch.setattr(FakeSource, "row_digests", row_digests)
    for _ in range(24):
        before = world.asked, len(read)
        cycles(world, 2, **settings)
        assert world.asked - before[0] <= 2 * (AGAIN + 16)
        assert len(read) - before[1] <= 2 * READ

    assert {(str(shard), *span) for shard, span in read} >= {
        (own, low, high) for own, spans in first.items() for low, high in spans
    }
    differ(world, -1)
    found = [one.ruling.outcome for one in cycles(world, 16, **settings)]
    assert found[0] is Outcome.UNKNOWN
    assert found[-1] is Outcome.PASS
    assert not any(world.memory[NAME]["open"].values())


def differ(world: FakeWorld, by: int) -> None:
    for shard in (ONE, TWO):
        for id_ in range(200):
            world.contents[shard, id_] += by


def test_in_step_all_pass(world: FakeWorld) -> None:
    found = in_step(NAME, probe(), world, 6)

    assert {one.outcome for one in found} == {Outcome.PASS}
    assert "each row was compared since" in found[-1].reason


def test_a_source_without_rows_to_spare_has_an_even_lap_within_the_promise(
    world: FakeWorld,
) -> None:
    """256 ids in each of two shards in nine minutes: some ten in a cycle."""
    world.allowed_now = Allowance(rows=0)
    older = list[int]()
    for _ in range(60):
        found = compared(cycles(world, 1, ranges=20, rotating=5, within=timedelta(minutes=10)))
        older.append(_older_ids(world))

    assert max(older) <= 3 * 16  # at the end of a lap, parts of blocks
    assert sum(older) <= 2 * 256 * 60 * CYCLE / timedelta(minutes=9) + 2 * 16
    oldest = found[-1].oldest
    assert oldest is not None
    assert world.time - oldest <= timedelta(minutes=10)


def _older_ids(world: FakeWorld) -> int:
    """Ids of the older ranges of the last look: not of the newest block, nor of the edges."""
    spans = [span for own in world.memory[NAME]["ranges"].values() for span in own]
    return sum(high - low for low, high in spans if low >= 0 and high <= 240)


def test_the_first_lap_takes_what_the_source_has_to_spare(world: FakeWorld) -> None:
    """Room for three blocks: the newest of the shard, and two older ones."""
    world.allowed_now = Allowance(rows=3 * 16 + 15)
    before = world.asked

    cycles(world, 1, ranges=20)

    edges_and_newest = 3
    assert world.asked - before == 2 * (edges_and_newest + 2)


PRESSED = "checks of source shop waited 20 s in the last 60 s"


def test_changed_rows_that_wait_for_the_budget_are_unknown_with_figures(world: FakeWorld) -> None:
    cycles(world, 6)
    world.allowed_now = Allowance(0, PRESSED)
    world.time += timedelta(minutes=3)

    (found,) = cycles(world, 1)

    assert (found.ruling.outcome, found.ruling.code) == (Outcome.UNKNOWN, "behind")
    assert found.ruling.reason.endswith(f" wait, for 200 s so far; {PRESSED}")
    assert found.cause == "budget:shop"


def test_a_lap_that_takes_too_long_names_the_budget_that_is_used_up(world: FakeWorld) -> None:
    world.allowed_now = Allowance(0, PRESSED)

    *_, last = cycles(world, 4, ranges=2, within=timedelta(minutes=2))

    assert last.ruling.reason.endswith(f"and not 2.0 minutes; raise `ranges`; {PRESSED}")
    assert last.cause == "budget:shop"


def test_a_promise_that_is_kept_is_no_unknown_while_others_wait(world: FakeWorld) -> None:
    cycles(world, 6)
    world.allowed_now = Allowance(0, PRESSED)

    found = cycles(world, 6)

    assert {(one.ruling.outcome, one.cause) for one in found} == {(Outcome.PASS, "")}


def test_a_finding_is_no_matter_of_the_budget(world: FakeWorld) -> None:
    cycles(world, 6)
    world.allowed_now = Allowance(0, PRESSED)
    world.copy[ONE].pop(255)
    world.time += timedelta(minutes=3)

    *_, found = cycles(world, 4)

    assert (found.ruling.code, found.cause) == ("missing_rows", "")


@pytest.mark.parametrize("rows", [0, 30, 65, 1000])
@pytest.mark.parametrize("sparse", [1, 2500])
def test_every_row_and_every_gap_is_compared_within_the_promise(rows: int, sparse: int) -> None:
    """With the settings that Sluice has by itself: 16 days, in cycles of two hours."""
    world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    ids = [sparse * one for one in range(1, rows + 1)]
    world.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in ids))
    world.catch_up()
    found = list[Verdict]()
    for _ in range(16 * 12):
        world.time += timedelta(hours=2)
        world.catch_up()
        answer = run_probe(Check(NAME, Values(), TABLE), world)
        found += [answer] if isinstance(answer, Verdict) else []

    assert {one.ruling.outcome for one in found} == {Outcome.PASS}


def test_a_row_that_only_the_mirror_has_above_the_highest_id_is_found_by_a_lap(
    world: FakeWorld,
) -> None:
    settings: dict[str, Any] = {"newest": 0, "block_rows": 4096, "within": timedelta(minutes=20)}
    cycles(world, 6, **settings)
    world.copy[ONE][1500] = 1

    keys = {key for one in cycles(world, 60, **settings) for key in one.ruling.keys}

    assert keys == {"shop/shop_00.orders:1500"}


def test_new_rows_that_a_source_does_not_list_at_once_are_read_in_parts(world: FakeWorld) -> None:
    settings: dict[str, Any] = {"newest": 0, "ranges": 20}
    cycles(world, 4, **settings)
    world.listed, top, found = 100, 256, list[Verdict]()
    for _ in range(20):
        world.commit(*((Op.CREATE, ONE, top + n) for n in range(150)))
        top += 150
        found += cycles(world, 1, **settings)

    assert {one.ruling.outcome for one in found} == {Outcome.PASS}


def test_changes_that_no_range_pays_for_are_a_debt_of_one_lap_at_most(world: FakeWorld) -> None:
    for _ in range(40):
        world.commit(*((Op.UPDATE, ONE, id_) for id_ in range(256)))
        cycles(world, 1, ranges=0, share=1.0)

    assert world.memory[NAME]["debts"][str(ONE)][1] <= 2 * 256


@pytest.mark.parametrize("far", [2**62, -(2**62), 2**31 - 1])
def test_one_id_far_from_all_others_delays_nothing_and_hides_no_row(far: int) -> None:
    """The source refuses ranges with all other rows, which one block would hold else."""
    world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    world.commit(*((Op.CREATE, one, id_) for one in (ONE, TWO) for id_ in range(300)))
    world.allowed = 100
    settings = {"block_rows": 16, "newest": 0, "ranges": 20, "within": timedelta(minutes=20)}
    cycles(world, 12, **settings)
    world.commit((Op.CREATE, ONE, far))
    world.catch_up()
    del world.copy[ONE][77]

    found = cycles(world, 90, **settings)

    assert {one.ruling.outcome for one in found} == {Outcome.PASS, Outcome.FAIL}
    assert found[-1].ruling.outcome is Outcome.FAIL
    assert "shop_00.orders:77" in found[-1].ruling.reason


def test_where_ids_lie_is_learned_once_and_again_where_they_reach_farther(world: FakeWorld) -> None:
    settings = {"block_rows": 16, "newest": 0}
    scans = list[int]()

    def learned() -> list[Any]:
        memory = world.recall(TABLE, NAME)
        assert memory is not None
        return [memory["scales"][str(shard)] for shard in (ONE, TWO)]

    for far in (None, None, 10_000, None):
        if far is not None:
            world.commit((Op.CREATE, ONE, far))
        cycles(world, 3, **settings)
        scans.append(len({one[0] for one in learned()}))

    first, second = learned()
    assert first[1] == 10_001
    assert second[1] == 256
    assert len(first[2]) > 2
    assert second[2] == []
    assert scans == [1, 1, 2, 2]


def test_wrong_rows_that_are_too_many_are_found_again_by_their_ranges(world: FakeWorld) -> None:
    """So what is remembered and read by id has a bound, and changed rows wait for none of them."""
    settings: dict[str, Any] = {"block_rows": 16, "newest": 0, "rotating": 4, "suspects": 20}
    cycles(world, 12, **settings)
    for shard in (ONE, TWO):
        for id_ in range(256):
            world.copied_contents[shard, id_] += 1

    pending, read = list[int](), list[int]()
    for _ in range(40):
        before = world.asked_rows
        cycles(world, 1, **settings)
        memory = world.recall(TABLE, NAME)
        assert memory is not None
        pending.append(len(memory["progress"]["pending"]))
        read.append(world.asked_rows - before)
    broken = cycles(world, 3, **settings)[-1].ruling
    for shard in (ONE, TWO):
        for id_ in range(256):
            world.copied_contents[shard, id_] -= 1
    mended = cycles(world, 90, **settings)

    assert broken.outcome is Outcome.FAIL
    assert broken.keys
    assert "more rows differ" in broken.reason
    assert max(pending) == 0
    assert max(read) <= 400
    assert mended[-1].ruling.outcome is Outcome.PASS
    assert mended[-1].verified is not None
    assert mended[-1].verified.oldest is not None


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param([*range(1, 401)], id="without gaps"),
        pytest.param([*range(1, 401), 2**62], id="one far above"),
        pytest.param([*range(1, 201), *range(7 << 50, (7 << 50) + (200 << 22), 1 << 22)], id="two"),
        pytest.param([number**2 for number in range(400)], id="ever sparser"),
    ],
)
def test_a_lap_reads_each_row_once_however_ids_lie(ids: list[int]) -> None:
    """For two weeks after the first lap, in cycles of two hours, with laps of 6.3 days."""
    world, block = FakeWorld(columns={ONE: VALUED, TWO: VALUED}), 16
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    world.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in ids))
    world.catch_up()
    cycles(world, 12, block_rows=block, newest=0)
    rows, seen = list[int](), ""
    for _ in range(14 * 12):
        world.time += timedelta(hours=2)
        world.catch_up()
        run_probe(Check(NAME, Values(block_rows=block), TABLE), world)
        memory = world.memory[NAME]
        if memory["began"] != seen:
            seen = memory["began"]
            rows.append(sum(one["rows"] for one in memory["looks"]))

    assert 1.8 <= sum(rows) / (2 * len(ids)) <= 3
    assert max(rows) <= 2 * 4 * block


def sparse_world(ids: Sequence[int]) -> FakeWorld:
    """Two shards with *ids*, whose source refuses ranges of more than 100 rows."""
    world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    world.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in ids))
    world.catch_up()
    world.allowed = 100
    return world


SPARSE: dict[str, Any] = {
    "block_rows": 16,
    "newest": 0,
    "ranges": 20,
    "within": timedelta(minutes=20),
}


def test_rows_that_the_mirror_has_lost_are_named_where_it_says_how_ids_lie() -> None:
    """Their ids have one place, and the source does not let them all be counted."""
    world = sparse_world(range(300))
    for id_ in range(60, 240):
        del world.copy[ONE][id_]

    found = cycles(world, 60, **SPARSE)

    assert found[-1].ruling.code == "missing_rows"
    assert "180 rows missing" in found[-1].ruling.reason
    world.commit((Op.UPDATE, TWO, 7))
    world.catch_up()
    world.copied_contents[TWO, 7] += 5
    assert "1 row different" in cycles(world, 20, **SPARSE)[-1].ruling.reason


def test_rows_that_fill_a_gap_are_compared() -> None:
    """The gap has one place since it was empty."""
    world = sparse_world([*range(120), *range(10**9, 10**9 + 120)])
    cycles(world, 12, **SPARSE)
    world.commit(*((Op.CREATE, ONE, id_) for id_ in range(120, 320)))
    world.catch_up()
    settled = cycles(world, 70, **SPARSE)
    del world.copy[ONE][200]

    found = cycles(world, 100, **SPARSE)

    assert settled[-1].ruling.outcome is Outcome.PASS
    assert "shop_00.orders:200" in found[-1].ruling.reason


def test_a_range_with_more_rows_than_are_listed_is_divided_until_its_row_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look, "MOST_ROWS", 40)
    world = sparse_world(range(300))
    cycles(world, 12, **SPARSE)
    del world.copy[ONE][60]

    found = cycles(world, 240, **SPARSE)

    assert found[-1].ruling.keys == ("shop/shop_00.orders:60",)


def test_a_lap_in_the_memory_of_an_earlier_version_proves_nothing_of_the_mirror(
    world: FakeWorld,
) -> None:
    """It does not say which mirror was compared; UNKNOWN is not needed, as no claim was made."""
    assert compared(cycles(world, 6, ranges=10))[-1].oldest is not None
    stored = {**world.memory[NAME]}
    del stored["mirror"], stored["proof"]
    world.memory[NAME] = stored

    found = cycles(world, 6, ranges=10)

    assert {one.ruling.outcome for one in found} == {Outcome.PASS}
    assert [one.oldest is None for one in compared(found)] == [True, True, False, False, False]


@pytest.mark.parametrize("same", [True, False])
def test_a_lap_in_the_memory_of_an_earlier_version_goes_on_if_the_columns_are_the_same(
    world: FakeWorld, same: bool
) -> None:
    """It stored the compared columns of each shard twice, and not a digest of them."""
    assert compared(cycles(world, 6, ranges=10))[-1].oldest is not None
    digests = world.memory[NAME]["columns"]
    forms = [f"id:integer:{VERSION}", f"v:{'integer' if same else 'text'}:{VERSION}"]
    listed = {str(ONE): [*forms, "since 1.1.1.0"], str(TWO): [*forms, "since 1.1.2.0"]}
    world.memory[NAME] = {**world.memory[NAME], "columns": listed, "asked": listed}

    (found, *_) = compared(cycles(world, 2, ranges=10))

    assert (found.oldest is not None) is same
    assert world.memory[NAME]["columns"] == digests
    assert "asked" not in world.memory[NAME]


def test_a_lap_that_an_altered_mirror_begins_ends_as_the_first_one_does(world: FakeWorld) -> None:
    """It begins once; a failed look at the source, and later merges, do not begin it again."""
    before = compared(cycles(world, 6, ranges=10))[-1].oldest
    assert before is not None
    world.foreign.add(len(world.versions))
    world.error = UnreachableError("source:shop: down")
    (unreachable,) = cycles(world, 1, ranges=10)
    world.error = None

    begun, *found = cycles(world, 40, ranges=10)

    assert (unreachable.ruling.code, begun.ruling.code) == ("unreachable", "put_back")
    assert {one.ruling.outcome for one in found} == {Outcome.PASS}
    oldest = [one.oldest for one in compared(found)]
    assert oldest[0] is None
    assert None not in oldest[4:]
    assert all(at > before for at in oldest if at)


def test_a_range_that_differed_is_compared_again_after_an_alter_of_another_shard(
    world: FakeWorld,
) -> None:
    """It is due again only in a lap's time, and no verdict passes until it is compared."""
    settings = {"newest": 0, "block_rows": 1000, "ranges": 4}
    cycles(world, 3, **settings)
    world.contents[TWO, 5] += 1  # without a change in the log
    world.time += 0.95 * probe().within
    while not world.memory[NAME]["spans"]:
        assert {one.ruling.outcome for one in cycles(world, 1, **settings)} <= {Outcome.PASS}
    world.alter(ONE, v="int", more="int")

    found = cycles(world, 6, **settings)

    assert Outcome.PASS not in {one.ruling.outcome for one in found}
    assert found[-1].ruling.keys == (f"{TWO}:5",)
