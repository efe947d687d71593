"""Rows that came without some values take them from older changes, or from the mirror."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.apply.decide import Found
from pipeline.apply.fold import ColumnPlaces
from pipeline.apply.partial_rows import (
    CompletedRow,
    ValueSources,
    complete_rows,
    fill_missing_values,
    is_partial,
)
from pipeline.apply.row_metadata import ORDER, RowOrigins
from pipeline.errors import HeldError
from pipeline.model import COLUMN_VERSIONS, Op

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "source", "shard", "op", "before", "after")),
        ("changed", pa.list_(pa.string())),
        ("order", ORDER),
        ("origin", pa.int32()),
    ]
)
NAMES = frozenset({"id", "name", "big"})
Row = dict[str, Any]


def whole_row(pos: int, key: int = 1, /, op: str = Op.UPDATE, **values: object) -> Row:
    """A change of one place that tells its whole row."""
    order = {"epoch": 1, "log": 2, "pos": pos, "row": 0}
    told = {"after": json.dumps({"id": key, **values}), "changed": None, "before": None}
    own = {"key": f"[{key}]", "source": "s", "shard": "db.t", "op": str(op), "origin": 0}
    return {**own, **told, "order": order}


def partial_row(pos: int, key: int = 1, /, op: str = Op.UPDATE, **values: object) -> Row:
    """A change that tells these values and no others; it comes behind a delete of its place."""
    made = whole_row(pos, key, op, **values)
    return made | {"changed": list(values), "order": made["order"] | {"row": 1}}


def deleted_row(pos: int, key: int = 1) -> Row:
    return whole_row(pos, key, Op.DELETE) | {"after": None}


def late(row: Row, **versions: int) -> Row:
    """*row*, of which these columns are told in lower versions than its own."""
    return row | {"after": json.dumps(json.loads(row["after"]) | {COLUMN_VERSIONS: versions})}


def mirror_row(
    pos: int | None, shard: str = "db.t", *, adopted: bool = False
) -> tuple[RowOrigins, Any]:
    """The mirror's row of the key, at *pos*; none of that key if that is None."""
    rank = np.array([[1], [2], [pos or 0], [0], [0]], np.int64)
    owner = pa.array([None if adopted else shard], pa.string())
    source = pa.array([None if adopted else "s"], pa.string())
    flags = np.array([adopted]), np.zeros(1, np.bool_)
    return RowOrigins(source, owner, rank, *flags), np.array([pos is not None])


def complete(
    *changes: Row, there: tuple[RowOrigins, Any] | None = None, names: frozenset[str] = NAMES
) -> CompletedRow:
    """What is known of the first of *changes*, whose others may come in any order."""
    every = pa.Table.from_pylist(list(changes), SCHEMA)
    (one,) = complete_rows(every, every.slice(0, 1), names, *(there or mirror_row(None)))
    return one


def completed_values(one: CompletedRow) -> Mapping[str, object]:
    found: dict[str, object] = json.loads(one.text)
    return found


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        pytest.param(
            [whole_row(1, name="a", big="A")], {"name": "c", "big": "A"}, id="the one before"
        ),
        pytest.param(
            [
                whole_row(1, name="a", big="A"),
                whole_row(4, name="b", big="B"),
                whole_row(3, big="C"),
            ],
            {"name": "c", "big": "B"},
            id="the newest older one",
        ),
        pytest.param(
            [
                partial_row(5, name="d"),
                whole_row(1, name="a", big="A"),
                partial_row(7, big="F"),
                partial_row(3, big="B"),
            ],
            {"name": "c", "big": "B"},
            id="of several that tell some, each what it tells",
        ),
        pytest.param(
            [whole_row(1, name="a")],
            {"name": "c", "big": None},
            id="a column that came later is NULL",
        ),
        pytest.param(
            [whole_row(5, name="a", big="X") | {"shard": "db.u"}, whole_row(1, big="A")],
            {"name": "c", "big": "A"},
            id="another shard's is another row",
        ),
        pytest.param(
            [whole_row(5, name="a", big="X") | {"source": "z"}, whole_row(1, big="A")],
            {"name": "c", "big": "A"},
            id="another source's is another row",
        ),
        pytest.param(
            [whole_row(5, 2, name="a", big="X"), whole_row(1, big="A")],
            {"name": "c", "big": "A"},
            id="another key's is another row",
        ),
    ],
)
def test_f113_a_value_is_that_of_the_newest_older_change_of_the_row(
    changes: Sequence[Row], values: Mapping[str, object]
) -> None:
    one = complete(partial_row(6, name="c"), *changes)

    assert completed_values(one) == {"id": 1, **values}
    assert (one.missing, one.old, one.own) == (frozenset(), None, (1, 6))


