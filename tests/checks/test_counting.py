from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from checks.counting import (
    AGAIN,
    MOST_OPEN,
    CountedRanges,
    Differences,
    OpenRange,
    SuspectReading,
    SuspectState,
    await_fences,
    differing_ranges,
    dump_open_ranges,
    find_suspects,
    judge_suspect,
    judge_suspects,
    keys_in_log,
    keys_in_mirror,
    load_open_ranges,
    read_suspects,
    rows_in,
    rule_differences,
    uncounted_ranges,
)
from checks.model import MOST_NAMED, NotYet, Outcome, RowColumns, Undecided
from checks.probes.offset_keys import OffsetKeys
from checks.ranges import Mismatch
from checks.world import LogKey, Range
from pipeline.model import Op, Shard, Table, TopicPartition
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld, in_step


@pytest.mark.parametrize(
    ("before", "there", "after", "touched", "became"),
    [
        pytest.param(1, 1, 1, False, SuspectState.CLEARED, id="on both sides"),
        pytest.param(0, 0, 1, False, SuspectState.CLEARED, id="alike as of the reading"),
        pytest.param(1, 0, 1, False, SuspectState.MISSING, id="nothing explains it"),
        pytest.param(1, 0, 1, True, SuspectState.MOVING, id="deleted and created since"),
        pytest.param(1, 0, 0, False, SuspectState.MOVING, id="gone at the source by now"),
        pytest.param(0, 1, 0, False, SuspectState.EXTRA, id="a ghost"),
        pytest.param(0, 1, 0, True, SuspectState.MOVING, id="created and deleted since"),
        pytest.param(0, 1, 1, False, SuspectState.MOVING, id="at the source by now"),
        pytest.param(1, 2, 1, False, SuspectState.DOUBLED, id="twice in the mirror"),
    ],
)
def test_a_suspect_is_named_only_when_nothing_explains_it(
    before: int, there: int, after: int, touched: bool, became: SuspectState
) -> None:
    assert judge_suspect(before, there, after, touched=touched) is became


def test_a_look_survives_being_remembered_and_forgets_shards_that_are_gone() -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, TWO, 4))
    seen = read_suspects(TABLE, world, [(TWO, 4), (ONE, 4), (TWO, 4)], tries=2)

    again = SuspectReading.loads(seen.dumps(), TABLE)

    assert again == seen
    assert (read_suspects(TABLE, world, []).tries, again.tries) == (0, 2)
    assert (seen.suspects, seen.before) == (((ONE, 4), (TWO, 4)), (0, 1))
    fewer = SuspectReading.loads(seen.dumps(), type(TABLE)(TABLE.name, (TWO,), ("id",), "id"))
    assert (fewer.suspects, fewer.before) == (((TWO, 4),), (1,))


def test_a_range_whose_ids_the_source_does_not_list_leaves_more_suspects() -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, ONE, 4), (Op.CREATE, TWO, 4))
    world.listed = 0

    found = find_suspects(TABLE, world, {ONE: [Mismatch((0, 9), 1, 0)]}, leaf=200, most=50)

    assert (found.ids, found.whole) == (frozenset(), False)


def test_only_ids_that_differ_are_asked_again() -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, ONE, 4), (Op.CREATE, TWO, 4))
    world.catch_up()
    seen = read_suspects(TABLE, world, [(ONE, 4), (ONE, 5), (TWO, 4)])
    world.copy[ONE].clear()
    world.asked = 0

    became = judge_suspects(TABLE, world, seen)

    assert became == (SuspectState.MISSING, SuspectState.CLEARED, SuspectState.CLEARED)
    assert world.asked == 1


def test_a_mirror_in_step_costs_neither_source_nor_change_log_a_second_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, TWO, 4))
    world.catch_up()
    seen = read_suspects(TABLE, world, [(ONE, 4), (TWO, 4)])
    world.asked = 0
    monkeypatch.delattr(FakeWorld, "log")

    assert judge_suspects(TABLE, world, seen) == (SuspectState.CLEARED, SuspectState.CLEARED)
    assert world.asked == 0


def test_a_truncate_that_landed_since_explains_a_row_that_is_at_the_source_anew() -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, ONE, 4), (Op.CREATE, TWO, 4))
    world.catch_up()
    seen = read_suspects(TABLE, world, [(ONE, 4), (TWO, 4)])
    world.truncate(TWO)
    world.catch_up()
    world.commit((Op.CREATE, TWO, 4))
    world.copy[ONE].clear()

    assert judge_suspects(TABLE, world, seen) == (SuspectState.MISSING, SuspectState.MOVING)


