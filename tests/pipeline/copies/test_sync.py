"""A copy ends equal to its mirror, through kills, a new mirror and foreign commits."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.copies.copy import CopyStep
from pipeline.delta.maintenance import vacuum_files
from pipeline.delta.store import open_store
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.model import Op, Order
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.pipeline.apply.test_archived import NEW, OLD, RULE
from tests.pipeline.copies.copied import TABLE, Copied, left_of_two
from tests.toy.copy import FileCopy, FileTarget

C, U, D, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.TRUNCATE


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(LocalLake(tmp_path / "lake"), FileCopy(str(tmp_path / "copy.json")))


def names(copied: Copied) -> dict[int, Any]:
    assert isinstance(copied.copy, FileCopy)
    rows = copied.copy.rows("db.t").values()
    return {int(one["id"]): one.get("name") for one in rows}


def test_a_copy_is_loaded_once_and_then_follows(copied: Copied) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(3)])
    first = copied.bring()
    assert names(copied) == copied.lake.rows()

    second = copied.play(row(U, 20, 1, "z"), row(D, 21, 2), row(C, 22, 9, "nine"))

    assert names(copied) == copied.lake.rows() == {0: "n0", 1: "z", 9: "nine"}
    assert first is not None
    assert second is not None
    assert (first.load, second.load) == (1, 1)
    assert first.lineage == second.lineage == f"{first.mirror}:{first.load_id}"
    assert (first.batch, second.batch) == (0, 1)


def test_nothing_is_copied_before_the_mirror_holds_a_batch(copied: Copied) -> None:
    assert copied.bring() is None


def test_a_row_that_came_and_went_between_two_passes_is_not_there(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()
    copied.lake.play([row(C, 20, 2, "b")], [row(D, 30, 2)], [row(C, 40, 2, "c"), row(D, 41, 1)])

    copied.bring()

    assert names(copied) == {2: "c"}


def test_a_truncate_and_a_new_column_are_followed(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    copied.bring()
    more = Column("more", "INT", default="7", has_default=True)
    copied.lake.alter(ID, NAME, more, at=Order(1, 1, 20))
    copied.play(row(U, 21, 1, after='{"id": 1, "name": "z", "more": 9}'))
    assert {k: one["more"] for k, one in copied.copy.rows("db.t").items()} == {  # type: ignore[attr-defined]
        '["1"]': "9",
        '["2"]': "7",
    }

    copied.play(row(T, 30, None), row(C, 31, 5, after='{"id": 5, "name": "new", "more": 1}'))

    assert names(copied) == {5: "new"}


def test_a_kill_between_rows_and_position_is_as_if_nothing_was_written(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(3)])
    copied.bring()
    copied.lake.play([row(U, 20, 1, "z"), row(D, 21, 2)], [row(U, 30, 1, "y"), row(C, 31, 2, "b")])
    for before in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(FileTarget, "write", _killed(FileTarget.write, before))
            with pytest.raises(KeyboardInterrupt):
                copied.bring()
        copied.reopen()

    copied.bring()

    assert names(copied) == copied.lake.rows()


def test_a_load_goes_on_at_the_part_where_it_was_killed(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied.lake.play(*([row(C, 10 + n, n, f"n{n}")] for n in range(4)))  # a file each
    with monkeypatch.context() as patch:
        patch.setattr(FileTarget, "write", _killed(FileTarget.write, 3))
        with pytest.raises(KeyboardInterrupt):
            copied.bring()
    assert copied.position is not None
    assert (copied.position.parts, len(names(copied))) == (2, 2)
    begun = copied.position.load_id
    copied.lake.play([row(D, 50, 0), row(U, 51, 3, "z")])  # meanwhile the mirror goes on
    copied.reopen()

    assert copied.bring().load == 1  # type: ignore[union-attr]
    assert copied.bring().load_id == begun != ""  # type: ignore[union-attr]

    assert names(copied) == copied.lake.rows() == {1: "n1", 2: "n2", 3: "z"}


def test_a_step_that_was_overtaken_writes_nothing(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    first = copied.bring()
    copied.play(row(U, 20, 1, "z"))
    assert first is not None

    with pytest.raises(LostRaceError):
        copied.target.write(copied.written, CopyStep(first, replace(first, version=99)))

    assert names(copied) == {1: "z"}


def test_a_mirror_that_was_made_anew_is_loaded_over_the_old_one(
    tmp_path: Path, copied: Copied
) -> None:
    copied.lake.play([row(C, 90, 1, "old"), row(C, 91, 2, "old")])
    copied.bring()
    anew = LocalLake(tmp_path / "anew")
    anew.play([row(C, 10, 1, "new")])  # its orders are lower
    anew.settings = replace(anew.settings)
    again = Copied(anew, copied.copy)
    again.target = copied.target
    again.copying.target = copied.target

    made = again.bring()

    assert names(copied) == {1: "new"}
    assert made is not None
    assert made.load == 2


def test_a_strangers_commit_is_waited_for_and_loaded_once_it_is_waived(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    copied.bring()
    DeltaTable(copied.lake.settings.mirror("db.t")).update(
        {"name": "'foreign'"}, predicate="id = 1"
    )

    with pytest.raises(HeldError, match="foreign_write"):
        copied.bring()
    assert names(copied) == {1: "a", 2: "b"}

    copied.lake.land(row(C, 20, 3, "c"))
    held = copied.lake.apply().hold
    assert held is not None
    assert copied.lake.apply([held.id]).hold is None
    made = copied.bring()

    assert names(copied) == copied.lake.rows() == {1: "foreign", 2: "b", 3: "c"}
    assert made is not None
    assert made.load == 2


def test_a_copy_is_loaded_again_on_request_though_not_over_a_strangers_commit(
    copied: Copied,
) -> None:
    copied.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    first = copied.bring()
    assert first is not None

    made = copied.copying.bring(TABLE, first, reload=True)

    assert made is not None
    assert (made.version, made.load, made.whole) == (first.version, 2, True)
    assert made.load_id != first.load_id
    DeltaTable(copied.lake.settings.mirror("db.t")).update(
        {"name": "'foreign'"}, predicate="id = 1"
    )
    with pytest.raises(HeldError, match="foreign_write"):
        copied.copying.bring(TABLE, made, reload=True)
    assert names(copied) == {1: "a", 2: "b"}


def test_a_log_that_was_cleaned_makes_a_late_copy_load_again(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()
    copied.lake.play([row(C, 20, 2, "b")], [row(D, 30, 1)])
    log = Path(copied.lake.settings.mirror("db.t"), "_delta_log")
    DeltaTable(copied.lake.settings.mirror("db.t")).create_checkpoint()
    for version in range(3):
        (log / f"{version:020}.json").unlink()

    copied.bring()

    assert names(copied) == {2: "b"}


@pytest.mark.parametrize("begun", [False, True])
def test_a_copy_that_was_off_until_its_files_were_removed_loads_again(
    copied: Copied, begun: bool
) -> None:
    copied.lake.play([row(C, 10 + id_, id_, "old") for id_ in range(3)])
    copied.copying.stopping = lambda: begun
    copied.bring()
    copied.lake.play([row(U, 20 + id_, id_, "new") for id_ in range(3)])
    copied.reopen()
    vacuum_files(open_store(copied.lake.settings.mirror("db.t")), timedelta())

    copied.bring()

    assert names(copied) == dict.fromkeys(range(3), "new")


def test_a_damaged_file_of_the_newest_version_is_reported(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    (file,) = DeltaTable(copied.lake.settings.mirror("db.t")).file_uris()
    Path(file).unlink()

    with pytest.raises(HeldError, match="file_damaged"):
        copied.bring()


def test_shards_keep_apart_what_has_one_key(tmp_path: Path) -> None:
    copied = left_of_two(tmp_path, FileCopy(str(tmp_path / "copy.json")))

    assert {k: one["name"] for k, one in copied.copy.rows("db.t").items()} == {  # type: ignore[attr-defined]
        '["1", "s", "db.t"]': "t"
    }


def test_a_table_without_a_key_is_held(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])

    with pytest.raises(HeldError, match="no_key"):
        copied.copying.bring(replace(copied.table, key=()), None)


def test_one_that_does_not_answer_is_caught_up_with(tmp_path: Path) -> None:
    copied = Copied(LocalLake(tmp_path / "lake"), FileCopy(str(tmp_path / "away" / "copy.json")))
    copied.lake.play([row(C, 10, 1, "a")])
    with pytest.raises(UnreachableError):
        copied.bring()
    copied.lake.play([row(U, 20, 1, "z")])
    (tmp_path / "away").mkdir()

    copied.bring()

    assert names(copied) == {1: "z"}


def test_a_copy_of_another_lake_is_not_written_to(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()

    with pytest.raises(HeldError, match="copy_taken"):
        copied.copy.opened("another").positions()


def _killed(write: Any, after: int) -> Any:
    """Writes so many steps; of the next one its rows are read, and it is never written."""
    left: Iterator[int] = iter(range(after))

    def killed(self: FileTarget, table: Any, step: CopyStep) -> Any:
        if next(left, None) is None:
            for _ in (*step.came, *step.went):
                pass
            raise KeyboardInterrupt
        return write(self, table, step)

    return killed


@pytest.fixture
def archived(tmp_path: Path) -> Copied:
    lake = LocalLake(tmp_path / "lake", archive=RULE)
    made = Copied(lake, FileCopy(str(tmp_path / "copy.json")))
    made.play(row(C, 10, 1, OLD), row(C, 11, 2, OLD), row(C, 12, 3, NEW))
    return made


def copied_names(archived: Copied) -> dict[int, Any]:
    assert isinstance(archived.copy, FileCopy)
    return {int(one["id"]): one.get("name") for one in archived.copy.rows("db.t").values()}


def test_a_copy_keeps_what_went_to_an_archive(archived: Copied) -> None:
    archived.play(row(D, 20, 1, OLD), row(D, 21, 3, NEW))
    assert copied_names(archived) == archived.lake.rows() == {1: OLD, 2: OLD}

    archived.play(row(T, 30, None))
    assert copied_names(archived) == archived.lake.rows() == {1: OLD}

    archived.play(row(C, 40, 1, "back"), row(U, 41, 1, "again"))
    assert copied_names(archived) == archived.lake.rows() == {1: "again"}
    archived.play(row(D, 50, 1, NEW))
    assert copied_names(archived) == archived.lake.rows() == {}


def test_a_copy_that_is_loaded_later_has_them_too(tmp_path: Path, archived: Copied) -> None:
    archived.play(row(D, 20, 1, OLD), row(C, 21, 7, OLD), row(D, 22, 7, OLD))

    other = Copied(archived.lake, FileCopy(str(tmp_path / "other.json")))
    other.bring()

    assert (
        copied_names(other)
        == copied_names(archived)
        == archived.lake.rows()
        == {1: OLD, 2: OLD, 3: NEW, 7: OLD}
    )


def test_a_kept_row_that_had_only_taken_another_key_goes_again(archived: Copied) -> None:
    archived.play(row(D, 20, 1, OLD))
    assert copied_names(archived)[1] == OLD

    archived.play(row(C, 20, 7, OLD))

    assert copied_names(archived) == archived.lake.rows() == {2: OLD, 3: NEW, 7: OLD}
