from dataclasses import replace
from datetime import timedelta

import pytest

from checks.counting import (
    Differences,
    SuspectReading,
    SuspectState,
    await_fences,
    judge_suspect,
    judge_suspects,
    keys_in_log,
    keys_in_mirror,
    read_suspects,
    rule_differences,
)
from checks.model import NotYet, Outcome, Undecided
from checks.probes.offset_keys import OffsetKeys
from checks.world import LogKey
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
    world.beat()
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