def test_only_a_mirror_past_the_fence_after_the_reading_is_compared() -> None:
    world = FakeWorld()
    ended, patience = world.clock(), timedelta(minutes=1)

    unwritten = await_fences(TABLE, world, ended, patience)
    world.write_heartbeat()
    unreached = await_fences(TABLE, world, ended, patience)
    world.catch_up()
    reached = await_fences(TABLE, world, ended, patience)

    assert isinstance(unwritten, NotYet)
    assert "no heartbeat" in unwritten.why
    assert isinstance(unreached, NotYet)
    assert "not reached" in unreached.why
    assert reached == (world.fences[0][0],)


def test_waiting_too_long_is_unknown() -> None:
    world = FakeWorld()
    ended = world.clock()
    world.tick(timedelta(minutes=2))

    answer = await_fences(TABLE, world, ended, timedelta(minutes=1))

    assert isinstance(answer, Undecided)
    assert answer.code == "not_reached"


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        pytest.param([7], "1 row missing in the mirror: shop/shop.t:7", id="one"),
        pytest.param([7, 8], "2 rows missing in the mirror: shop/shop.t:7-8", id="several"),
    ],
)
def test_rows_are_told_in_words_that_fit_their_number(ids: list[int], told: str) -> None:
    found = tuple(((Shard("shop", "shop.t"), id_), SuspectState.MISSING) for id_ in ids)

    assert rule_differences(Differences((), "", found)).reason == told


LOST, EXTRA = SuspectState.MISSING, SuspectState.EXTRA


@pytest.mark.parametrize(
    ("reading", "outcome", "code", "more"),
    [
        pytest.param(Differences((), "all"), Outcome.PASS, "", 0, id="nothing"),
        pytest.param(
            Differences((), "all", moving=1, more=2, behind="x"),
            Outcome.UNKNOWN,
            "in_motion",
            0,
            id="an id that would not stand still",
        ),
        pytest.param(
            Differences((), "all", more=2, behind="x"),
            Outcome.UNKNOWN,
            "not_all_asked",
            0,
            id="rows that were not asked for",
        ),
        pytest.param(
            Differences((), "all", behind="x"), Outcome.UNKNOWN, "behind", 0, id="not all compared"
        ),
        pytest.param(
            Differences((), "all", (((ONE, 1), EXTRA), ((ONE, 3), LOST)), moving=1, more=2),
            Outcome.FAIL,
            "missing_rows",
            2,
            id="a loss is graver than a row too many",
        ),
        pytest.param(
            Differences((), "all", tuple(((ONE, 2 * n), LOST) for n in range(MOST_NAMED + 3))),
            Outcome.FAIL,
            "missing_rows",
            3,
            id="more keys than are listed",
        ),
    ],
)
def test_what_was_not_seen_equal_is_never_a_pass(
    reading: Differences, outcome: Outcome, code: str, more: int
) -> None:
    ruling = rule_differences(reading)

    assert (ruling.outcome, ruling.code, ruling.more) == (outcome, code, more)
    assert len(ruling.keys) == min(len(reading.found), MOST_NAMED)


def test_a_finding_counts_and_names_what_it_is_about() -> None:
    found = (((TWO, 9), LOST), ((ONE, 8), LOST), ((ONE, 7), LOST), ((ONE, 1), EXTRA))
    columns = {(ONE, 3): ("name",), (ONE, 5): ("name", "state"), (ONE, 4): ("name",), (TWO, 1): ()}
    reading = Differences((), "all", found, more=5, columns=columns)

    ruling = rule_differences(reading)

    one, two = f"{ONE.source}/{ONE.name}", f"{TWO.source}/{TWO.name}"
    assert ruling.keys == (f"{one}:7-8", f"{two}:9", f"{one}:1")
    assert ruling.reason == (
        f"3 rows missing in the mirror: {one}:7-8, {two}:9; 1 row extra in the mirror: {one}:1"
        "; about 5 more rows differ; they differ in name, state"
    )
    assert ruling.differing == (
        RowColumns(("name",), (f"{one}:3-4",)),
        RowColumns(("name", "state"), (f"{one}:5",)),
    )
    assert reading.value == 9.0


