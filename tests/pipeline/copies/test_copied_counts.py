"""What a copy takes over of each commit is counted as the merge counted it; a lost row is not."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.ledger import LedgerEntry, settle_copied
from pipeline.copies.copy import CopiedTable, CopiedVersion, CopyStep
from pipeline.errors import UnreachableError
from pipeline.minute_counts import NO_MINUTE
from pipeline.model import Op
from tests.builders.lake import NOW, LocalLake, row
from tests.pipeline.apply.test_archived import NEW, OLD, RULE
from tests.pipeline.copies.copied import Copied
from tests.toy.copy import FileCopy, FileTarget

C, U, D, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.TRUNCATE
LATER = NOW + timedelta(minutes=3)
FIRST, SECOND = (str(int(at.timestamp()) // 60) for at in (NOW, LATER))


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    """A copy that has been loaded with three rows."""
    made = Copied(LocalLake(tmp_path / "lake"), FileCopy(str(tmp_path / "copy.json")))
    made.play(*(row(C, 10 + key, key, "first") for key in range(3)))
    made.done.clear()
    return made


def missing(found: Iterable[LedgerEntry]) -> dict[int, Mapping[str, int]]:
    return {one.minute: one.missing for one in found if one.missing}


def settle(copied: Copied) -> dict[int, Mapping[str, int]]:
    """What is missing of the newest commit."""
    newest = copied.done[-1]
    return missing(settle_copied(newest, newest.version - 1, NOW))


def test_rows_that_came_count_by_their_minute_and_op_and_rows_that_went_as_deletes(
    copied: Copied,
) -> None:
    copied.play(
        *(row(U, 20, 0, "again"), row(U, 21, 0, "newest", at=LATER)),
        *(row(C, 22, 7, "new", at=LATER), row(D, 23, 1), row(D, 24, 99)),
    )

    (done,) = copied.done
    assert done.changed == done.taken == {SECOND: {"u": 1, "c": 1}, NO_MINUTE: {"d": 1}}
    assert copied.position is not None
    assert done.lineage == copied.position.lineage != ""
    assert settle(copied) == {}


def test_a_row_that_a_truncate_removes_and_a_later_change_brings_again_has_not_gone(
    copied: Copied,
) -> None:
    copied.play(row(T, 20, None), row(C, 21, 1, "back", at=LATER), row(C, 22, 9, "new", at=LATER))

    (done,) = copied.done
    assert done.changed == done.taken == {SECOND: {"c": 2}, NO_MINUTE: {"d": 2}}


def test_rows_that_went_to_an_archive_came_as_deletes(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path / "lake", archive=RULE)
    made = Copied(lake, FileCopy(str(tmp_path / "copy.json")))
    made.play(row(C, 10, 1, OLD), row(C, 11, 2, NEW))
    made.done.clear()

    made.play(row(D, 20, 1, OLD, at=LATER), row(D, 21, 2, NEW, at=LATER))

    (done,) = made.done
    assert done.changed == done.taken == {SECOND: {"d": 1}, NO_MINUTE: {"d": 1}}


def test_a_commit_without_rows_counts_nothing(copied: Copied) -> None:
    copied.play(row(D, 20, 99))

    assert [(one.changed, one.taken) for one in copied.done] == [({}, {})]
    assert settle_copied(copied.done[0], copied.done[0].version - 1, NOW) == ()


def test_rows_that_a_copy_does_not_take_are_missing_by_minute_and_op(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileTarget.write

    def lossy(self: FileTarget, table: CopiedTable, step: CopyStep) -> int:
        return write(self, table, replace(step, came=()))

    monkeypatch.setattr(FileTarget, "write", lossy)
    copied.lossy = True
    copied.play(row(C, 20, 6, "z"), row(C, 21, 7, "new", at=LATER), row(D, 22, 1))

    assert settle(copied) == {int(FIRST): {"c": 1}, int(SECOND): {"c": 1}}


def test_rows_that_a_copy_keeps_although_they_went_are_missing_as_deletes(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileTarget.write

    def lossy(self: FileTarget, table: CopiedTable, step: CopyStep) -> int:
        return write(self, table, replace(step, went=()))

    monkeypatch.setattr(FileTarget, "write", lossy)
    copied.lossy = True
    copied.play(row(U, 20, 0, "z"), row(D, 22, 1), row(D, 23, 2))

    (newest,) = copied.done
    assert newest.at is not None
    assert settle(copied) == {int(newest.at.timestamp()) // 60: {"d": 2}}


def test_a_step_that_is_repeated_after_a_kill_counts_as_if_it_was_the_first(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis may have its rows already, but not its position."""
    write = FileTarget.write

    def twice(self: FileTarget, table: CopiedTable, step: CopyStep) -> int | None:
        parts = replace(step, came=[*step.came], went=[*step.went])
        write(self, table, parts)
        whole = json.loads(self.path.read_text("utf-8"))
        whole[table.name]["at"] = _position(step)
        self.path.write_text(json.dumps(whole), "utf-8")
        return write(self, table, parts)

    monkeypatch.setattr(FileTarget, "write", twice)
    copied.play(row(U, 20, 0, "z"), row(C, 21, 7, "new"), row(D, 22, 1))

    assert copied.done[-1].taken == {FIRST: {"u": 1, "c": 1}, NO_MINUTE: {"d": 1}}
    assert settle(copied) == {}


