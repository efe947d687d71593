"""A key is looked for in the log as the log spells it, and in the mirror by its numbers."""

from dataclasses import replace

import pytest

from checks.counting import SuspectState, judge_suspects, keys_in_log, keys_in_mirror, read_suspects
from checks.model import Outcome
from checks.probes.offset_keys import OffsetKeys
from checks.world import LogKey
from pipeline.model import Op, Table, TopicPartition
from tests.checks.world_fake import ONE, TABLE, FakeWorld, in_step

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
