import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.apply.fold import ColumnPlaces, Folded, encode_versions, fold_changes
from pipeline.apply.row_metadata import ORDER
from pipeline.errors import HeldError
from pipeline.model import Op, Origin, Shard
from tests.pipeline.tables.delta.turns import FAR, A, B, change, table, unique

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
Row = dict[str, Any]


def order(pos: int, *, log: int) -> Row:
    return {"epoch": 1, "log": log, "pos": pos, "row": 0}


def fold(*rows: Row, spanning: bool = False) -> Folded:
    return fold_changes(table(*map(unique, rows) if spanning else rows))


def kept_changes(found: Folded) -> list[tuple[str, str, int]]:
    return [(r["op"], r["shard"], r["order"]["pos"]) for r in found.rows.to_pylist()]


@pytest.mark.parametrize(
    ("rows", "spanning", "expected"),
    [
        pytest.param([], False, [], id="nothing"),
        pytest.param([change(U, 2, 1), change(C, 1, 1)], False, [("u", "db.a", 2)], id="newest"),
        pytest.param([change(D, 2, 1), change(C, 1, 1)], False, [("d", "db.a", 2)], id="a delete"),
        pytest.param(
            [change(C, 1, 1), change(R, 1, 1)], False, [("c", "db.a", 1)], id="live at equal order"
        ),
        pytest.param(
            [change(U, 9, 1, order=order(9, log=2)), change(U, 10, 1)],
            False,
            [("u", "db.a", 9)],
            id="the log file counts before the position in it",
        ),
        pytest.param(
            [change(C, 1, 1), change(C, 2, 1, of=B)],
            False,
            [("c", "db.a", 1), ("c", "db.b", 2)],
            id="shards are apart",
        ),
        pytest.param(
            [change(C, 1, 1), change(D, 2, 1, of=B)],
            True,
            [("c", "db.a", 1)],
            id="an upsert outlives another shard's delete",
        ),
        pytest.param(
            [change(C, 1, 1), change(D, 2, 1), change(D, 3, 1, of=B)],
            True,
            [("d", "db.b", 3)],
            id="but not its own shard's",
        ),
        pytest.param(
            [change(C, 1, 1), change(U, 2, 1, of=B)],
            True,
            [("u", "db.b", 2)],
            id="of two shards' upserts the newer",
        ),
        pytest.param(
            [change(C, 9, 1, order=order(9, log=2)), change(U, 10, 1, of=B)],
            True,
            [("c", "db.a", 9)],
            id="the log file counts before the position in it across shards, too",
        ),
    ],
)
def test_the_change_that_stands(
    rows: list[Row], spanning: bool, expected: list[tuple[str, str, int]]
) -> None:
    assert kept_changes(fold(*rows, spanning=spanning)) == expected


@pytest.mark.parametrize(
    ("rows", "distinct", "conflicts"),
    [
        pytest.param([change(C, 1, 1, "a"), change(C, 1, 1, "a")], 1, [], id="said twice"),
        pytest.param(
            [change(C, 1, 1, "a", batch=1), change(C, 1, 1, "a", batch=2, topic="t2")],
            1,
            [],
            id="sent again in another batch",
        ),
        pytest.param(
            [change(C, 1, 1, "a"), change(C, 1, 1, "b")], 2, [("db.a", 1)], id="contradiction"
        ),
        pytest.param(
            [change(C, 1, 1), change(D, 1, 1)], 2, [("db.a", 1)], id="two ops at one place"
        ),
        pytest.param(
            [change(C, 1, 1, "a"), change(C, 1, 1, "b"), change(C, 1, 1, "c")],
            3,
            [("db.a", 1)],
            id="a place is told once",
        ),
        pytest.param(
            [change(C, pos, 1, name) for pos in (1, 2, 3) for name in ("a", "ab"[pos == 2])],
            4,
            [("db.a", 2)],
            id="the place that contradicts itself is told, not those beside it",
        ),
        pytest.param(
            [change(R, 1, 1, "a"), change(R, 1, 1, "b")], 2, [], id="snapshots may differ"
        ),
        pytest.param([change(C, 1, 1, "a"), change(R, 1, 1, "b")], 2, [], id="origins may differ"),
        pytest.param(
            [change(C, 1, 1, "a"), change(C, 1, 2, "b")], 2, [], id="keys of one place may differ"
        ),
        pytest.param(
            [change(C, 1, 1, "a", after=None), change(C, 1, 1, "a", after="")],
            2,
            [("db.a", 1)],
            id="no image is not an empty one",
        ),
    ],
)
def test_what_was_said_again(
    rows: list[Row], distinct: int, conflicts: list[tuple[str, int]]
) -> None:
    found = fold(*rows)

    assert (found.total, found.distinct) == (len(rows), distinct)
    told = [(row["shard"], row["order"]["pos"]) for row in found.conflicts.to_pylist()]
    assert told == conflicts


