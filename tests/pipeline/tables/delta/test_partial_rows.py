"""A row that came without some values has those that it had, or holds its table; never NULL."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.apply.merge import plan_merge
from pipeline.errors import HeldError
from pipeline.model import Op
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.pipeline.tables.delta.turns import ID, NAME, A, B, TurnBench, change, table

BIG, LONG = Column("big", "LONGTEXT"), Column("long", "LONGTEXT")
COLUMNS = (ID, NAME, BIG, LONG)
Row = dict[str, Any]


@pytest.fixture
def bench(tmp_path: Path) -> TurnBench:
    return TurnBench(tmp_path, columns=COLUMNS)


def whole_change(op: Op, pos: int, key: int, /, *values: str | None, **more: Any) -> Row:
    names = ("name", "big", "long")
    row = {"id": key, **dict(zip(names, (*values, None, None, None), strict=False))}
    return change(op, pos, key, **{"after": json.dumps(row), **more})


def partial_change(op: Op, pos: int, key: int, /, **values: str | None) -> Row:
    """A change that tells these values only; it comes behind a delete of its place."""
    row = {"id": key, **values}
    place = {"epoch": 1, "log": 1, "pos": pos, "row": 1}
    return change(op, pos, key, after=json.dumps(row), changed=list(row), order=place)


def left(pos: int, key: int) -> Row:
    return change(Op.DELETE, pos, key, before=json.dumps({"id": key}))


def mirror_values(bench: TurnBench) -> dict[int, tuple[str | None, ...]]:
    rows = bench.read().to_pylist()
    return {row["id"]: (row["name"], row["big"], row["long"]) for row in rows}


def test_values_come_from_the_mirror_and_from_older_changes(bench: TurnBench) -> None:
    bench.play(
        whole_change(Op.CREATE, 1, 1, "a", "A", "X"), whole_change(Op.CREATE, 1, 2, "b", "B", "Y")
    )

    bench.play(
        partial_change(Op.UPDATE, 2, 1, name="c"),
        partial_change(Op.UPDATE, 3, 2, name="d", big="D"),
        partial_change(Op.UPDATE, 4, 2, name="e"),
        whole_change(Op.CREATE, 5, 3, "f", "F", "Z"),
        partial_change(Op.UPDATE, 6, 3, name="g"),
    )

    assert mirror_values(bench) == {1: ("c", "A", "X"), 2: ("e", "D", "Y"), 3: ("g", "F", "Z")}


def test_f113_values_never_come_from_the_row_of_another_shard(tmp_path: Path) -> None:
    """Keys are unique across the shards of the table; the key's row in the mirror is shard a's."""
    bench = TurnBench(tmp_path, (A, B), COLUMNS, spanning=True)
    bench.play(whole_change(Op.CREATE, 1, 1, "a", "A", "X"))

    with pytest.raises(HeldError, match="big, long"):
        bench.play(
            partial_change(Op.UPDATE, 2, 1, name="c") | {"shard": B.name, "topic": f"s.{B.name}"}
        )

    assert mirror_values(bench) == {1: ("a", "A", "X")}


def test_a_row_that_took_another_key_has_the_values_of_its_old_one(bench: TurnBench) -> None:
    bench.play(
        whole_change(Op.CREATE, 1, 1, "a", "A", "X"), whole_change(Op.CREATE, 1, 9, "z", "Z", "Z")
    )

    bench.play(
        left(2, 9),
        left(3, 1),
        partial_change(Op.CREATE, 3, 9, name="b"),
        whole_change(Op.CREATE, 4, 5, "n", "N", "N"),
        left(5, 5),
        partial_change(Op.CREATE, 5, 6, name="m"),
        left(6, 6),
        partial_change(Op.CREATE, 6, 7, name="l"),
    )

    assert mirror_values(bench) == {9: ("b", "A", "X"), 7: ("l", "N", "N")}


def test_nothing_is_asked_of_the_mirror_for_a_change_that_does_not_act(bench: TurnBench) -> None:
    bench.play(whole_change(Op.CREATE, 9, 1, "a", "A", "X"))

    bench.play(partial_change(Op.UPDATE, 2, 1, name="old"))

    assert mirror_values(bench) == {1: ("a", "A", "X")}


def test_the_mirror_is_believed_before_changes_that_are_older_than_its_row(
    bench: TurnBench,
) -> None:
    bench.play(whole_change(Op.CREATE, 5, 1, "a", "NEW", "X"))

    bench.play(
        whole_change(Op.CREATE, 3, 1, "a", "OLD", "X"), partial_change(Op.UPDATE, 7, 1, name="b")
    )

    assert mirror_values(bench) == {1: ("b", "NEW", "X")}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((partial_change(Op.UPDATE, 2, 1, name="b"),), id="nobody knows the row"),
        pytest.param((partial_change(Op.CREATE, 2, 1, name="b"),), id="its old key is not told"),
        pytest.param(
            (left(2, 8), partial_change(Op.CREATE, 2, 1, name="b")),
            id="its old key is not in the mirror",
        ),
        pytest.param(
            (
                whole_change(Op.CREATE, 1, 1, "a"),
                left(2, 1),
                partial_change(Op.UPDATE, 3, 1, name="b"),
            ),
            id="it was deleted before",
        ),
        pytest.param(
            (whole_change(Op.CREATE, 1, 1, "a", of=B), partial_change(Op.UPDATE, 2, 1, name="b")),
            id="the row is another shard's",
        ),
    ],
)
def test_a_value_that_nobody_has_holds_the_table(bench: TurnBench, rows: tuple[Row, ...]) -> None:
    with pytest.raises(HeldError, match="came without big, long, which no") as held:
        bench.play(*rows)

    assert held.value.reason == "partial_row"


def test_a_row_of_its_old_key_that_is_newer_is_another_one(bench: TurnBench) -> None:
    bench.play(whole_change(Op.CREATE, 5, 8, "other", "O", "O"))

    with pytest.raises(HeldError, match="which no earlier row has"):
        bench.play(left(2, 8), partial_change(Op.CREATE, 2, 1, name="b"))


def test_a_mirror_that_cannot_be_read_is_held_only_where_it_is_needed(bench: TurnBench) -> None:
    bench.play(whole_change(Op.CREATE, 1, 1, "a", "A", "X"))
    own = table(
        whole_change(Op.CREATE, 2, 2, "a", "A", "X"), partial_change(Op.UPDATE, 3, 2, name="b")
    )
    mirrors = table(partial_change(Op.UPDATE, 3, 1, name="b"))
    found: list[Any] = []

    def look(keys: Any, owners: Any) -> Any:
        from pipeline.tables.delta.merge import (  # noqa: PLC0415
            find_keys,
            mirror_files,
        )

        found.append(keys)
        mirror = mirror_files(bench.footers, bench.snapshot, bench.task(own).adoption)
        return find_keys(bench.snapshot, mirror, keys, owners)

    assert plan_merge(bench.task(own), look).rows["big"].to_pylist() == ["A"]
    with pytest.raises(HeldError, match="which no earlier row has"):
        plan_merge(bench.task(mirrors), look)


@given(st.integers(0, 2**32))
def test_any_slices_come_to_what_a_plain_model_says(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    bench = TurnBench(tmp_path_factory.mktemp("mirror"), columns=COLUMNS)
    model: dict[int, list[str]] = {}
    slices: list[list[Mapping[str, Any]]] = [[]]
    for pos in range(1, 25):
        slices[-1].extend(draw_step(dice, pos, model))
        if dice.random() < 0.3:
            slices.append([])
    for rows in slices:
        shuffled = dice.sample(rows, len(rows))
        bench.play(*shuffled)
        if dice.random() < 0.3:
            bench.play(*shuffled)

    assert mirror_values(bench) == {key: tuple(values) for key, values in model.items()}


def draw_step(dice: random.Random, pos: int, model: dict[int, list[str]]) -> list[Row]:
    """What happens at one place, to the *model* too."""
    key, new, values = dice.randrange(4), dice.randrange(4), [f"{pos}{c}" for c in "nbl"]
    if key not in model:
        model[key] = values
        return [whole_change(Op.CREATE, pos, key, *values)]
    kept = {name: at for at, name in enumerate(("name", "big", "long")) if dice.random() < 0.5}
    after = [values[at] if name in kept else model[key][at] for at, name in enumerate(NAMES)]
    told_values = {name: after[at] for name, at in kept.items()}
    if new != key and new not in model:
        del model[key]
        model[new] = after
        return [left(pos, key), partial_change(Op.CREATE, pos, new, **told_values)]
    if dice.random() < 0.2:
        del model[key]
        return [left(pos, key)]
    model[key] = after
    return [partial_change(Op.UPDATE, pos, key, **told_values)]


NAMES = ("name", "big", "long")
