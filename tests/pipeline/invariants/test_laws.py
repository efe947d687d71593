"""Laws of validation, for any slice: held if and only if a plain check says so, and else unseen."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.apply.invariants import Demands
from pipeline.errors import HeldError
from pipeline.invariants.changed_at_most import ChangedAtMost
from pipeline.invariants.invariant import Invariant
from pipeline.invariants.not_null import NotNull
from pipeline.invariants.range import Range, ValueBounds
from pipeline.invariants.unique import Unique
from pipeline.model import Op
from tests.pipeline.tables.delta.turns import TurnBench, change

Rows = dict[int, str | None]
Change = tuple[int, str | None, bool]  # key, name, whether it is a delete

INVARIANTS: dict[str, Invariant] = {
    "not_null": NotNull(("name",)),
    "range": Range({"id": ValueBounds(1, 4)}),
    "unique": Unique((("name",),)),
    "changed_at_most": ChangedAtMost(0.5, rows=1),
}
changes = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([None, "a", "b", "c"]), st.booleans()), max_size=8
)


def change_rows(slice_: Sequence[Change], first: int) -> list[dict[str, Any]]:
    return [
        change(Op.DELETE if gone else Op.UPDATE, first + at, key, name, batch=1 + at // 3)
        for at, (key, name, gone) in enumerate(slice_)
    ]


def apply_changes(rows: Rows, slice_: Sequence[Change]) -> Rows:
    made = dict(rows)
    for key, name, gone in slice_:
        made.pop(key, None)
        if not gone:
            made[key] = name
    return made


def plainly_broken(rows: Rows, slice_: Sequence[Change]) -> dict[str, set[int]]:
    """By invariant the rows at fault, by the words of the guide and nothing of the product's."""
    made, touched = apply_changes(rows, slice_), {key for key, _, _ in slice_}
    new = {key: made[key] for key in touched & made.keys()}
    times = Counter(made.values())
    changed = len(touched & rows.keys())
    found = {
        "not_null": {key for key, name in new.items() if name is None},
        "range": {key for key in new if not 1 <= key <= 4},
        "unique": {key for key, name in new.items() if name is not None and times[name] > 1},
        "changed_at_most": touched if changed > len(rows) / 2 else set(),
    }
    return {name: keys for name, keys in found.items() if keys}


def refused(bench: TurnBench, slice_: Sequence[Change], demands: Demands) -> HeldError | None:
    """Play it; what held it, if anything did."""
    try:
        bench.play(*change_rows(slice_, 100), demands=demands)
    except HeldError as error:
        return error
    return None


@given(before=changes, slice_=changes, named=st.sets(st.sampled_from(sorted(INVARIANTS))))
@settings(deadline=None)
def test_a_slice_is_held_if_and_only_if_a_plain_check_says_so(
    before: list[Change], slice_: list[Change], named: set[str]
) -> None:
    rows = apply_changes({}, before)
    expected = named & plainly_broken(rows, slice_).keys()
    home = Path(tempfile.mkdtemp())
    try:
        bench = TurnBench(home)
        bench.play(*change_rows(before, 10))
        demands = Demands(tuple((n, INVARIANTS[n]) for n in sorted(named)), "m", 0, len(rows))
        error = refused(bench, slice_, demands)
        if error is not None:
            assert error.reason == "invalid"
            assert {n for n in named if f"{n}: " in error.detail} == expected
            assert bench.rows() == rows
            first, last = map(int, error.waiver.rpartition(":")[2].rpartition("@")[0].split("-"))
            assert 1 == first <= last <= 1 + (len(slice_) - 1) // 3
            assert refused(bench, slice_, replace(demands, let=last - 1)) is not None
            assert refused(bench, slice_, replace(demands, let=last)) is None
        assert (error is not None) is bool(expected)
        assert bench.rows() == apply_changes(rows, slice_)
    finally:
        shutil.rmtree(home)


def test_a_held_turn_leaves_no_file_at_all(tmp_path: Path) -> None:
    """So that a kill in the midst of it finds nothing half done."""
    bench = TurnBench(tmp_path)
    bench.play(*change_rows([(1, "a", False), (2, "b", False)], 10))
    there = sorted(tmp_path.rglob("*"))
    demands = Demands((("not_null", INVARIANTS["not_null"]),), "m", 0, 2)

    with pytest.raises(HeldError):
        bench.play(*change_rows([(1, None, False), (2, "b", True)], 100), demands=demands)

    assert sorted(tmp_path.rglob("*")) == there