@pytest.mark.parametrize(
    ("rows", "crossed"),
    [
        pytest.param([change(C, 1, 1), change(C, 9, 1, of=B)], None, id="one source"),
        pytest.param([change(C, 1, 1), change(C, 9, 1, of=FAR)], '["1"]', id="two sources"),
        pytest.param(
            [change(C, 1, 1), change(D, 2, 1), change(C, 9, 1, of=FAR)], None, id="left the first"
        ),
        pytest.param([change(C, 1, 1), change(D, 9, 1, of=FAR)], None, id="deleted in the other"),
    ],
)
def test_f12_upserts_of_two_sources_have_no_order(rows: list[Row], crossed: str | None) -> None:
    assert fold(*rows, spanning=True).crossed == crossed


def test_deletes_of_other_shards_are_handed_on() -> None:
    found = fold(
        *(change(C, 1, 7), change(D, 5, 1, of=B), change(D, 3, 1, of=FAR, origin=0)),
        change(C, 4, 1),
        spanning=True,
    )

    told = found.left.to_pylist()
    left = {(r["source"], r["shard"], r["order"]["pos"], r["origin"], r["of"]) for r in told}
    assert left == {("s", "db.b", 5, Origin.LIVE, 1), ("far", "db.a", 3, 0, 1)}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([change(C, 9, 1), change(U, 5, 1, of=B)], id="an older upsert of another"),
        pytest.param([change(D, 9, 1)], id="the delete that stands"),
        pytest.param([change(D, 3, 1, of=B), change(U, 5, 1, of=B), change(C, 9, 1)], id="undone"),
    ],
)
def test_what_deleted_nothing_elsewhere_is_not_handed_on_as_a_delete(rows: list[Row]) -> None:
    assert fold(*rows, spanning=True).left.to_pylist() == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param(change(C, 1, 1, key=None), "no_key", id="f11 no key"),
        pytest.param(change(C, 1, 1, order=None), "no_order", id="no order"),
    ],
)
def test_a_change_that_cannot_be_placed_holds_the_table(row: Row, reason: str) -> None:
    with pytest.raises(HeldError) as held:
        fold(change(C, 5, 5), row)

    assert held.value.reason == reason


def test_f27_a_key_with_a_million_changes() -> None:
    number = 1_000_000
    pos = np.random.default_rng(1).permutation(number)
    parts = [pa.repeat(1, number), pa.repeat(1, number), pa.array(pos), pa.repeat(0, number)]
    texts = {name: pa.repeat(name, number) for name in ("key", "source", "shard", "before")}
    changes = pa.table(
        {
            **texts,
            "op": pa.repeat("u", number),
            "after": pa.array(pos).cast(pa.string()),
            "order": pa.StructArray.from_arrays(parts, fields=list(ORDER)),
            "origin": pa.repeat(pa.scalar(3, pa.int32()), number),
            "batch": pa.repeat(7, number),
        }
    )

    found = fold_changes(pa.concat_tables([changes, changes.slice(0, 1_000)]))

    assert found.rows["after"].to_pylist() == [str(number - 1)]
    assert (found.total, found.distinct, len(found.conflicts)) == (1_001_000, number, 0)