def test_f113_a_value_that_no_column_is_known_for_is_kept() -> None:
    one = complete(partial_row(6, name="c", new="N"), whole_row(1, name="a", big="A"))

    assert completed_values(one) == {"id": 1, "name": "c", "new": "N", "big": "A"}


def test_f113_a_change_that_tells_nothing_has_all_it_had() -> None:
    one = complete(
        partial_row(6) | {"after": None},
        partial_row(4) | {"after": "{}"},
        whole_row(1, name="a", big="A"),
    )

    assert completed_values(one) == {"id": 1, "name": "a", "big": "A"}


@pytest.mark.parametrize(
    ("there", "missing", "values"),
    [
        pytest.param(mirror_row(2), {"big"}, {"id": 1, "name": "c"}, id="its row is newer"),
        pytest.param(
            mirror_row(1), {"big"}, {"id": 1, "name": "c"}, id="it holds this very change"
        ),
        pytest.param(
            mirror_row(9, "db.u"), set(), {"id": 1, "name": "c", "big": "A"}, id="another shard's"
        ),
        pytest.param(mirror_row(2, adopted=True), {"big"}, {"id": 1, "name": "c"}, id="adopted"),
        pytest.param(mirror_row(None), set(), {"id": 1, "name": "c", "big": "A"}, id="none"),
        pytest.param(
            mirror_row(0), set(), {"id": 1, "name": "c", "big": "A"}, id="its row is older"
        ),
    ],
)
def test_f113_the_mirrors_own_row_is_believed_before_older_changes(
    there: tuple[RowOrigins, Any], missing: set[str], values: Mapping[str, object]
) -> None:
    one = complete(partial_row(6, name="c"), whole_row(1, name="a", big="A"), there=there)

    assert (set(one.missing), completed_values(one)) == (missing, values)


def test_f113_what_no_change_tells_is_left_to_the_mirrors_own_row() -> None:
    one = complete(partial_row(6, name="c"), partial_row(4, name="b"), there=mirror_row(2))

    assert (one.missing, one.old) == (frozenset({"big"}), None)
    assert completed_values(one) == {"id": 1, "name": "c"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([], id="nothing is known"),
        pytest.param([partial_row(1, name="a")], id="no older change tells it"),
        pytest.param([whole_row(1, big="A"), deleted_row(3)], id="it was deleted before"),
        pytest.param(
            [whole_row(1, big="A"), deleted_row(3) | {"after": '{"big":"X"}'}], id="with its row"
        ),
        pytest.param(
            [whole_row(1, big="A"), whole_row(3) | {"after": None}], id="a change without a row"
        ),
        pytest.param([whole_row(8, big="A")], id="only a newer change tells it"),
        pytest.param(
            [partial_row(3, 1, Op.CREATE, name="a"), whole_row(1, big="A")], id="it was made before"
        ),
    ],
)
def test_f113_a_value_that_neither_tells_holds_the_table(changes: Sequence[Row]) -> None:
    with pytest.raises(HeldError) as held:
        complete(partial_row(6, name="c"), *changes)

    assert held.value.reason == "partial_row"
    assert "a change of db.t, key [1], came without big, which no earlier row has" in str(
        held.value
    )


def test_f113_five_of_the_missing_values_are_named() -> None:
    with pytest.raises(HeldError, match=r"came without a, b, big, c, d, which no"):
        complete(partial_row(6, name="c"), names=NAMES | {"a", "b", "c", "d", "e"})


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": }'])
def test_f113_an_older_change_that_is_no_row_holds_the_table(text: str) -> None:
    with pytest.raises(HeldError, match="a row is no JSON object") as held:
        complete(partial_row(6, name="c"), whole_row(1) | {"after": text})

    assert held.value.reason == "misread"


