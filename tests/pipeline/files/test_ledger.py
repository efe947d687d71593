"""A ledger tells each file once, with consecutive offsets, whatever process asks."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replaced

from pipeline.errors import ConfigError, UnreachableError
from pipeline.files.content import ColumnsHead, FaultHead, HeartbeatHead
from pipeline.files.layout import FileStamp, KnownFile, RestlessFiles, WaitingFile
from pipeline.files.ledger import TABLES, Ledger, LedgerEntry, TakenFile
from pipeline.heartbeats import LandedHeartbeat, follow_heartbeats
from pipeline.model import Order

STAMP = FileStamp(1, 10, 100, 100)
FILE = TakenFile(
    shard="d.l",
    path="l/2026_11_23/05/a.json",
    day="2026_11_23",
    hour="05",
    kind="json_lines",
    stamp=STAMP.parts,
    digest="x",
    rows=3,
)
COLUMNS = ColumnsHead("d.l", "create", (("id", "bigint"),), ("_file", "_line"))
PART = "l/2026_11_23/05"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def test_entries_have_consecutive_offsets_and_are_found_by_any_of_them(ledger: Ledger) -> None:
    ledger.take([(FILE, [COLUMNS])], PART, sweep=1, at=0)
    ledger.fault(FaultHead("d.l", "b.json", "why"), "b.json")

    assert ledger.entries(0, 5) == (
        LedgerEntry(0, 1, COLUMNS),
        LedgerEntry(1, 4, FILE),
        LedgerEntry(4, 5, FaultHead("d.l", "b.json", "why")),
    )
    assert [one.first for one in ledger.entries(2, 3)] == [1]
    assert [one.first for one in ledger.entries(3, 5)] == [1, 4]
    assert ledger.entries(5, 9) == ()
    assert ledger.count().end == 5
    assert ledger.last_rows() == LedgerEntry(1, 4, FILE)


def test_files_are_taken_all_or_none_and_none_twice(ledger: Ledger) -> None:
    other = replaced(FILE, path="l/2026_11_23/05/b.json")
    ledger.take([(FILE, [])], PART, sweep=1, at=0)

    with pytest.raises(UnreachableError, match="UNIQUE"):
        ledger.take([(other, []), (FILE, [])], PART, sweep=1, at=0)

    assert ledger.count().end == 3
    assert ledger.taken([FILE.path, other.path]) == {FILE.path: KnownFile(STAMP, "x", 3)}


def test_another_process_reads_on_where_the_first_one_ended(ledger: Ledger) -> None:
    ledger.take([(FILE, [COLUMNS])], PART, sweep=1, at=0)
    ledger.wait(PART, 1, {"b": WaitingFile(STAMP, 1, 5.0, "half", is_reported=True)})

    other = Ledger(ledger.path)

    assert other.id == ledger.id
    assert other.count() == ledger.count()
    assert other.columns() == {"d.l": COLUMNS}
    assert other.waiting(["b"]) == {"b": WaitingFile(STAMP, 1, 5.0, "half", is_reported=True)}


def test_a_sweep_is_acknowledged_once_no_file_of_it_waits_unheard_of(ledger: Ledger) -> None:
    first, second = ledger.begin(), 0
    ledger.wait(PART, first, {"a": WaitingFile(STAMP, first, 0)})
    ledger.end_sweep(first)
    second = ledger.begin()
    ledger.end_sweep(second)
    assert ledger.acknowledged() == first - 1

    ledger.wait(PART, second, {"a": WaitingFile(STAMP, first, 0, is_reported=True)})
    assert ledger.acknowledged() == second


def test_what_was_not_seen_again_is_forgotten(ledger: Ledger) -> None:
    ledger.wait(PART, 1, {"a": WaitingFile(STAMP, 1, 0), "b": WaitingFile(STAMP, 1, 0)})
    ledger.wait(PART, 2, {"b": WaitingFile(STAMP, 1, 0)})

    ledger.forget_unseen(2)

    assert list(ledger.waiting(["a", "b"])) == ["b"]
    assert ledger.waits() == {PART: 1}


def test_beats_are_told_by_a_sweep_that_began_after_they_were_asked_for(ledger: Ledger) -> None:
    early = ledger.begin()
    assert ledger.write_heartbeat(0, "s.h", "logs") == 0
    assert ledger.write_heartbeat(7, "s.h", "logs") == 7
    ledger.end_sweep(early)
    assert ledger.entries(0, 9) == ()

    ledger.end_sweep(ledger.begin())

    assert [one.what for one in ledger.entries(0, 9)] == [HeartbeatHead("s.h", "logs", 7)]
    ledger.end_sweep(ledger.begin())
    assert ledger.count().end == 1


def test_no_beat_is_left_out_however_many_a_sweep_answers(ledger: Ledger) -> None:
    for asked in (5, 1, 3):
        for _ in range(asked):
            ledger.write_heartbeat(4, "s.h", "logs")
        ledger.end_sweep(ledger.begin())

    told = [(one.first, one.what.n) for one in ledger.entries(0, 99) if hasattr(one.what, "n")]
    landed = [LandedHeartbeat(n, "logs.files", 0, at, Order(1, 0, at)) for at, n in told]

    assert [n for _, n in told] == list(range(4, 13))
    assert (found := follow_heartbeats(None, landed, 0)) is not None
    assert found.skipped == ()


def test_files_are_known_by_their_inode_in_their_own_log(ledger: Ledger) -> None:
    ledger.take([(FILE, [])], PART, sweep=1, at=0)
    known = KnownFile(STAMP, "x", 3)
    assert ledger.by_inode(STAMP.inode, "l") == [(FILE.path, known)]
    assert ledger.by_inode(STAMP.inode, "other") == ledger.by_inode(2, "l") == []

    touched = replace(STAMP, changed=999)
    ledger.seen_again(FILE.path, touched, "x")
    assert ledger.by_inode(STAMP.inode, "l") == [(FILE.path, replace(known, stamp=touched))]

    ledger.seen_again(FILE.path, STAMP, "y")
    changed = KnownFile(STAMP, "y", 3, changed=True)
    assert ledger.by_inode(STAMP.inode, "l") == [(FILE.path, changed)]


def test_a_file_that_was_taken_without_a_row_may_be_taken_again(ledger: Ledger) -> None:
    ledger.take([(replaced(FILE, rows=0), [])], PART, sweep=1, at=0)
    ledger.take([(FILE, [])], PART, sweep=2, at=1)

    assert ledger.taken([FILE.path])[FILE.path].rows == 3
    assert ledger.count().end == 3


def test_windows_of_offsets_share_no_file_and_leave_none_out(ledger: Ledger) -> None:
    for number, rows in enumerate((3, 1, 5, 2)):
        file = replaced(FILE, path=f"{PART}/{number}.json", rows=rows)
        ledger.take(
            [(file, [])], f"l/2026_11_23/0{number % 2}", sweep=1, at=number, late=number > 2
        )

    whole = ledger.rows_between(0, 11)
    assert [(one.part, one.files, one.rows, one.late) for one in whole] == [
        ("l/2026_11_23/00", 2, 8, 0),
        ("l/2026_11_23/01", 2, 3, 2),
    ]
    for cut in range(12):
        parts = (*ledger.rows_between(0, cut), *ledger.rows_between(cut, 11))
        assert sum(one.files for one in parts) == 4
        assert sum(one.rows for one in parts) == 11
    assert [(one.part, one.rows) for one in ledger.late_rows(0)] == [("l/2026_11_23/01", 2)]
    assert ledger.late_rows(3.5) == ()


def test_a_ledger_that_was_lost_has_another_id(ledger: Ledger) -> None:
    known = ledger.id
    ledger.close()
    for path in ledger.path.parent.iterdir():
        path.unlink()

    assert Ledger(ledger.path).id != known


def test_a_ledger_without_a_folder_or_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there; make it"):
        Ledger(tmp_path / "none" / "ledger.db").count()

    (tmp_path / "odd.db").write_text("no database " * 100)
    with pytest.raises(UnreachableError, match="not a database"):
        Ledger(tmp_path / "odd.db").count()


def test_what_was_answered_is_on_the_disk(ledger: Ledger) -> None:
    with ledger._asked() as db:
        (level,) = db.execute("PRAGMA synchronous").fetchone()

    assert isinstance(db, sqlite3.Connection)
    assert level == 2  # FULL


def test_what_waits_is_found_by_its_inode_until_somebody_was_told(ledger: Ledger) -> None:
    ledger.wait(PART, 5, {"a": WaitingFile(STAMP, 3, 0), "b": WaitingFile(STAMP, 4, 0)})
    ledger.wait(PART, 5, {"c": WaitingFile(replace(STAMP, inode=2), 1, 0, is_reported=True)})

    assert ledger.first_by_inode([STAMP.inode, 2, 3]) == {STAMP.inode: 3}


def test_a_ledger_of_before_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as db:
        for statement in TABLES:
            db.execute(statement.replace(", seen REAL", ""))
        db.execute("INSERT INTO waiting VALUES ('c/a', 1, 2, 3, 4, 5, 6.0, '', 0, 'c', 7)")
        db.commit()
    ledger, waits = Ledger(path), WaitingFile(FileStamp(1, 2, 3, 4), 5, 6.0)

    assert ledger.waiting(["c/a"]) == {"c/a": waits}
    assert ledger.restless(9.0) is None
    ledger.wait("c", 8, {"c/a": replace(waits, seen=5.0)})
    assert ledger.restless(9.0) == RestlessFiles(1, "c/a", 5.0)
    ledger.close()
