"""Tests which of two positions is newer, and which values are equal, null or not."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.apply.row_metadata import (
    META,
    NO_ORIGINS,
    ORDER,
    SLUICE,
    Adoption,
    flat_column,
    is_above,
    is_same,
    rank_order,
    rank_rows,
    row_origins,
)
from pipeline.errors import HeldError
from pipeline.model import ORDER_PARTS, Op, Order, Origin, Shard, Table

PLACE = {"epoch": 1, "log": 2, "pos": 3, "row": 4}
LOW, HIGH = (1, 1, 1, 1, 1), (2, 2, 2, 2, 2)


def changes_at(*places: dict[str, Any] | None, origin: int | None = 5) -> pa.Table:
    """Changes of one shard at *places*."""
    many = len(places)
    return pa.table(
        {
            "source": pa.array(["s"] * many, pa.string_view()),
            "shard": pa.array(["db.t"] * many, pa.string_view()),
            "order": pa.array(places, ORDER),
            "origin": pa.array([origin] * many, pa.int32()),
        }
    )


def ranks_of(*places: tuple[int, ...]) -> Any:
    """Ranks, a column each."""
    return np.array(places, np.int64).T


def test_the_column_of_a_mirror_is_what_its_readers_were_told() -> None:
    """As docs/types.md has it; one part less would be a column that nobody can merge by."""
    order = "struct<epoch: int64, log: int64, pos: int64, row: int64>"

    assert str(META) == (
        f"struct<source: string, shard: string, order: {order}, op: string, origin: int32, "
        "at: timestamp[us, tz=UTC], batch: int64>"
    )


def test_a_rank_is_epoch_log_pos_row_and_origin() -> None:
    assert rank_rows(changes_at(PLACE, PLACE | {"row": 9})).T.tolist() == [
        [1, 2, 3, 4, 5],
        [1, 2, 3, 9, 5],
    ]
    assert rank_order(Order(1, 2, 3, 4), Origin(0)).T.tolist() == [[1, 2, 3, 4, 0]]


@pytest.mark.parametrize(
    ("lost", "origin"),
    [
        pytest.param(None, 5, id="no order at all"),
        *(pytest.param(PLACE | {part: None}, 5, id=f"no {part}") for part in ORDER_PARTS),
        pytest.param(PLACE, None, id="no origin"),
    ],
)
def test_a_change_without_a_place_holds_the_table(
    lost: dict[str, Any] | None, origin: int | None
) -> None:
    with pytest.raises(HeldError, match="it cannot be compared with others"):
        rank_rows(changes_at(PLACE, lost, origin=origin))


@pytest.mark.parametrize("part", range(5))
def test_what_stands_further_left_decides_and_equals_are_not_above(part: int) -> None:
    """Each part in turn is higher on one side, and all to the right of it on the other."""
    newer = LOW[:part] + HIGH[part : part + 1] + LOW[part + 1 :]
    older = LOW[: part + 1] + HIGH[part + 1 :]

    left, right = ranks_of(newer, older, newer), ranks_of(older, newer, newer)

    assert is_above(left, right).tolist() == [True, False, False]


def test_many_are_compared_with_one() -> None:
    many = ranks_of(LOW, HIGH, (2, 2, 2, 2, 3))

    assert is_above(many, ranks_of(HIGH)).tolist() == [False, False, True]
    assert is_above(ranks_of(HIGH), many).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        pytest.param(pa.array(["a", "a", "a", None]), [True, False, False, True], id="one by one"),
        pytest.param(pa.scalar("a"), [True, False, False, False], id="all with one"),
        pytest.param(pa.scalar(None, pa.string()), [False, False, True, True], id="with null"),
    ],
)
def test_two_nulls_are_the_same_and_a_null_and_a_value_are_not(
    right: pa.Array | pa.Scalar, expected: list[bool]
) -> None:
    assert is_same(pa.array(["a", "b", None, None]), right).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.string(), pa.string()),
        (pa.large_binary(), pa.large_binary()),
    ],
    ids=str,
)
def test_views_become_plain_and_nothing_else_changes(
    kind: pa.DataType, expected: pa.DataType
) -> None:
    found = flat_column(pa.chunked_array([["a", None]], kind))

    assert found.type == expected
    assert found.cast(pa.large_string()).to_pylist() == ["a", None]


def test_changes_are_owned_by_their_shard_and_none_is_adopted() -> None:
    found = row_origins(changes_at(PLACE, PLACE | {"epoch": 7}, PLACE | {"epoch": 8}))

    taken = found.take(np.array([2, 0]))

    assert (found.source.type, found.shard.type) == (pa.string(), pa.string())
    assert found.adopted.tolist() == [False] * 3
    assert taken.rank[0].tolist() == [8, 1]
    assert (taken.source.to_pylist(), taken.shard.to_pylist()) == (["s"] * 2, ["db.t"] * 2)
    assert taken.adopted.tolist() == [False] * 2


def test_nobody_owns_nothing_and_is_compared_with_anything() -> None:
    none = NO_ORIGINS.take(np.array([], np.int64))

    assert [len(one) for one in (none.source, none.shard, none.adopted)] == [0, 0, 0]
    assert none.rank.shape == NO_ORIGINS.rank.shape == (5, 0)
    whole = NO_ORIGINS.source, NO_ORIGINS.shard, NO_ORIGINS.adopted, NO_ORIGINS.archived
    assert [len(one) for one in whole] == [0] * 4
    assert is_above(NO_ORIGINS.rank, ranks_of(HIGH)).tolist() == []


# rows of a mirror, some of them adopted

OWN, OTHER = Shard("s", "db.t"), Shard("s2", "db2.t")
BELOW_ALL = [-(2**63), 0, 0, 0, 0]


def mirror_rows(*metas: dict[str, Any] | None) -> pa.Table:
    """Rows of a mirror with these values of ``_sluice``."""
    ids = pa.array(range(len(metas)))
    return pa.table({"id": ids, SLUICE: pa.array(metas, META)})


def meta_of(shard: Shard, op: Op | None = Op.UPDATE, **order: int) -> dict[str, Any]:
    """What ``_sluice`` has of a row that was merged."""
    named = {"source": shard.source, "shard": shard.name, "op": op and str(op)}
    return {**named, "order": PLACE | order, "origin": int(Origin.LIVE)}


def test_a_merged_row_has_the_origin_of_its_change() -> None:
    rows = mirror_rows(meta_of(OWN), meta_of(OTHER, epoch=7) | {"origin": None})

    found = Adoption.of(Table("t", (OWN, OTHER)), Order(9, 9, 9, 9)).owners(rows)

    assert (found.source.to_pylist(), found.shard.to_pylist()) == (["s", "s2"], ["db.t", "db2.t"])
    assert found.rank.T.tolist() == [[1, 2, 3, 4, Origin.LIVE], [7, 2, 3, 4, Origin.SNAPSHOT]]
    assert found.adopted.tolist() == [False, False]


@pytest.mark.parametrize(
    ("shards", "named"),
    [
        pytest.param((OWN,), ["s", "db.t"], id="the only shard"),
        pytest.param((OWN, OTHER), [None, None], id="none of several"),
        pytest.param((), [None, None], id="no shard"),
    ],
)
@pytest.mark.parametrize(
    ("order", "rank"),
    [
        pytest.param(None, BELOW_ALL, id="below all changes"),
        pytest.param(Order(1, 5, 6, 7), [1, 5, 6, 7, Origin.SNAPSHOT], id="at the adoption"),
    ],
)
@pytest.mark.parametrize("without", ["no column", "no value", "no order"])
def test_a_row_that_was_there_before_counts_as_read_at_the_adoption(
    shards: tuple[Shard, ...],
    named: list[str | None],
    order: Order | None,
    rank: list[int],
    without: str,
) -> None:
    rows = mirror_rows(None if without == "no value" else {"order": None})
    rows = rows.drop_columns(SLUICE) if without == "no column" else rows

    found = Adoption.of(Table("t", shards), order).owners(rows)

    assert [*found.source.to_pylist(), *found.shard.to_pylist()] == named
    assert found.rank.T.tolist() == [rank]
    assert (found.adopted.tolist(), found.archived.tolist()) == ([True], [False])


@pytest.mark.parametrize("part", ORDER_PARTS)
def test_a_row_whose_order_lacks_a_part_is_adopted_and_others_are_not(part: str) -> None:
    torn = meta_of(OWN) | {"order": PLACE | {part: None}}

    found = Adoption.of(Table("t", (OWN,))).owners(mirror_rows(meta_of(OWN), torn))

    assert found.adopted.tolist() == [False, True]
    assert found.rank.T.tolist() == [[1, 2, 3, 4, Origin.LIVE], BELOW_ALL]


def test_a_row_that_stayed_after_its_delete_is_archived() -> None:
    rows = mirror_rows(*(meta_of(OWN, op) for op in (Op.UPDATE, Op.DELETE, None)))
    owned = Adoption.of(Table("t", (OWN,)))
    source, shard = (pa.array([each] * 3) for each in (OWN.source, OWN.name))
    rank = [pa.array([0] * 3)] * 5

    assert owned.owners(rows).archived.tolist() == [False, True, False]
    assert owned.owned(source, shard, rank, None).archived.tolist() == [False] * 3
