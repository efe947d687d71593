"""Files that are empty, grow, are renamed or go, before they are taken or after it."""

import shutil
from datetime import timedelta

import pytest

from pipeline.files.ledger import TakenFile
from tests.pipeline.files.folder import LIMIT, ROW, LogFolder


@pytest.mark.parametrize("name", ["a.json", "DONE"])
def test_an_empty_file_is_none_after_a_while(folder: LogFolder, name: str) -> None:
    folder.write(name, b"")
    folder.sweep(3)
    assert folder.ledger.acknowledged() < 1

    folder.sweep(35)

    assert (folder.taken(), folder.faults()) == ({}, [])
    assert folder.ledger.acknowledged() == folder.ledger.count().done


@pytest.mark.parametrize(
    ("name", "first", "then"),
    [
        pytest.param("a.json", b"", ROW, id="empty"),
        pytest.param("a.csv", b"id,name\n", b"id,name\n1,x\n", id="a head alone"),
    ],
)
def test_a_file_of_which_no_row_was_taken_may_still_get_some(
    folder: LogFolder, name: str, first: bytes, then: bytes
) -> None:
    path = folder.write(name, first)
    folder.sweep(3, LIMIT)

    path.write_bytes(then)
    folder.sweep(3, timedelta(seconds=61))

    assert (folder.taken(), folder.faults()) == ({name: 1}, [])


def test_a_half_file_whose_folder_goes_keeps_nobody_waiting(folder: LogFolder) -> None:
    folder.write("b.json", ROW, hour=("2026_11_23", "11"))
    path = folder.write("a.json", b'{"id"')
    folder.sweep(2)

    shutil.rmtree(path.parent)
    folder.sweep(2)

    assert folder.faults() == []
    assert folder.ledger.acknowledged() == folder.ledger.count().done


def test_a_half_file_whose_hour_is_over_is_told_and_waited_for_no_more(folder: LogFolder) -> None:
    folder.write("a.json", b'{"id"', hour=("2026_11_22", "13"))
    folder.sweep(2)

    folder.sweep(2, timedelta(hours=3))

    (why,) = folder.faults()
    assert "its hour is closed, and it was not taken" in why
    assert folder.ledger.acknowledged() == folder.ledger.count().done


def test_what_is_acknowledged_never_falls_when_a_file_that_was_told_changes(
    folder: LogFolder,
) -> None:
    path = folder.write("a.json", b'{"id"')
    folder.sweep(3, LIMIT)
    seen = folder.ledger.acknowledged()
    assert len(folder.faults()) == 1

    path.write_bytes(b'{"id": 1')
    folder.sweep(2)

    assert folder.ledger.acknowledged() >= seen


@pytest.mark.parametrize(
    "now", [pytest.param(ROW * 3, id="grown"), pytest.param(b'{"id": 9}\n', id="of one length")]
)
def test_a_file_that_changes_after_it_was_taken_is_told_once_and_not_read_again(
    folder: LogFolder, now: bytes
) -> None:
    path = folder.write("a.json", ROW)
    folder.settled()

    path.write_bytes(now)
    folder.sweep(8, timedelta(seconds=61))
    folder.again()
    folder.sweep(3)

    (told,) = folder.faults()
    assert "changed after it was read" in told
    assert folder.taken() == {"a.json": 1}


def test_a_file_of_the_same_bytes_under_its_name_is_the_same(folder: LogFolder) -> None:
    path = folder.write("a.json", ROW)
    folder.settled()

    path.unlink()
    path.write_bytes(ROW)
    folder.sweep(5)

    assert (folder.taken(), folder.faults()) == ({"a.json": 1}, [])


def test_a_file_that_is_renamed_is_not_taken_again(folder: LogFolder) -> None:
    path = folder.write("a.json", ROW)
    folder.settled()

    path.rename(path.with_name("b.json"))
    folder.settled()
    folder.write("c.json", ROW)  # the same bytes, in another file
    folder.settled()

    assert folder.taken() == {"a.json": 1, "c.json": 1}


