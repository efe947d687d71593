"""Which deletes leave their rows, with which values, and what of them is held: without a lake."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.apply.archive import (
    ArchiveEvidence,
    ArchiveMerge,
    apply_archive_rules,
    has_live_op,
    has_partner,
    is_during,
    is_in_reach,
    meets_window,
)
from pipeline.apply.decide import Floors, Found, RowVerdict, decide_rows
from pipeline.apply.fold import fold_changes
from pipeline.apply.row_metadata import SLUICE, Mask, RowOrigins
from pipeline.archive import ArchiveMarker, ArchiveRules, ArchiveWindow
from pipeline.errors import HeldError
from pipeline.model import Op, Order, Origin
from tests.pipeline.tables.delta.turns import NOW, A, B, change, table, unique

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
INSERT, DELETE, NOOP, ARCHIVE = (
    RowVerdict.INSERT,
    RowVerdict.DELETE,
    RowVerdict.NOOP,
    RowVerdict.ARCHIVE,
)
HOUR = timedelta(hours=1)
OLD, NEW = "2025-06-01", "2026-01-01"
WINDOW = ArchiveWindow(NOW - HOUR, NOW + HOUR, "name", "2025-12-01")
EVERY = replace(WINDOW, column="", before="")
AGED = ArchiveRules((WINDOW,))
MARKED = ArchiveRules(markers=(ArchiveMarker("db.purges"),))


@dataclass(frozen=True)
class Row:
    """A row of the mirror, as of *pos* of shard *of*."""

    name: str | None
    pos: int = 10
    archived: bool = False
    of: Any = A


@dataclass(eq=False)
class Slice:
    """One slice of changes against a mirror: id -> row."""

    mirror: Mapping[int, Row] = field(default_factory=dict)
    raised: Floors = field(default_factory=dict)
    unread: bool = False  # nobody can read the mirror
    broken: str = ""  # why values that are lacking are not to be had
    spanning: bool = False
    narrow: bool = False  # no change tells which columns it changed
    asked: list[list[int]] = field(default_factory=list)  # ids, by those that know more

    def decided(
        self, evidence: ArchiveEvidence, *rows: dict[str, Any]
    ) -> dict[int, tuple[RowVerdict, str | None, int]]:
        """Id -> verdict, name, and the place that the row would have, of all that fold."""
        changes = table(*(map(unique, rows) if self.spanning else rows))
        changes = changes.drop_columns(["changed"]) if self.narrow else changes
        folded = fold_changes(changes)
        found = self._found(folded.rows)
        verdicts = decide_rows(folded, found, {}, self.raised)
        turn = ArchiveMerge(
            changes,
            folded,
            type_images(folded.rows),
            found,
            self.raised,
            type_images,
            self._whole,
            None if self.unread else self._peek,
        )
        made, after = apply_archive_rules(evidence, turn, verdicts)
        told = zip(key_ids(folded.rows), after.tolist(), made.to_pylist(), strict=True)
        return {id_: (RowVerdict(one), row["name"], row[SLUICE]) for id_, one, row in told}

    def knowing(self, *those: int) -> Callable[[pa.Table], Mask]:
        """Who knows something of *those* deletes; notes which are asked about."""

        def ask(deletes: pa.Table) -> Mask:
            self.asked.append(key_ids(deletes))
            return np.array([one in those for one in key_ids(deletes)], np.bool_)

        return ask

    def _found(self, folded: pa.Table) -> Found:
        """Each row that stands is in file 0, at the place of its id."""
        every = key_ids(folded)
        rows = [self.mirror.get(one) for one in every]
        rank = [(1, 1, row.pos if row else 0, 0, int(Origin.LIVE)) for row in rows]
        owners = RowOrigins(
            pa.array([row and row.of.source for row in rows], pa.string()),
            pa.array([row and row.of.name for row in rows], pa.string()),
            np.array(rank, np.int64).T,
            np.zeros(len(rows), np.bool_),
            np.array([bool(row and row.archived) for row in rows], np.bool_),
        )
        file = np.array([-1 if row is None else 0 for row in rows], np.int32)
        return Found(file, np.array(every, np.int64), owners)

    def _peek(self, found: Found, names: Sequence[str]) -> pa.Table:
        assert found.there.all()
        rows = [{"id": one, "name": self.mirror[one].name} for one in found.position.tolist()]
        whole = pa.Table.from_pylist(
            rows, pa.schema([("id", pa.int32()), ("name", pa.large_string())])
        )
        return whole.select(list(names))

    def _whole(self, own: pa.Table, rows: pa.Table, found: Found) -> pa.Table:
        if self.broken:
            raise HeldError("partial", self.broken)
        lacking = [None if text is None else "name" not in json.loads(text) for text in texts(own)]
        known = [self.mirror.get(one) for one in key_ids(own)]
        names = [
            row.name if lacks and row else name
            for lacks, row, name in zip(lacking, known, rows["name"].to_pylist(), strict=True)
        ]
        return rows.set_column(1, "name", pa.array(names, pa.string()))


def key_ids(changes: pa.Table) -> list[int]:
    return [int(json.loads(key)[-1]) for key in changes["key"].to_pylist()]


def texts(changes: pa.Table) -> list[str | None]:
    images = zip(changes["after"].to_pylist(), changes["before"].to_pylist(), strict=True)
    return [after or before for after, before in images]


def type_images(changes: pa.Table) -> pa.Table:
    """Rows of the images, and in ``_sluice`` where each came."""
    names = [None if one is None else json.loads(one).get("name") for one in texts(changes)]
    return pa.table(
        {
            "id": pa.array(key_ids(changes), pa.int64()),
            "name": pa.array(names, pa.string()),
            SLUICE: pa.array([one["pos"] for one in changes["order"].to_pylist()], pa.int64()),
        }
    )


THREE = {1: Row(OLD), 2: Row(OLD), 3: Row(NEW)}


def test_f113_a_row_below_the_bound_stays_at_the_place_of_its_delete() -> None:
    made = Slice(THREE).decided(
        ArchiveEvidence(AGED), change(D, 20, 3, NEW), change(D, 21, 1), change(U, 22, 2, "later")
    )

    assert made == {
        3: (DELETE, NEW, 20),
        1: (ARCHIVE, OLD, 21),
        2: (RowVerdict.UPDATE, "later", 22),
    }


@pytest.mark.parametrize(
    ("mirror", "rows", "stays"),
    [
        pytest.param({}, [change(C, 19, 1, OLD)], (INSERT, OLD, 20), id="came in the slice"),
        pytest.param({}, [], (NOOP, None, 20), id="was never seen"),
        pytest.param(
            {1: Row(NEW)}, [change(U, 19, 1, OLD)], (ARCHIVE, OLD, 20), id="as the slice knew it"
        ),
        pytest.param(
            {1: Row(OLD, 15)},
            [change(U, 14, 1, NEW)],
            (ARCHIVE, OLD, 20),
            id="the mirror knows more",
        ),
        pytest.param(
            {1: Row(OLD)},
            [change(C, 12, 1, NEW), change(D, 13, 1, NEW), change(C, 14, 1, OLD)],
            (ARCHIVE, OLD, 20),
            id="it came again",
        ),
        pytest.param(
            {1: Row(NEW)},
            [change(U, 12, 1, OLD), change(U, 13, 1, NEW)],
            (DELETE, None, 20),
            id="newest counts",
        ),
        pytest.param({1: Row(None)}, [], (DELETE, None, 20), id="a row without an age"),
    ],
)
def test_f113_a_row_stays_as_it_was_known_last(
    mirror: Mapping[int, Row], rows: list[dict[str, Any]], stays: tuple[RowVerdict, str | None, int]
) -> None:
    gone = change(D, 20, 1, before=json.dumps({"id": 1}))
    other = [change(C, 5, 7, OLD), change(D, 6, 8, OLD)]

    assert Slice(mirror).decided(ArchiveEvidence(AGED), *other, *rows, gone)[1] == stays


@pytest.mark.parametrize(
    ("gone", "there"),
    [
        pytest.param(change(D, 20, 1, OLD, origin=int(Origin.REPAIR)), Row(OLD), id="a repair's"),
        pytest.param(change(D, 20, 1, OLD, at=NOW + HOUR), Row(OLD), id="at the window's end"),
        pytest.param(change(D, 20, 1, OLD, at=None), Row(OLD), id="without a time"),
        pytest.param(change(D, 9, 1, OLD), Row(OLD), id="older than its row"),
        pytest.param(change(D, 20, 1, OLD), Row(OLD, archived=True), id="archived before"),
    ],
)
def test_f113_other_deletes_do_what_they_did(gone: dict[str, Any], there: Row) -> None:
    slice_ = Slice({1: there})
    plain = slice_.decided(ArchiveEvidence(ArchiveRules()), gone)

    assert slice_.decided(ArchiveEvidence(AGED), gone) == plain


@pytest.mark.parametrize(
    ("pos", "verdict"), [(9, DELETE), (19, ARCHIVE)], ids=["before its delete", "in its place"]
)
def test_f113_a_create_in_the_place_of_a_delete_took_the_row_along(
    pos: int, verdict: RowVerdict
) -> None:
    made = Slice(THREE).decided(
        ArchiveEvidence(AGED),
        change(D, 9 if verdict is DELETE else 20, 1, OLD, order=order_struct(21)),
        change(C, 21 if verdict is DELETE else pos, 7, OLD),
        change(D, 22, 2, OLD),
    )

    assert (made[1][0], made[2][0], made[7][0]) == (verdict, ARCHIVE, INSERT)


def order_struct(pos: int) -> dict[str, int]:
    return {"epoch": 1, "log": 1, "pos": pos, "row": 0}


def test_f113_all_windows_count_and_each_by_its_own_bound() -> None:
    rules = ArchiveRules(
        (
            replace(WINDOW, until=NOW),
            replace(WINDOW, since=NOW, before="2025-01-01"),
            replace(WINDOW, since=NOW, column="id", before="2"),
        )
    )
    mirror = {1: Row(NEW), 2: Row("2024-01-01"), 3: Row(NEW), 4: Row(OLD)}

    made = Slice(mirror).decided(
        ArchiveEvidence(rules),
        *(change(D, 20 + n, n) for n in (1, 2, 3)),
        change(D, 24, 4, at=NOW - timedelta(minutes=1)),
    )

    assert [made[n][0] for n in (1, 2, 3, 4)] == [ARCHIVE, ARCHIVE, DELETE, ARCHIVE]


def test_f113_a_marker_keeps_rows_of_any_age_and_is_asked_of_deletes_that_take_one() -> None:
    slice_ = Slice(THREE)
    evidence = ArchiveEvidence(replace(MARKED, windows=(WINDOW,)), marked=slice_.knowing(3, 9))

    made = slice_.decided(
        evidence,
        change(U, 19, 4, "x"),
        change(D, 20, 2, OLD),
        change(D, 21, 3, NEW),
        change(D, 22, 9, NEW),
        change(D, 23, 1, OLD, origin=int(Origin.REPAIR)),
    )

    assert slice_.asked == [[2, 3, 9]]
    assert {n: made[n][0] for n in (1, 2, 3, 9)} == {1: DELETE, 2: ARCHIVE, 3: ARCHIVE, 9: NOOP}


def test_f113_a_marker_alone_keeps_what_it_marks_and_nothing_else() -> None:
    slice_ = Slice(THREE)

    made = slice_.decided(
        ArchiveEvidence(MARKED, marked=slice_.knowing(3)), change(D, 20, 1), change(D, 21, 3)
    )

    assert made == {1: (DELETE, None, 20), 3: (ARCHIVE, NEW, 21)}


def test_f113_nobody_is_asked_where_nothing_could_have_gone_to_an_archive() -> None:
    slice_ = Slice(THREE, unread=True)
    evidence = ArchiveEvidence(MARKED, marked=slice_.knowing(), find_rekeyed=slice_.knowing())

    made = slice_.decided(evidence, change(U, 20, 1, "x"))
    assert (made, slice_.asked) == ({1: (RowVerdict.UPDATE, "x", 20)}, [])
    made = slice_.decided(evidence, change(D, 20, 1, OLD))
    assert (made, slice_.asked) == ({1: (DELETE, OLD, 20)}, [[1]])


def test_f113_what_took_another_key_in_a_batch_before_is_asked_of_those_that_would_stay() -> None:
    slice_ = Slice(THREE)
    evidence = ArchiveEvidence(AGED, find_rekeyed=slice_.knowing(2))

    made = slice_.decided(
        evidence, change(D, 20, 3, NEW), change(D, 21, 1, OLD), change(D, 22, 2, OLD)
    )
    assert slice_.asked == [[1, 2]]
    assert [made[n][0] for n in (3, 1, 2)] == [DELETE, ARCHIVE, DELETE]

    slice_.decided(evidence, change(D, 20, 3, NEW))
    assert slice_.asked == [[1, 2]]


@pytest.mark.parametrize(
    ("created", "archived_before", "verdict"),
    [
        pytest.param(20, True, DELETE, id="it took another key after all"),
        pytest.param(21, True, RowVerdict.AGAIN, id="another row came"),
        pytest.param(20, False, RowVerdict.AGAIN, id="of a row that is there"),
    ],
)
def test_f113_a_row_that_was_kept_goes_once_its_create_is_seen(
    created: int, archived_before: bool, verdict: RowVerdict
) -> None:
    mirror = {1: Row(OLD, 20, archived=archived_before), 2: Row(OLD, 22, archived=True)}
    rows = [
        change(D, 20, 1, OLD),
        change(C, created, 7, OLD),
        change(U, 22, 2, OLD),
    ]

    made = Slice(mirror).decided(ArchiveEvidence(ArchiveRules()), *rows)

    assert made[1][0] is verdict
    assert made[2][0] is RowVerdict.AGAIN


@pytest.mark.parametrize(
    ("floor", "verdict"),
    [
        pytest.param({}, ARCHIVE, id="none"),
        pytest.param({A: Order(1, 1, 10)}, ARCHIVE, id="the row came at it"),
        pytest.param({A: Order(1, 1, 15)}, NOOP, id="it took the row before its delete"),
        pytest.param({A: Order(1, 1, 30)}, INSERT, id="its delete came before the floor"),
        pytest.param({B: Order(1, 1, 15)}, ARCHIVE, id="another shard's"),
    ],
)
def test_f113_a_floor_of_the_slice_takes_rows_and_leaves_those_that_went_before(
    floor: Floors, verdict: RowVerdict
) -> None:
    made = Slice({1: Row(OLD)}, raised=floor).decided(ArchiveEvidence(AGED), change(D, 20, 1, OLD))

    assert made == {1: (verdict, OLD, 20)}


def test_f113_a_row_that_the_floor_took_and_that_came_again_stays_as_it_came() -> None:
    slice_ = Slice({1: Row("2020-01-01")}, raised={A: Order(1, 1, 15)})

    made = slice_.decided(ArchiveEvidence(AGED), change(C, 17, 1, OLD), change(D, 20, 1, NEW))

    assert made == {1: (INSERT, OLD, 20)}


def test_f113_of_keys_across_shards_only_the_own_shard_tells_what_the_row_was() -> None:
    slice_ = Slice({1: Row(OLD)}, spanning=True)

    made = slice_.decided(
        ArchiveEvidence(AGED),
        change(U, 15, 1, NEW, of=B),
        change(D, 16, 1, NEW, of=B),
        change(D, 20, 1, NEW),
    )

    assert made[1][:2] == (ARCHIVE, OLD)


def test_f113_values_that_an_update_left_out_are_those_of_before() -> None:
    part = change(U, 19, 1, after=json.dumps({"id": 1}), changed=["id"])

    made = Slice(THREE).decided(ArchiveEvidence(AGED), part, change(D, 20, 1, NEW))

    assert made[1] == (ARCHIVE, OLD, 20)


def test_f113_changes_that_tell_no_changed_columns_keep_their_rows_too() -> None:
    made = Slice(THREE, narrow=True).decided(
        ArchiveEvidence(AGED), change(U, 19, 3, OLD), change(D, 20, 3, NEW), change(D, 21, 1)
    )

    assert made == {3: (ARCHIVE, OLD, 20), 1: (ARCHIVE, OLD, 21)}


@pytest.mark.parametrize(
    ("slice_", "row", "said"),
    [
        pytest.param(
            Slice(THREE, unread=True),
            change(U, 9, 3, NEW),
            "as Spark merges this mirror",
            id="by Spark",
        ),
        pytest.param(
            Slice(THREE, broken="no values"),
            change(U, 15, 1, OLD),
            "archived rows cannot keep their last values: partial: no values",
            id="no values",
        ),
    ],
)
def test_f113_a_row_that_cannot_be_kept_holds_its_table(
    slice_: Slice, row: dict[str, Any], said: str
) -> None:
    with pytest.raises(HeldError) as held:
        slice_.decided(ArchiveEvidence(AGED), row, change(D, 20, 1, OLD))

    assert held.value.reason == "archive"
    assert said in str(held.value)


def test_f113_a_mirror_that_nobody_reads_is_no_matter_where_the_slice_has_the_row() -> None:
    made = Slice(THREE, unread=True).decided(
        ArchiveEvidence(AGED), change(U, 15, 1, OLD), change(D, 20, 1, OLD)
    )

    assert made == {1: (ARCHIVE, OLD, 20)}


def test_f113_a_window_begins_at_its_since_and_ends_before_its_until() -> None:
    moments = [NOW - HOUR - timedelta(seconds=1), NOW - HOUR, NOW, NOW + HOUR, None]
    rows = table(*(change(D, n, n, OLD, at=at) for n, at in enumerate(moments)))

    assert is_during(rows, EVERY).tolist() == [False, True, True, False, False]
    later = replace(EVERY, since=NOW + HOUR, until=NOW + 2 * HOUR)
    assert is_in_reach(rows, ArchiveRules((later, EVERY))).tolist() == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert is_in_reach(rows, MARKED).all()
    assert not is_in_reach(rows, ArchiveRules()).any()


def test_f113_only_what_the_log_told_live_is_an_archives() -> None:
    rows = table(
        change(D, 1, 1, OLD), change(U, 2, 2, OLD), change(D, 3, 3, OLD, origin=int(Origin.REPAIR))
    )

    assert has_live_op(rows, D).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("column", "before", "below"),
    [
        pytest.param(pa.array([1, 2, None]), "2", [True, False, False], id="numbers"),
        pytest.param(pa.array(["a", "b", None]), "b", [True, False, False], id="texts"),
        pytest.param(
            pa.array([NOW, NOW + HOUR, None], pa.timestamp("us", "UTC")),
            "2026-01-02T05:04:05+02:00",
            [False, False, False],
            id="a moment with an offset",
        ),
        pytest.param(
            pa.array([NOW, NOW + HOUR, None], pa.timestamp("us", "UTC")),
            "2026-01-02T04:04:05",
            [True, False, False],
            id="one without is UTC's",
        ),
        pytest.param(
            pa.array([NOW.replace(tzinfo=None), None], pa.timestamp("us")),
            "2026-01-02T03:04:06",
            [True, False],
            id="times",
        ),
    ],
)
def test_f113_rows_below_the_bound_and_with_a_value_are_old(
    column: pa.Array, before: str, below: list[bool]
) -> None:
    rows = pa.table({"x": column})

    assert meets_window(rows, replace(WINDOW, column="x", before=before)).tolist() == below
    assert meets_window(rows, EVERY).all()


@pytest.mark.parametrize(
    ("column", "before", "said"),
    [
        pytest.param("y", "1", "column 'y'; the table has id, x, day; correct it", id="no column"),
        pytest.param(
            "day", "2026-01-02T12:00:00", "which is not a date32", id="a moment for a day"
        ),
        pytest.param("x", "soon", "before: 'soon', which is not a timestamp", id="no moment"),
        pytest.param(
            "id", "soon", "before: 'soon', which is not a int64, as id is", id="no number"
        ),
    ],
)
def test_f113_a_window_that_cannot_be_held_against_rows_says_so(
    column: str, before: str, said: str
) -> None:
    moments = pa.array([NOW], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": [1], "x": moments, "day": [NOW.date()], SLUICE: [1]})

    with pytest.raises(HeldError) as held:
        meets_window(rows, replace(WINDOW, column=column, before=before))

    assert held.value.reason == "archive"
    assert said in str(held.value)


def test_f113_a_partner_stands_at_the_very_place_and_in_the_same_shard() -> None:
    rows = table(*(change(D, 20, n, OLD) for n in (1,)), change(D, 30, 2, OLD), change(D, 40, 3))
    others = table(
        change(C, 20, 7, of=B),
        change(C, 30, 8, order=order_struct(30) | {"row": 5}),
        change(C, 40, 9, order=order_struct(40) | {"log": 2}),
        change(C, 50, 9),
    )

    assert has_partner(rows, others).tolist() == [False, True, False]
    assert not has_partner(rows, others.slice(3)).any()
