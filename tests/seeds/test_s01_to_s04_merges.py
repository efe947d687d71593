"""Merges that lose or regress rows (S1-S4): the seed's rule fails on the case, ours holds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.model import Op
from tests.builders.lake import LocalLake, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
Change = Mapping[str, Any]
Seen = dict[int, tuple[str, str | None]]  # id -> (op, name), deletes kept as rows


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    return LocalLake(tmp_path)


def merge_as_the_seed(batches: Sequence[Sequence[Change]], newest: Callable[[Change], Any]) -> Seen:
    """Keep one change a key; update on `u` and `d`, insert what is not there: deletes stay `d`."""
    target: Seen = {}
    for batch in batches:
        kept: dict[int, Change] = {}
        for change in batch:
            key = int(str(change["key"]).split('"')[-2])
            if key not in kept or newest(change) > newest(kept[key]):
                kept[key] = change
        for key, change in kept.items():
            if key not in target or change["op"] in ("u", "d"):
                target[key] = (change["op"], change["label"])
    return target


def alive(target: Seen) -> dict[int, str | None]:
    return {key: name for key, (op, name) in target.items() if op != "d"}


def labelled_change(op: Op, pos: int, name: str, **more: Any) -> dict[str, Any]:
    return row(op, pos, 1, name, label=name, **more)


def by_offset(one: Change) -> int:
    return int(one["offset"])


def test_s01_a_row_inserted_again_after_its_delete_is_not_lost(lake: LocalLake) -> None:
    batches = [
        [labelled_change(C, 10, "old")],
        [labelled_change(D, 20, "old")],
        [labelled_change(C, 30, "new")],
    ]

    assert alive(merge_as_the_seed(batches, by_offset)) == {}
    assert lake.play(*batches) == {1: "new"}


def test_s02_a_batch_played_again_does_not_take_a_row_back(lake: LocalLake) -> None:
    first, second = (
        [labelled_change(C, 10, "a"), labelled_change(U, 20, "old")],
        [labelled_change(U, 30, "new")],
    )

    assert alive(merge_as_the_seed([first, second, first], by_offset)) == {1: "old"}
    assert lake.play(first, second, first) == {1: "new"}


def test_s03_two_changes_of_one_millisecond_are_not_picked_at_random(lake: LocalLake) -> None:
    early, late = labelled_change(C, 10, "early", ts_ms=5), labelled_change(U, 11, "late", ts_ms=5)

    seeds = [
        merge_as_the_seed([pair], lambda c: c["ts_ms"]) for pair in ([early, late], [late, early])
    ]
    ours = [lake.play([early, late]), lake.play([late, early])]

    assert seeds[0] != seeds[1], "the seed's answer depends on where the rows stand"
    assert ours == [{1: "late"}, {1: "late"}]


def test_s04_a_key_that_changed_partition_is_not_judged_by_offsets(lake: LocalLake) -> None:
    before = labelled_change(C, 10, "before", partition=0, offset=9_000)
    after = labelled_change(U, 20, "after", partition=1, offset=3)

    assert alive(merge_as_the_seed([[before, after]], by_offset)) == {1: "before"}
    assert lake.play([before, after]) == {1: "after"}