def test_a_file_that_is_moved_from_another_log_is_taken(folder: LogFolder) -> None:
    path = folder.write("a.json", ROW, log="clickz")
    folder.write("b.json", ROW)
    folder.settled()

    path.rename(folder.base / "clicks" / "2026_11_23" / "12" / "a.json")
    folder.settled()

    told = [one.what.path for one in folder.entries() if isinstance(one.what, TakenFile)]
    assert "clicks/2026_11_23/12/a.json" in told


@pytest.mark.parametrize("again", [ROW * 2, b'{"id": 2}\n{"id": 3}\n'])
def test_a_file_that_is_renamed_after_it_changed_is_told_and_not_read_again(
    folder: LogFolder, again: bytes
) -> None:
    path = folder.write("a.json", ROW)
    folder.settled()
    path.write_bytes(again)
    folder.sweep(3, timedelta(seconds=61))
    assert len(folder.faults()) == 1

    path.rename(path.with_name("b.json"))
    folder.sweep(3, LIMIT)

    assert folder.taken() == {"a.json": 1}
    assert "it is clicks/2026_11_23/12/a.json, which was read, then changed" in folder.faults()[1]


def test_a_file_that_grew_before_it_was_renamed_is_told_and_not_read_again(
    folder: LogFolder,
) -> None:
    path = folder.write("app.log", ROW)
    folder.sweep(6)

    path.write_bytes(ROW * 2)
    path.rename(path.with_name("app-1.log"))
    folder.sweep(3, LIMIT)

    assert folder.taken() == {"app.log": 1}
    assert len(folder.faults()) == 1


def test_a_name_that_was_of_a_renamed_file_may_be_of_another(folder: LogFolder) -> None:
    path = folder.write("a.json", ROW)
    folder.settled()
    path = path.rename(path.with_name("b.json"))
    folder.settled()

    folder.write("c.json", b'{"id": 2}\n').replace(path)
    folder.settled()

    assert (folder.taken(), folder.faults()) == ({"a.json": 1, "b.json": 1}, [])


def test_a_file_that_goes_before_it_is_taken_keeps_nobody_waiting(folder: LogFolder) -> None:
    path = folder.write("a.json", b"{")
    folder.sweep(2)

    path.unlink()
    folder.sweep()
    assert folder.ledger.acknowledged() < folder.ledger.count().done

    folder.sweep()
    assert folder.ledger.acknowledged() == folder.ledger.count().done


def test_a_file_with_two_names_is_taken_by_one(folder: LogFolder) -> None:
    path = folder.write("a.json", ROW)
    path.with_name("b.json").hardlink_to(path)

    folder.settled()

    assert len(folder.taken()) == 1
    assert folder.faults() == []


def test_a_file_that_is_renamed_while_it_waits_is_waited_for_by_its_new_name(
    folder: LogFolder,
) -> None:
    path = folder.write("a.json", ROW)
    folder.sweep()
    path = path.rename(path.with_name("b.json"))
    folder.sweep()
    with path.open("ab") as file:
        file.write(ROW)

    folder.sweep()
    assert folder.ledger.acknowledged() < 1

    folder.settled()
    assert folder.taken() == {"b.json": 2}
    assert folder.ledger.acknowledged() == folder.ledger.count().done


def test_files_are_taken_again_into_a_ledger_that_took_the_place_of_another(
    folder: LogFolder,
) -> None:
    folder.write("a.json", ROW)
    folder.sweep(6)
    folder.ledger.close()
    for path in folder.home.glob("ledger.db*"):
        path.unlink()

    folder.sweep(6)

    assert folder.taken() == {"a.json": 1}


@pytest.mark.parametrize(("restarted", "away"), [(True, timedelta(seconds=60)), (False, 2 * LIMIT)])
def test_a_file_that_was_finished_while_nobody_looked_is_not_named(
    folder: LogFolder, restarted: bool, away: timedelta
) -> None:
    path = folder.write("a.json", ROW)
    for _ in range(25 if restarted else 1):
        path.write_bytes(path.read_bytes() + ROW)
        folder.sweep()
    path.write_bytes(path.read_bytes() + ROW)
    if restarted:
        folder.again()
    folder.sweep(1, away)

    assert folder.ledger.restless((folder.now() - LIMIT).timestamp()) is None
    folder.settled()
    assert folder.taken().keys() == {"a.json"}