def test_f113_a_row_that_took_another_key_has_the_values_of_its_old_one() -> None:
    one = complete(
        partial_row(6, 1, Op.CREATE, name="c"),
        whole_row(5, big="X"),
        deleted_row(6, 8),
        whole_row(2, 8, big="A"),
    )

    assert completed_values(one) == {"id": 1, "name": "c", "big": "A"}
    assert (one.missing, one.old) == (frozenset(), 2)


def test_f113_its_old_keys_row_in_the_mirror_has_what_no_change_tells() -> None:
    changes = partial_row(6, 1, Op.CREATE, name="c"), partial_row(4, 8, name="b"), deleted_row(6, 8)

    one = complete(*changes, there=mirror_row(2))

    assert (one.missing, one.old) == (frozenset({"big"}), 2)
    assert completed_values(one) == {"id": 1, "name": "c"}


def test_f113_a_row_that_took_a_key_twice_has_the_values_of_its_first_one() -> None:
    taken = (
        partial_row(6, 1, Op.CREATE, name="c"),
        deleted_row(6, 8),
        partial_row(5, 8, Op.CREATE, name="b"),
    )

    one = complete(*taken, deleted_row(5, 9), whole_row(2, 9, name="a", big="A"))

    assert completed_values(one) == {"id": 1, "name": "c", "big": "A"}


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(deleted_row(6, 1), id="of its own key"),
        pytest.param(deleted_row(6, 8) | {"shard": "db.u"}, id="of another shard"),
        pytest.param(deleted_row(6, 8) | {"source": "z"}, id="of another source"),
        pytest.param(deleted_row(5, 8), id="of another place"),
        pytest.param(whole_row(6, 8, big="X"), id="that is none"),
    ],
)
def test_f113_a_row_that_is_made_has_no_values_but_by_a_delete_of_its_place(before: Row) -> None:
    with pytest.raises(HeldError, match="came without big"):
        complete(
            partial_row(6, 1, Op.CREATE, name="c"),
            before,
            whole_row(2, 8, big="A"),
            there=mirror_row(2),
        )


def test_f113_a_row_that_is_made_and_tells_all_needs_no_other() -> None:
    one = complete(
        partial_row(6, 1, Op.CREATE, name="c", big="C"), whole_row(2, big="A"), there=mirror_row(2)
    )

    assert (completed_values(one)["big"], one.missing, one.old) == ("C", frozenset(), None)


@pytest.mark.parametrize(
    ("older", "value", "version"),
    [
        pytest.param(whole_row(7, name="a", big="A"), "A", 7, id="in a higher version"),
        pytest.param(partial_row(7, big="A"), "A", 7, id="in a higher version, by some"),
        pytest.param(whole_row(7, name="a"), None, 7, id="which has none"),
        pytest.param(partial_row(7, name="a"), "C", 3, id="another column"),
        pytest.param(whole_row(2, name="a", big="A"), "C", 3, id="in a lower version"),
        pytest.param(whole_row(3, name="a", big="A"), "C", 3, id="in the same version"),
        pytest.param(late(whole_row(7, name="a", big="A"), big=2), "C", 3, id="late itself"),
        pytest.param(late(whole_row(7, name="a", big="A"), big=5), "A", 5, id="late, and above"),
    ],
)
def test_f113_a_value_counts_in_the_highest_version_that_tells_it(
    older: Row, value: str | None, version: int
) -> None:
    one = complete(
        late(partial_row(10, name="c", big="C"), big=3), older, whole_row(1, name="z", big="Z")
    )

    assert completed_values(one) == {"id": 1, "name": "c", "big": value}
    assert one.places == {"id": (1, 10), "name": (1, 10), "big": (1, version)}
    assert COLUMN_VERSIONS not in one.text


def test_f113_a_higher_version_is_looked_for_behind_a_change_that_is_late_itself() -> None:
    newest = late(partial_row(10, name="c", big="C"), big=3)

    one = complete(
        newest, late(whole_row(8, name="b", big="B"), big=4), whole_row(6, name="a", big="A")
    )

    assert completed_values(one) == {"id": 1, "name": "c", "big": "A"}