def drawn(pos: int, key: int, shard: Shard, origin: Origin, name: str) -> Row:
    """At one place of a key there is one op, though what it says may differ."""
    op = (C, U, D, R)[(pos + key + origin + len(shard.name) * ord(shard.name[-1])) % 4]
    return change(op, pos, key, name, of=shard, origin=int(origin))


changes = st.builds(
    drawn,
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([A, B]),
    st.sampled_from([Origin.LIVE, Origin.SNAPSHOT]),
    st.sampled_from("ab"),
)


@given(st.lists(changes, max_size=20), st.booleans())
def test_fold_says_what_a_plain_loop_says(rows: list[Row], spanning: bool) -> None:
    found = fold(*rows, spanning=spanning)

    plain = plainly([unique(row) if spanning else row for row in rows], spanning=spanning)
    assert (found.distinct, len(found.conflicts), len(found.rows)) == plain[:3]
    assert places(found.rows) == plain[3]


@given(st.lists(changes, max_size=20), st.booleans(), st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_nor_folding_twice_matters(
    rows: list[Row], spanning: bool, chance: Any
) -> None:
    once = fold(*rows, spanning=spanning)
    again = [*rows, *chance.sample(rows, len(rows) // 2)]
    chance.shuffle(again)

    twice = fold(*again, spanning=spanning)

    assert places(twice.rows) == places(once.rows)
    assert (twice.distinct, len(twice.conflicts)) == (once.distinct, len(once.conflicts))
    assert places(fold_changes(once.rows).rows) == places(once.rows)


def sort_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["order"]["pos"], row["origin"], row["shard"]


def places(rows: pa.Table) -> set[tuple[Any, ...]]:
    return {(row["key"], sort_key(row)[:2]) for row in rows.to_pylist()}


def plainly(rows: Sequence[Row], *, spanning: bool) -> tuple[int, int, int, set[Any]]:
    """Distinct changes, places in conflict, keys, and the place that stands for each key."""
    said = {(*sort_key(r), r["key"], r["op"], r["before"], r["after"]) for r in rows}
    at: dict[Any, set[Any]] = defaultdict(set)
    for one in said:
        if one[1] == Origin.LIVE:
            at[one[:4]].add(one)
    newest: dict[tuple[str, Shard], list[Row]] = defaultdict(list)
    for row in rows:
        newest[row["key"], row["shard"]].append(row)
    per_shard = [max(some, key=lambda r: sort_key(r)[:2]) for some in newest.values()]
    best: dict[str, Any] = {}
    for row in per_shard:
        rank = (spanning and row["op"] != D, sort_key(row)[:2])
        best[row["key"]] = max(rank, best.get(row["key"], rank))
    standing = {(key, rank[1]) for key, rank in best.items()}
    return len(said), sum(len(some) > 1 for some in at.values()), len(best), standing


def test_an_older_epochs_versions_are_below_all() -> None:
    own = (2, 5)

    said = encode_versions(own, {"new": (2, 5), "late": (2, 3), "old": (1, 900)})

    stand = ColumnPlaces.of_row((*own[:1], 0, own[1], 0, 1), said)
    assert json.loads(said) == {"late": 3, "old": -1}
    assert stand.of("old") < (2, 0) < stand.of("late") < stand.of("new") == own


@pytest.mark.parametrize("text", ["[]", '{"a": "b"}', "{"])
def test_what_tells_no_versions_holds_the_table(text: str) -> None:
    with pytest.raises(HeldError, match="misread"):
        ColumnPlaces.of_row((1, 0, 5, 0, 1), text)


@pytest.mark.parametrize("text", [None, "", "null", b"null", "{}"])
def test_a_row_without_versions_has_all_columns_in_its_own(text: str | bytes | None) -> None:
    stand = ColumnPlaces.of_row((1, 0, 5, 0, 1), text)

    assert stand.of("any") == stand.own == (1, 5)