def test_a_reason_names_some_columns_and_counts_the_others() -> None:
    columns = {(ONE, 3): tuple(f"c{number}" for number in range(22))}

    ruling = rule_differences(Differences((), "all", (((ONE, 3), LOST),), columns=columns))

    assert ruling.reason.endswith(
        "they differ in " + ", ".join(columns[ONE, 3][:20]) + " and 2 more columns"
    )


def test_rows_that_differ_in_many_columns_are_grouped_by_the_first_and_the_number() -> None:
    wide = tuple(f"c{number}" for number in range(1_500))
    others = {(ONE, number): (*wide[:-1], f"d{number}") for number in range(4, 400)}
    columns = {(ONE, 3): wide, **others, (TWO, 1): wide[:20], (TWO, 2): wide[:21]}

    ruling = rule_differences(Differences((), "all", (((ONE, 3), LOST),), columns=columns))

    one, two = f"{ONE.source}/{ONE.name}", f"{TWO.source}/{TWO.name}"
    assert ruling.differing == (
        RowColumns(wide[:20], (f"{one}:3-399",), 1_480),
        RowColumns(wide[:20], (f"{two}:1",)),
        RowColumns(wide[:20], (f"{two}:2",), 1),
    )


@pytest.mark.parametrize(
    ("ids", "dots"), [((1, 3, 5), False), ((1, 3, 5, 7), True)], ids=["three", "four"]
)
def test_a_sentence_names_three_keys(ids: tuple[int, ...], dots: bool) -> None:
    reason = rule_differences(Differences((), "", tuple(((ONE, id_), LOST) for id_ in ids))).reason

    assert reason.endswith(", ...") is dots
    assert f"{ONE.name}:5" in reason
    assert f"{ONE.name}:7" not in reason


SHARD = f"{ONE.source}/{ONE.name}"
NINE = OpenRange((10, 20), 9)


def counted(*spans: Range, shard: str = SHARD) -> CountedRanges:
    """A cycle that has counted these ranges of a shard."""
    return CountedRanges(datetime(2026, 1, 1, tzinfo=UTC), {shard: spans}, {}, {})


@pytest.mark.parametrize(
    ("open_", "cycle", "left"),
    [
        pytest.param((NINE,), counted((10, 20)), (), id="counted"),
        pytest.param((NINE,), counted((15, 30), (0, 15)), (), id="by two ranges"),
        pytest.param(
            (NINE,),
            counted((10, 14), (15, 20)),
            (OpenRange((10, 15), 4), OpenRange((15, 20), 4)),
            id="but for one id in the middle",
        ),
        pytest.param(
            (NINE,),
            counted((10, 19)),
            (OpenRange((10, 15), 4), OpenRange((15, 20), 4)),
            id="but for the last id",
        ),
        pytest.param(
            (OpenRange((10, 13), 1),),
            counted(),
            (OpenRange((10, 11), 1), OpenRange((11, 13), 1)),
            id="too large to be counted",
        ),
        pytest.param(
            (OpenRange((10, 12), 2),),
            counted(),
            (OpenRange((10, 11), 1), OpenRange((11, 12), 1)),
            id="two ids that were too many",
        ),
        pytest.param((OpenRange((10, 11), 7),), counted(), (OpenRange((10, 11), 7),), id="one id"),
        pytest.param((NINE,), counted((10, 20), shard="s/other"), (NINE,), id="of another shard"),
    ],
)
def test_a_range_that_differed_stays_open_until_it_was_counted_whole(
    open_: tuple[OpenRange, ...], cycle: CountedRanges, left: tuple[OpenRange, ...]
) -> None:
    assert uncounted_ranges({SHARD: open_}, cycle) == {SHARD: left}


def test_only_ranges_that_were_due_are_halved_and_none_where_too_many_are_open() -> None:
    ranges = tuple(OpenRange((10 * n, 10 * n + 2), 2) for n in range(MOST_OPEN))

    few = uncounted_ranges({SHARD: ranges[:-1]}, counted())[SHARD]
    many = uncounted_ranges({SHARD: ranges}, counted())[SHARD]

    assert (len(few), few[2 * AGAIN :]) == (MOST_OPEN - 1 + AGAIN, ranges[AGAIN:-1])
    assert many == ranges