@pytest.mark.parametrize(
    ("there", "is_open"),
    [
        pytest.param(mirror_row(5), True, id="above it"),
        pytest.param(mirror_row(3), False, id="at it"),
        pytest.param(mirror_row(2), False, id="below it"),
        pytest.param(mirror_row(None), False, id="none"),
    ],
)
def test_f113_a_late_value_is_open_where_the_mirrors_row_is_above_it(
    there: tuple[RowOrigins, Any], *, is_open: bool
) -> None:
    one = complete(
        late(partial_row(10, name="c", big="C"), big=3), partial_row(9, name="b"), there=there
    )

    assert one.open == frozenset({"big"} if is_open else ())
    assert one.missing == frozenset()


def test_f113_a_late_value_of_a_row_that_is_made_is_its_own() -> None:
    """What stood before a delete tells nothing of it, in whatever version."""
    made = late(partial_row(10, 1, Op.CREATE, name="c", big="C"), big=3)

    one = complete(made, whole_row(7, name="a", big="A"))

    assert (completed_values(one)["big"], one.open) == ("C", frozenset())


def test_f113_a_row_that_is_made_takes_no_values_of_another_change_of_its_place() -> None:
    elsewhere = partial_row(3, 5, Op.CREATE, name="e"), deleted_row(3, 8)

    with pytest.raises(HeldError, match="came without big"):
        complete(
            *(
                partial_row(6, 1, Op.CREATE, name="c"),
                whole_row(6, 8, big="X"),
                whole_row(5, 8, big="Y"),
            ),
            *elsewhere,
        )


KNOWN = CompletedRow(
    '{"id":1,"big":"C","name":"c"}',
    (1, 10),
    frozenset({"more"}),
    places={"id": (1, 10), "big": (1, 3), "name": (1, 4)},
    open=frozenset({"big", "name"}),
)


def versions(one: CompletedRow) -> object:
    return completed_values(one)[COLUMN_VERSIONS]


def test_f113_beside_no_row_a_row_tells_its_own_versions() -> None:
    one = KNOWN.beside(None)

    assert versions(one) == {"big": 3, "name": 4}
    assert (one.missing, one.open) == (KNOWN.missing, frozenset())
    assert one.places == KNOWN.places
    assert completed_values(one) == {
        "id": 1,
        "big": "C",
        "name": "c",
        COLUMN_VERSIONS: versions(one),
    }


def test_f113_beside_the_mirrors_row_it_leaves_to_it_what_that_has_in_a_higher_version() -> None:
    one = KNOWN.beside(ColumnPlaces((1, 8), {"name": 4, "more": 2}))

    assert one.missing == {"more", "big"}
    assert one.places == {"id": (1, 10), "big": (1, 8), "name": (1, 4), "more": (1, 2)}
    assert versions(one) == {"big": 8, "name": 4, "more": 2}
    assert one.open == frozenset()


def test_f113_changes_are_partial_that_name_columns() -> None:
    rows = pa.Table.from_pylist([partial_row(1), whole_row(2), partial_row(3)], SCHEMA)

    assert is_partial(rows).tolist() == [True, False, True]
    assert is_partial(rows.slice(1, 1)).tolist() == [False]
    assert is_partial(rows.drop_columns("changed")).tolist() == [False] * 3


def test_a_value_that_only_the_mirror_has_is_read_there_or_holds_the_table() -> None:
    changes = pa.Table.from_pylist([partial_row(6, name="c")], SCHEMA)
    owner, there = mirror_row(3)
    found = Found(np.where(there, 0, -1).astype(np.int32), np.zeros(1, np.int64), owner)

    def filled(peek: Any) -> list[Row]:
        columns = ("id", "name", "big")
        its = ValueSources(changes, columns, ("id",), False, _typed, lambda *_: found, peek)
        at = np.zeros(1, np.int64)
        rows: list[Row] = fill_missing_values(changes, _typed(changes), found, at, its).to_pylist()
        return rows

    kept = pa.table({"big": ["A"]})
    assert filled(lambda *_: kept) == [{"id": "1", "name": "c", "big": "A"}]
    with pytest.raises(HeldError, match="came without big"):
        filled(None)


def _typed(rows: pa.Table) -> pa.Table:
    values = [json.loads(text) for text in rows["after"].to_pylist()]
    return pa.table(
        {
            name: pa.array(
                [None if (v := one.get(name)) is None else str(v) for one in values], pa.string()
            )
            for name in ("id", "name", "big")
        }
    )