def test_each_step_is_counted_before_the_next_and_one_that_was_not_is_counted_again(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = copied.position
    copied.lake.play([row(U, 20, 0, "z"), row(D, 21, 1)], [row(U, 30, 0, "y"), row(D, 31, 2)])
    with monkeypatch.context() as patch:
        patch.setattr(copied.copying, "count", _not_counted)
        with pytest.raises(UnreachableError):
            copied.bring()
    assert begun is not None
    assert (copied.position or begun).version == begun.version + 1

    copied.bring(counted=False)

    assert [one.version - begun.version for one in copied.done] == [1, 2]
    assert [one.taken for one in copied.done] == [{FIRST: {"u": 1}, NO_MINUTE: {"d": 1}}] * 2
    assert isinstance(copied.copy, FileCopy)
    assert [one["name"] for one in copied.copy.rows("db.t").values()] == ["y"]


def _not_counted(_table: str, _done: CopiedVersion) -> None:
    raise UnreachableError("the store is full")


def _position(step: CopyStep) -> dict[str, Any]:
    assert step.was is not None
    was = step.was
    return {name: getattr(was, name) for name in was.__dataclass_fields__}


@pytest.mark.parametrize(
    "written", ["", "no counts", {"x": {"c": 1}}, {"7": {"c": True}}, {"7": 1}]
)
def test_a_commit_whose_note_has_no_counts_is_unknown(copied: Copied, written: object) -> None:
    copied.lake.play([row(U, 20, 0, "z")])
    path = Path(copied.lake.settings.mirror("db.t"), "_delta_log", f"{1:020}.json")
    newest = max(path.parent.glob("*.json"))
    newest.write_text(_with_written(newest.read_text("utf-8"), written), "utf-8")
    copied.bring()

    newest_done = copied.done[-1]
    assert (newest_done.changed, newest_done.taken) == (None, {FIRST: {"u": 1}})
    found = settle_copied(newest_done, newest_done.version - 1, NOW)
    assert {one.residual for one in found} == {None}


def _with_written(log: str, written: object) -> str:
    lines = [json.loads(line) for line in log.splitlines()]
    for info in (one["commitInfo"] for one in lines if "commitInfo" in one):
        note = json.loads(info["userMetadata"])
        del note["sluice"]["written"]
        note["sluice"] |= {"written": written} if written else {}
        info["userMetadata"] = json.dumps(note)
    return "\n".join(map(json.dumps, lines)) + "\n"


def test_a_copy_that_does_not_count_what_went_makes_a_commit_unknown(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileTarget.write

    def uncounted(self: FileTarget, table: CopiedTable, step: CopyStep) -> None:
        write(self, table, step)

    monkeypatch.setattr(FileTarget, "write", uncounted)
    copied.lossy = True
    copied.play(row(U, 20, 0, "z"))

    assert copied.done[-1].taken is None
    assert settle(copied) == {}


COUNTS = st.dictionaries(
    st.sampled_from([NO_MINUTE, "7", "8"]),
    st.dictionaries(st.sampled_from(["c", "u", "d"]), st.integers(1, 5), min_size=1),
    min_size=1,
)


@given(COUNTS, st.data())
def test_a_lost_row_is_a_residual_of_its_minute_and_op(
    changed: dict[str, dict[str, int]], data: st.DataObject
) -> None:
    minute = data.draw(st.sampled_from(sorted(changed)))
    op = data.draw(st.sampled_from(sorted(changed[minute])))
    taken = {key: dict(own) for key, own in changed.items()}
    taken[minute][op] -= 1

    done = CopiedVersion(5, NOW, changed, taken)
    found, again = settle_copied(done, 4, LATER), settle_copied(done, 4, LATER, again=True)

    assert missing(found) == missing(again) == {int(minute or FIRST): {op: 1}}
    assert [(one.went_in, one.came_out) for one in again] == [({op: 1}, {})]


@given(COUNTS, st.integers(-1, 3))
def test_commits_that_were_not_reported_are_unknown_and_no_residual(
    changed: dict[str, dict[str, int]], settled: int
) -> None:
    whole = CopiedVersion(5, NOW, changed, changed)
    (gap,) = [one for one in settle_copied(whole, settled, LATER) if one.unknown]

    assert (gap.minute, missing(settle_copied(whole, settled, LATER))) == (int(FIRST), {})