def test_what_was_not_counted_comes_first_and_no_difference_is_forgotten() -> None:
    wide = {ONE: [Mismatch((30, 40), 5, 7), Mismatch((50, 60), 7, 5), Mismatch((70, 80), 3, 3)]}

    found = differing_ranges(wide, {SHARD: (NINE,), "s/other": ()})

    assert [(one.span, one.rows) for one in found[SHARD]] == [
        ((10, 20), 9), ((30, 40), 2), ((50, 60), 2), ((70, 80), 1)
    ]  # fmt: skip
    assert rows_in(found) == 14


@pytest.mark.parametrize(
    ("many", "left"),
    [(MOST_OPEN, MOST_OPEN), (MOST_OPEN + 1, MOST_OPEN // 2 + 1)],
    ids=["as many as are remembered", "one more"],
)
def test_neighbours_become_one_range_where_too_many_are_open(many: int, left: int) -> None:
    ranges = tuple(OpenRange((10 * n, 10 * n + 4), 3) for n in reversed(range(many)))

    (kept,) = differing_ranges({}, {SHARD: ranges}).values()

    assert (len(kept), rows_in({SHARD: kept})) == (left, 3 * many)
    assert {one.span for one in ranges} == {
        one.span for one in ranges for wide in kept
        if wide.span[0] <= one.span[0] and one.span[1] <= wide.span[1]
    }  # fmt: skip


def test_open_ranges_survive_being_remembered_and_forget_shards_that_are_gone() -> None:
    raw = dump_open_ranges({SHARD: (NINE,), "s/gone": (NINE,), "s/equal": ()})

    assert raw == {SHARD: [[10, 20, 9]], "s/gone": [[10, 20, 9]]}
    assert load_open_ranges(raw, TABLE) == {SHARD: (NINE,)}


UNSIGNED = "bigint unsigned"


def world_of(kind: str) -> FakeWorld:
    world = FakeWorld()
    world.alter(ONE, id=kind)
    world.commit((Op.CREATE, ONE, 300))
    world.catch_up()
    return world


@pytest.mark.parametrize("kind", ["bigint", UNSIGNED])
def test_a_row_that_was_deleted_and_made_anew_meanwhile_is_moving_not_missing(kind: str) -> None:
    world = world_of(kind)
    seen = read_suspects(TABLE, world, [(ONE, 300), (ONE, 301)])
    world.commit((Op.DELETE, ONE, 300))
    world.catch_up()
    world.commit((Op.CREATE, ONE, 300))

    assert judge_suspects(TABLE, world, seen) == (SuspectState.MOVING, SuspectState.CLEARED)


@pytest.mark.parametrize("kind", ["bigint", UNSIGNED])
def test_the_last_keys_of_topics_are_found_in_the_mirror(kind: str) -> None:
    world = world_of(kind)

    rulings = in_step("offset_keys", OffsetKeys(), world, 4)

    assert {one.outcome for one in rulings} == {Outcome.PASS}
    world.copy[ONE].clear()
    assert in_step("offset_keys", OffsetKeys(), world, 4)[-1].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("kind", "texts"), [("bigint", ("300",)), (UNSIGNED, ("ASw=", "300")), ("int", ("300",))]
)
def test_an_integer_is_spelled_as_its_column_is_sent(kind: str, texts: tuple[str, ...]) -> None:
    assert keys_in_log(TABLE, world_of(kind), ONE, 300) == tuple(
        f'["{ONE.source}","{ONE.name}","{text}"]' for text in texts
    )
    shared = replace(TABLE, unique_across_shards=True)
    assert keys_in_log(shared, world_of(kind), ONE, 300)[0] == f'["{texts[0]}"]'


@pytest.mark.parametrize(
    ("key", "told"),
    [
        pytest.param('["ASw=","ASw="]', '["300","ASw="]', id="only what is an integer"),
        pytest.param('["shop","s","ASw=",null]', '["shop","s","300",null]', id="with its shard"),
        pytest.param('["x","y"]', '["x","y"]', id="no number"),
        pytest.param('["ASw="]', '["ASw="]', id="too few values"),
    ],
)
def test_integers_of_a_key_become_digits(key: str, told: str) -> None:
    world = world_of(UNSIGNED)
    world.alter(ONE, id=UNSIGNED, name="varchar(9)")
    world.catch_up()
    table = Table("shop.orders", (ONE,), ("id", "name"))
    own = LogKey(ONE, key, TopicPartition("t", 0), 0)

    assert [one.key for one in keys_in_mirror(table, world, [own])] == [told]
