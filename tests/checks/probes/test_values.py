"""Rows with another value are named, with their columns; rows in motion are not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checks.compare.look import (
    ComparedColumns,
    Comparison,
    choose_columns,
    describe_left_out,
)
from checks.model import NotYet, Outcome, Verdict
from checks.probes.range_counts import RangeCounts
from checks.probes.values import Values
from checks.run import Check, Probe, run_probe
from checks.world import World
from pipeline.errors import TooManyRowsError, UnreachableError
from pipeline.finding import REFUSE, Effect, Finding
from pipeline.formats.json_text import canonical_key
from pipeline.model import Op, Order, Shard
from pipeline.row_digest import DigestColumn, Form
from pipeline.schema.model import TableSchema
from pipeline.sources.mysql.types import MySqlColumn
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld, in_step, read_twice

VALUED = {"id": "bigint", "v": "int"}


@pytest.fixture
def world() -> FakeWorld:
    """Forty rows in each of two shards, in step."""
    made = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    made.alter(ONE, v="int")
    made.alter(TWO, v="int")
    made.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(40)))
    made.catch_up()
    return made


def probe(**settings: Any) -> Values:
    return Values(**{"block_rows": 16, "newest": 4, "rotating": 0, "ranges": 0, **settings})


def test_equal_sides_pass(world: FakeWorld) -> None:
    (first, *_) = found = in_step("values", probe(), world, 4)

    assert {one.outcome for one in found} == {Outcome.PASS}
    assert first.reason == "80 rows in 10 ranges of 2 shards are equal on both sides"


def test_a_changed_value_is_named_with_its_column(world: FakeWorld) -> None:
    """As after an UPDATE with sql_log_bin=0: no count differs."""
    world.contents[TWO, 7] += 1

    *_, last = in_step("values", probe(), world, 4)

    assert (last.outcome, last.code) == (Outcome.FAIL, "different_rows")
    assert last.keys == ("shop/shop_01.orders:7",)
    assert last.reason.endswith("they differ in v")


@pytest.mark.parametrize(
    ("name", "check"),
    [("values", Values(block_rows=16, newest=4)), ("range_counts", RangeCounts(block_rows=16))],
)
def test_rows_that_are_looked_at_again_are_suspicious_until_they_are_ruled_on(
    world: FakeWorld, name: str, check: Probe[Any]
) -> None:
    """So the check goes first, whatever else is due."""
    world.copy[ONE].pop(39)
    found = list[bool]()
    for caught_up in (True, True, False, True):
        if caught_up:
            world.catch_up()
        answer = run_probe(Check(name, check, TABLE), world)
        found += [answer.suspicious if isinstance(answer, NotYet) else False]

    assert found == [False, True, True, False]
    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (lambda world: world.copy[ONE].pop(3), "missing_rows"),
        (lambda world: world.copy[ONE].update({99: 1}), "extra_rows"),
        (lambda world: world.copy[ONE].update({3: 1}), "doubled_rows"),
    ],
)
def test_lost_ghost_and_doubled_rows_are_told_apart(world: FakeWorld, harm: Any, code: str) -> None:
    harm(world)

    *_, last = in_step("values", probe(), world, 4)

    assert (last.outcome, last.code, len(last.keys)) == (Outcome.FAIL, code, 1)


def test_a_repaired_row_passes_again(world: FakeWorld) -> None:
    world.contents[ONE, 5] += 1
    assert in_step("values", probe(), world, 4)[-1].outcome is Outcome.FAIL
    world.copied_contents[ONE, 5] += 1

    assert in_step("values", probe(), world, 4)[-1].outcome is Outcome.PASS


def test_two_swapped_values_are_found(world: FakeWorld) -> None:
    """Any sum of values would be the same."""
    world.commit((Op.UPDATE, ONE, 1))
    world.catch_up()
    world.contents[ONE, 1], world.contents[ONE, 2] = world.contents[ONE, 2], world.contents[ONE, 1]

    *_, last = in_step("values", probe(), world, 4)

    assert last.keys == ("shop/shop_00.orders:1-2",)


def test_rows_that_change_all_the_time_are_equal_at_a_position_and_need_no_second_reading(
    world: FakeWorld,
) -> None:
    """Work is committed between the two looks and after them; no row is read one by one."""
    asked = []
    for round_ in range(6):
        world.meanwhile = [lambda: world.commit((Op.UPDATE, ONE, 1), (Op.DELETE, TWO, 3))]
        world.commit((Op.UPDATE, ONE, 2), (Op.CREATE, TWO, 3), (Op.CREATE, ONE, 50 + round_))
        before = world.asked
        found = in_step("values", probe(), world, 1)
        asked.append(world.asked - before)
        assert {one.outcome for one in found} <= {Outcome.PASS}
    assert asked == [10] * 6  # ranges, with the one of the new rows


def test_a_range_that_is_too_large_is_read_in_narrower_ones(world: FakeWorld) -> None:
    world.allowed, world.refusal = 8, TooManyRowsError("too many")

    found = in_step("values", probe(block_rows=4), world, 8)

    assert found[-1].outcome is Outcome.PASS


def test_columns_that_cannot_be_compared_are_named(world: FakeWorld) -> None:
    world.alter(ONE, v="int", price="double")

    *_, last = in_step("values", probe(), world, 3)

    why = "systems print the same number differently"
    assert f"not compared: price of {ONE}: {why}" in last.reason


def test_of_many_columns_that_cannot_be_compared_the_rest_is_counted() -> None:
    left_out = {f"c{number}": "why" for number in range(9)}
    columns = {shard: ComparedColumns((), left_out) for shard in (ONE, TWO)}

    assert describe_left_out(columns).endswith("; c3: why; c4: why; and 4 more")
    assert describe_left_out({ONE: ComparedColumns((), {"a": "why"})}) == "; not compared: a: why"


def test_a_column_is_named_with_each_reason_why_it_is_not_compared() -> None:
    one, two = ({"a": "it is computed"}, {"a": "the collector alters it", "b": "it is computed"})
    three = Shard("shop", "shop_02.orders")
    columns = {
        shard: ComparedColumns((), own) for shard, own in ((ONE, one), (TWO, two), (three, two))
    }

    assert describe_left_out(columns) == (
        f"; not compared: a of {ONE}: it is computed"
        f"; a of {TWO} and 1 more shards: the collector alters it"
        f"; b of {TWO} and 1 more shards: it is computed"
    )


def test_a_column_that_the_collector_masks_is_named_and_makes_no_difference(
    world: FakeWorld,
) -> None:
    world.contents[TWO, 7] += 1
    world.alters = lambda name: "column.mask.*" if name.endswith(".v") else ""

    *_, last = in_step("values", probe(), world, 4)

    assert last.outcome is Outcome.PASS
    assert "not compared: v: the collector alters it (column.mask.*)" in last.reason


def test_two_swapped_values_are_no_pass_though_the_key_is_not_compared(world: FakeWorld) -> None:
    """The sum of digests without keys is the same."""
    world.alters = lambda name: "column.mask.*" if name == f"{TWO.name}.id" else ""
    world.contents |= {(TWO, 5): 7, (TWO, 6): 8}
    world.copied_contents |= {(TWO, 5): 8, (TWO, 6): 7}

    *_, last = in_step("values", probe(), world, 4)

    assert (last.outcome, last.code) == (Outcome.UNKNOWN, "unsupported")
    assert last.reason == (
        "key column id cannot be compared: the collector alters it (column.mask.*)"
    )


@pytest.mark.parametrize(
    ("effect", "shards", "outcome"),
    [
        (Effect.REWRITES, "", Outcome.UNKNOWN),
        (Effect.REWRITES, "shop_01[.]orders", Outcome.UNKNOWN),
        (Effect.REWRITES, "shop_02[.]orders", Outcome.FAIL),
        (Effect.DELAYS, "", Outcome.FAIL),
    ],
)
def test_nothing_is_compared_while_the_collector_rewrites_values(
    world: FakeWorld, effect: Effect, shards: str, outcome: Outcome
) -> None:
    """Its table is blocked for that: each value that it rewrote would be one more alert."""
    world.contents[TWO, 7] += 1
    setting = "decimal.handling.mode=double"
    world.hazards = (Finding(REFUSE, "d", "w", "rounds", "fix", effect, shards, setting=setting),)

    *_, last = in_step("values", probe(), world, 4)

    assert last.outcome is outcome
    assert (setting in last.reason) == (outcome is Outcome.UNKNOWN)


def test_a_column_that_no_log_describes_is_named(world: FakeWorld) -> None:
    world.columns[ONE] = {**VALUED, "hidden": "int"}

    *_, last = in_step("values", probe(), world, 3)

    assert f"not compared: hidden of {ONE}: the log does not describe it" in last.reason


def test_a_column_of_which_the_server_says_more_has_the_form_of_the_server(
    world: FakeWorld,
) -> None:
    """The log says no character set, and which columns are computed."""
    schema = TableSchema(ONE.name, Order(1, 1, 1), tuple(MySqlColumn(n, "TEXT") for n in "abcd"))
    server = [
        MySqlColumn("a", "TEXT", charset="latin1"),
        MySqlColumn("b", "TEXT", charset="gbk"),
        MySqlColumn("c", "BLOB"),
        MySqlColumn("d", "TEXT", computed=True),
    ]
    source = SimpleNamespace(columns=lambda _: server)
    known = SimpleNamespace(collected=world.collected, source=lambda _: source)

    found = choose_columns(TABLE, ONE, schema, cast("World", known))

    assert found.columns == (DigestColumn("a", Form.LATIN),)
    assert found.left_out == {
        "b": "the collector converts gbk by a table of its own",
        "c": "the log describes text values, the server bytes",
        "d": "it is computed, and no log shows when its expression changes",
    }


def test_a_column_that_the_log_makes_incomparable_is_so_whatever_the_server_says(
    world: FakeWorld,
) -> None:
    schema = TableSchema(ONE.name, Order(1, 1, 1), (MySqlColumn("a", "TEXT", computed=True),))
    source = SimpleNamespace(columns=lambda _: [MySqlColumn("a", "TEXT", charset="latin1")])
    known = SimpleNamespace(collected=world.collected, source=lambda _: source)

    found = choose_columns(TABLE, ONE, schema, cast("World", known))

    assert found.columns == ()
    assert found.left_out["a"].startswith("it is computed")


@pytest.mark.parametrize(
    ("kind", "texts", "ids"),
    [
        pytest.param("bigint", ["7", "x"], [7, None], id="an integer"),
        pytest.param("bigint unsigned", [str(2**63)], [2**63], id="above any signed one"),
    ],
)
def test_an_id_is_the_whole_number_that_a_key_spells(
    world: FakeWorld, kind: str, texts: list[str], ids: list[int | None]
) -> None:
    world.alter(ONE, id=kind, v="int")
    world.catch_up()
    keys = [canonical_key([one], ONE.source, ONE.name) for one in texts]

    assert Comparison(TABLE, world, {}).read_ids(ONE, keys) == ids


def test_without_room_for_more_rows_no_further_range_is_read(world: FakeWorld) -> None:
    schema = world.schema(ONE)
    assert schema is not None
    for id_ in (1, 2, 9, 10):
        world.contents[ONE, id_] += 1
    comparison = Comparison(TABLE, world, {ONE: choose_columns(TABLE, ONE, schema, world)})

    found = comparison.find_suspects({ONE: [(0, 8), (8, 16), (16, 24)]}, 2)

    assert set(found.rows.rows) == {(ONE, 1), (ONE, 2)}
    assert (found.unread, found.partly) == ({ONE: [(8, 16), (16, 24)]}, {})


def test_no_pass_while_a_range_has_rows_that_were_not_named(world: FakeWorld) -> None:
    """Two rows fit into a finding; five differ, and those that are named are repaired."""
    wrong = [3, 5, 7, 9, 11]
    for id_ in wrong:
        world.contents[ONE, id_] += 1
    probe_ = probe(suspects=2, newest=1, rotating=1, ranges=1)

    said = []
    for _ in range(40):
        for ruling in in_step("values", probe_, world, 1):
            said.append(ruling.outcome)
            for key in ruling.keys:
                first, _, last = key.rpartition(":")[2].partition("-")
                for id_ in range(int(first), int(last or first) + 1):
                    world.copied_contents[ONE, id_] = world.contents[ONE, id_]
    differ = [id_ for id_ in wrong if world.copied_contents[ONE, id_] != world.contents[ONE, id_]]

    assert differ == []
    first_fail, last_fail = said.index(Outcome.FAIL), len(said) - said[::-1].index(Outcome.FAIL)
    assert Outcome.PASS not in said[first_fail:last_fail]
    assert said[-1] is Outcome.PASS


def test_a_pass_after_a_second_reading_is_as_of_what_was_compared(world: FakeWorld) -> None:
    """Fence 3 is the first after the look; the row is read again behind it."""
    verdict, first = read_twice(world, Check("values", probe(), TABLE))

    assert (verdict.ruling.outcome, verdict.as_of) == (Outcome.PASS, (first,))


def test_a_finding_is_said_though_the_source_then_refuses_to_name_its_columns(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> tuple[str, ...]:
        raise UnreachableError("source:shop: loaded")

    monkeypatch.setattr(Comparison, "differing_columns", refuse)
    world.contents[TWO, 7] += 1

    *_, last = in_step("values", probe(), world, 4)

    assert (last.outcome, last.keys) == (Outcome.FAIL, ("shop/shop_01.orders:7",))


def test_a_change_that_is_sent_again_does_not_explain_a_wrong_row(world: FakeWorld) -> None:
    """The mirror has another value than the newest change, and that change lands again."""
    world.commit((Op.UPDATE, ONE, 5))
    world.catch_up()
    world.copied_contents[ONE, 5] += 7
    in_step("values", probe(), world, 1)
    world.resend(ONE, 5)

    found = in_step("values", probe(), world, 1)
    found += in_step("values", probe(), world, 4)

    assert {one.outcome for one in found} == {Outcome.FAIL}


def test_a_row_that_was_deleted_is_not_explained_by_its_insert_that_is_sent_again(
    world: FakeWorld,
) -> None:
    """The source has the row without any log; the mirror rightly does not."""
    world.commit((Op.CREATE, ONE, 50))
    created = world.log_[-2]
    world.commit((Op.DELETE, ONE, 50))
    world.catch_up()
    world.rows[ONE].add(50)
    in_step("values", probe(), world, 1)
    world.log_.append(replace(created))

    found = in_step("values", probe(), world, 5)

    assert found
    assert {one.outcome for one in found} == {Outcome.FAIL}
