"""Each file is taken exactly once, whatever its clock says, and what is odd about one is told."""

import gzip
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.errors import UnreachableError
from pipeline.files import sweep
from pipeline.files.content import (
    OUTSIDE,
    ColumnsHead,
    FaultHead,
    UnfinishedFile,
    WholeFile,
    examine_file,
)
from pipeline.files.layout import KnownFile, LogRule, RestlessFiles
from tests.pipeline.files.folder import LIMIT, NOW, ROW, LogFolder, set_time


@pytest.fixture
def seldom(tmp_path: Path) -> Iterator[LogFolder]:
    """Most of its sweeps pass over folders that rest."""
    with LogFolder(tmp_path, deep=timedelta(minutes=1)) as made:
        yield made


def test_a_file_that_stands_still_is_taken_once(folder: LogFolder) -> None:
    folder.write("a.json", ROW * 3)

    folder.sweep()
    assert folder.taken() == {}

    folder.sweep(5)
    assert folder.taken() == {"a.json": 3}
    assert folder.faults() == []


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(datetime(1999, 1, 1, tzinfo=UTC), id="long before the last window"),
        pytest.param(datetime(2026, 11, 23, 12, 29, 59, tzinfo=UTC), id="just before it"),
        pytest.param(datetime(2039, 1, 1, tzinfo=UTC), id="in the future"),
    ],
)
def test_a_clock_that_is_wrong_neither_hides_a_file_nor_lets_it_be_taken_twice(
    folder: LogFolder, moment: datetime
) -> None:
    folder.write("a.json", ROW)
    folder.settled()
    set_time(folder.write("b.json", ROW), moment)
    folder.settled()
    set_time(folder.base / "clicks/2026_11_23/12/a.json", moment)

    folder.sweep(10)

    assert folder.taken() == {"a.json": 1, "b.json": 1}
    assert folder.faults() == []


@pytest.mark.parametrize(
    ("half", "rest", "why"),
    [
        pytest.param(b'{"id": 1}\n{"id"', b": 2}\n", "2th, is no whole JSON object", id="json"),
        pytest.param(b"", ROW, "", id="empty"),
    ],
)
def test_a_file_that_is_half_written_is_taken_when_it_is_whole(
    folder: LogFolder, half: bytes, rest: bytes, why: str
) -> None:
    path = folder.write("a.json", half)
    folder.settled()
    assert folder.taken() == {}
    assert folder.ledger.acknowledged() < folder.ledger.count().done

    with path.open("ab") as file:
        file.write(rest)
    folder.settled()

    assert folder.taken() == {"a.json": len((half + rest).splitlines())}
    assert folder.faults() == []
    assert folder.ledger.acknowledged() == folder.ledger.count().done


def test_a_packed_file_waits_until_it_is_whole_and_one_that_is_damaged_is_told(
    folder: LogFolder,
) -> None:
    data = gzip.compress(ROW * 3)
    path = folder.write("a.json.gz", data[:-3])
    folder.write("b.csv.gz", b"id\n1\n")
    folder.settled()
    assert (folder.taken(), folder.faults()) == ({}, [])

    path.write_bytes(data)
    folder.sweep(3, LIMIT)

    assert folder.taken() == {"a.json.gz": 3}
    (told,) = folder.faults()
    assert told.startswith("Not a gzipped file")


def test_a_file_that_stays_half_written_is_told_once_and_holds_up_nothing_more(
    folder: LogFolder,
) -> None:
    folder.write("a.json", b'{"id": 1}\n{"id"')
    folder.write("b.json", ROW)

    folder.sweep(2)
    assert folder.ledger.acknowledged() < 1
    folder.sweep(2, LIMIT)
    folder.again()
    folder.sweep(5)

    assert folder.faults() == ["its last line, the 2th, is no whole JSON object; it was not taken"]
    assert folder.taken() == {"b.json": 1}
    assert folder.ledger.acknowledged() == folder.ledger.count().done


@pytest.mark.parametrize(
    "name", ["a.json.tmp", "a.json._COPYING_", "_SUCCESS", ".a.json.crc", "a.inprogress"]
)
def test_a_name_that_says_so_is_no_file_yet_and_nobody_waits_for_it(
    folder: LogFolder, name: str
) -> None:
    path = folder.write(name, ROW)
    folder.sweep(3, LIMIT)
    assert (folder.taken(), folder.faults()) == ({}, [])
    assert folder.ledger.acknowledged() == folder.ledger.count().done

    path.rename(path.with_name("b.json"))
    folder.settled()

    assert folder.taken() == {"b.json": 1}


def test_files_that_were_examined_and_not_taken_are_examined_again(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        folder.write(f"{number}.json", ROW)
    folder.sweep()

    def fails(path: Path, kind: str, base: Path, *, named: bool) -> WholeFile | UnfinishedFile:
        if path.name == "2.json":
            raise OSError(5, "Input/output error")
        return examine_file(path, kind, base, named=named)

    with monkeypatch.context() as patched:
        patched.setattr(sweep, "examine_file", fails)
        with pytest.raises(UnreachableError, match="Input/output error"):
            folder.sweep()
    assert folder.taken() == {}

    folder.sweep()
    assert folder.taken() == dict.fromkeys(("0.json", "1.json", "2.json"), 1)
    assert isinstance(folder.entries()[0].what, ColumnsHead)


def test_a_file_that_may_not_be_read_is_told_and_the_others_are_taken(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, kind: str, base: Path, *, named: bool) -> WholeFile | UnfinishedFile:
        if path.name == "a.json":  # root, who may run this, may read everything
            raise PermissionError(13, "Permission denied")
        return examine_file(path, kind, base, named=named)

    monkeypatch.setattr(sweep, "examine_file", refused)
    folder.write("a.json", ROW)
    folder.write("b.json", ROW)

    folder.sweep(3, LIMIT)

    assert folder.taken() == {"b.json": 1}
    assert folder.faults() == ["it cannot be read: Permission denied; it was not taken"]


def test_a_file_whose_name_tells_no_format_is_told(folder: LogFolder) -> None:
    folder.write("a.xyz", ROW)

    folder.sweep(3, LIMIT)

    (told,) = folder.faults()
    assert "set `format`" in told


def test_late_files_of_any_hour_in_range_are_found_and_older_hours_are_not_looked_at(
    folder: LogFolder,
) -> None:
    folder.write("a.json", ROW, hour=("2026_11_22", "13"))
    folder.write("b.json", ROW, hour=("2026_11_22", "11"))
    folder.write("c.json", ROW, hour=("2026_11_23", "14"))
    folder.write("d.json", ROW, hour=("notes", "00"))

    folder.settled()

    assert folder.taken() == {"a.json": 1}


def test_an_hour_that_gets_files_when_it_is_looked_at_no_more_is_told(folder: LogFolder) -> None:
    old = ("2026_11_22", "11")
    folder.write("history.json", ROW, hour=old)
    folder.write("a.json", ROW)
    folder.sweep(3, timedelta(minutes=2))
    assert folder.faults() == []

    folder.write("b.json", ROW, hour=old)
    folder.sweep(3, timedelta(minutes=2))

    (told,) = folder.faults()
    assert told.startswith("1 files came, such as clicks/2026_11_22/11/b.json, after their hour")
    assert folder.taken() == {"a.json": 1}


def test_an_hour_that_leaves_the_range_is_told_only_of_what_comes_then(folder: LogFolder) -> None:
    path = folder.write("a.json", ROW)
    folder.settled()
    folder.sweep(2, timedelta(days=1, hours=1))
    assert folder.faults() == []

    path.unlink()  # as retention does
    folder.sweep(2, timedelta(minutes=2))
    assert folder.faults() == []

    folder.write("b.json", ROW)
    folder.again()
    folder.sweep(2, timedelta(minutes=2))
    (told,) = folder.faults()
    assert "b.json" in told


def test_what_comes_after_its_hour_and_some_grace_is_told_as_late(folder: LogFolder) -> None:
    folder.write("a.json", ROW, hour=("2026_11_23", "12"))  # which goes on until 13:00
    folder.write("b.json", ROW, hour=("2026_11_23", "11"))  # an hour of grace goes on
    folder.write("c.json", ROW * 2, hour=("2026_11_23", "10"))
    folder.settled()

    (late,) = folder.ledger.late_rows(0)

    assert (late.part, late.files, late.rows) == ("clicks/2026_11_23/10", 1, 2)


def test_columns_are_told_before_the_first_row_and_again_when_some_come(folder: LogFolder) -> None:
    folder.write("a.json", b'{"id": 1, "x": null}\n{"id": 2, "x": 1.5}\n')
    folder.settled()
    folder.write("b.json", b'{"id": 3, "new": true}\n')
    folder.settled()

    told = [one.what for one in folder.entries() if isinstance(one.what, ColumnsHead)]

    assert [one.kind for one in told] == ["create", "alter"]
    assert dict(told[0].columns)["x"] == "double"
    assert dict(told[1].columns) == {**dict(told[0].columns), "new": "boolean"}


def test_a_file_for_whose_columns_a_log_has_no_room_is_told_and_not_taken(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.files.sweep.MOST_COLUMNS", 7)
    folder.write("a.json", b'{"id": 1, "x": 1}\n')
    folder.settled()
    folder.write("b.json", b'{"id": 2, "y": 1}\n')
    folder.write("c.json", b'{"id": 3, "z": 1}\n')
    folder.sweep(3, LIMIT)
    folder.write("d.json", ROW)
    folder.settled()

    (told,) = folder.faults()
    assert "would have 8 columns, more than 7; name those to read" in told
    assert sorted(folder.taken()) == ["a.json", "b.json", "d.json"]


def test_a_log_whose_columns_are_named_has_those(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, {"clicks": LogRule(columns={"id": "string"}, key=("id",))})
    folder.write("a.json", ROW)

    folder.settled()

    (told,) = (one.what for one in folder.entries() if isinstance(one.what, ColumnsHead))
    assert (told.columns[0], told.key) == (("id", "string"), ("id",))
    folder.process.close()


def test_a_log_whose_columns_are_named_has_room_for_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.files.sweep.MOST_COLUMNS", 7)
    with LogFolder(tmp_path) as folder:
        folder.write("a.json", b'{"id": 1, "x": 1}\n')
        folder.settled()
        folder.logs = {"clicks": LogRule(columns={"id": "bigint", "y": "bigint", "z": "bigint"})}
        folder.again()
        folder.write("b.json", b'{"id": 2, "y": 1, "z": 2}\n')
        folder.settled()

        assert folder.faults() == []
        assert sorted(folder.taken()) == ["a.json", "b.json"]


def test_a_beat_is_told_once_all_that_lay_there_before_it_is_taken(folder: LogFolder) -> None:
    folder.write("a.json", ROW)
    folder.sweep()
    folder.ledger.write_heartbeat(0, "sluice.heartbeat", "logs")
    folder.write("b.json", b"{")
    folder.sweep(4)
    assert folder.beats() == []

    folder.write("b.json", ROW)
    folder.settled()

    assert folder.beats() == [0]
    assert [type(e.what).__name__ for e in folder.entries()][-2:] == ["TakenFile", "HeartbeatHead"]


def test_what_is_not_looked_at_within_the_budget_is_gone_on_with(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, budget=timedelta())
    for hour in range(10):
        folder.write("a.json", ROW, hour=("2026_11_23", f"{hour:02}"))

    folder.process.advance()
    assert folder.ledger.count().done < folder.ledger.count().begun

    folder.sweep(3)
    assert sum(folder.taken().values()) <= 10
    assert folder.ledger.count().end >= 11
    folder.process.close()


def test_a_row_that_is_appended_before_a_beat_is_told_before_it(seldom: LogFolder) -> None:
    path = seldom.write("a.json", ROW)
    seldom.sweep(12)
    with path.open("ab") as file:
        file.write(ROW)
    seldom.ledger.write_heartbeat(0, "sluice.heartbeat", "logs")

    seldom.sweep(4, timedelta(seconds=1))
    assert (seldom.beats(), seldom.faults()) == ([], [])

    seldom.sweep(14)
    assert seldom.beats() == [0]
    told = [type(e.what).__name__ for e in seldom.entries()]
    assert told == ["ColumnsHead", "TakenFile", "FaultHead", "HeartbeatHead"]


def test_what_takes_longer_than_a_question_rests_before_it_begins_anew(tmp_path: Path) -> None:
    with LogFolder(tmp_path, budget=timedelta(seconds=1)) as folder:

        def ticks() -> float:
            folder.at += 0.1
            return folder.at

        def whole(number: int) -> float:
            while folder.ledger.count().done < number:
                folder.process.advance()
            return folder.at

        folder.process.monotonic = ticks
        for hour in range(10):
            folder.write("a.json", ROW, hour=("2026_11_23", f"{hour:02}"))
        took = whole(1)

        assert whole(2) - took > 2 * took > 2


def test_a_folder_that_rests_is_not_opened_but_once_in_a_while(
    seldom: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = seldom, seldom.write("a.json", ROW)
    folder.sweep(6)
    opened = list[Path]()
    real = os.scandir

    def noted(at: Path) -> Any:
        opened.append(Path(at))
        return real(at)

    monkeypatch.setattr(os, "scandir", noted)

    folder.sweep(1, timedelta(seconds=1))
    assert path.parent not in opened

    folder.sweep(1, timedelta(minutes=2))
    assert path.parent in opened


def test_a_file_of_an_hour_that_is_as_it_was_is_not_asked_of_the_ledger(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder.write("a.json", ROW)
    folder.sweep(5)
    asked = list[str]()
    real = folder.ledger.taken

    def noted(paths: Sequence[str]) -> Mapping[str, KnownFile]:
        asked.extend(paths)
        return real(paths)

    monkeypatch.setattr(folder.ledger, "taken", noted)

    folder.sweep(3)
    assert asked == []

    set_time(path, NOW)
    folder.sweep()
    assert asked == ["clicks/2026_11_23/12/a.json"]


def test_a_folder_whose_own_time_is_set_back_does_not_rest(seldom: LogFolder) -> None:
    folder = seldom
    parent = folder.write("a.json", ROW).parent
    set_time(parent, NOW)
    folder.sweep(6)

    folder.write("b.json", ROW)
    set_time(parent, NOW)
    folder.sweep(2)

    assert folder.taken() == {"a.json": 1, "b.json": 1}


def test_a_folder_whose_disk_is_gone_is_no_folder_without_files(folder: LogFolder) -> None:
    folder.write("a.json", ROW)
    folder.settled()
    folder.base.rename(folder.home / "elsewhere")
    folder.base.mkdir()

    with pytest.raises(UnreachableError, match="no folder of clicks; is its disk mounted"):
        folder.sweep()


def test_a_file_that_never_stands_still_is_named(folder: LogFolder) -> None:
    path = folder.write("a.json", ROW)
    folder.write("b.json", ROW)
    for _ in range(60):
        with path.open("ab") as file:
            file.write(ROW)
        folder.sweep()

    assert folder.taken() == {"b.json": 1}
    assert folder.ledger.acknowledged() == 0
    assert folder.ledger.restless(NOW.timestamp()) is None
    found = folder.ledger.restless(NOW.timestamp() + 30)
    assert found == RestlessFiles(1, "clicks/2026_11_23/12/a.json", NOW.timestamp() + 10)

    folder.settled()
    assert folder.ledger.restless(folder.now().timestamp()) is None


@pytest.mark.parametrize("at", ["2026_11_23/12/a.json", "2026_11_23/12", "2026_11_23"])
def test_a_link_to_a_file_outside_of_the_folder_is_never_read(
    folder: LogFolder, tmp_path: Path, at: str
) -> None:
    secret = tmp_path / "secrets" / "12" / "a.json"
    secret.parent.mkdir(parents=True)
    secret.write_bytes(ROW)
    folder.write("b.json", ROW, hour=("2026_11_22", "23"))
    link = folder.base / "clicks" / at
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to({"a.json": secret, "12": secret.parent}.get(link.name, secret.parent.parent))

    folder.settled()
    folder.sweep(after=LIMIT)

    assert folder.taken() == {"b.json": 1}
    (fault,) = [e.what for e in folder.entries() if isinstance(e.what, FaultHead)]
    assert fault.file == "clicks/2026_11_23/12/a.json"
    assert OUTSIDE in fault.why


def test_links_within_the_folder_and_a_log_on_another_disk_are_read(
    folder: LogFolder, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (folder.base / "clicks").symlink_to(disk)
    folder.write("a.json", ROW)
    views = folder.write("b.json", b'{"id": 2}\n', log="views")
    (views.parent / "link.json").symlink_to(folder.base / "clicks" / "2026_11_23/12/a.json")

    folder.settled()

    assert set(folder.taken()) >= {"a.json", "b.json"}
    assert folder.faults() == []


def test_the_ledger_and_its_lock_are_for_their_owner_only(folder: LogFolder) -> None:
    lock = folder.ledger.path.with_name("ledger.db.lock")
    lock.touch()
    lock.chmod(0o644)

    folder.sweep()

    beside = list(folder.ledger.path.parent.glob("ledger.db*"))
    assert {one.name for one in beside} >= {"ledger.db", "ledger.db.lock"}
    assert {stat.S_IMODE(one.stat().st_mode) for one in beside} == {0o600}


def test_two_processes_do_not_sweep_at_once(folder: LogFolder, tmp_path: Path) -> None:
    folder.sweep()
    other = LogFolder(tmp_path)

    other.process.advance()
    assert other.ledger.count().begun == 1

    folder.process.close()
    other.process.advance()
    assert other.ledger.count().begun == 2
    other.process.close()


STEPS = st.lists(
    st.sampled_from(["new", "skewed", "grow", "rename", "restart", "sweep", "late"]), max_size=25
)
DEEP = st.sampled_from([timedelta(), timedelta(minutes=1)])


@settings(max_examples=40)
@given(STEPS, DEEP)
@example(["new", "sweep", "sweep", "rename", "grow"], timedelta())
def test_whatever_happens_each_row_is_told_once_or_its_file_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], deep: timedelta
) -> None:
    with LogFolder(tmp_path_factory.mktemp("law"), deep=deep) as folder:
        paths, grown = played(folder, steps)
        folder.sweep(6, timedelta(seconds=61))  # a renamed one that grew is held by the fifth

        taken, held = folder.taken(), len(folder.faults())
        lines = sum(len(path.read_bytes().splitlines()) for path in paths)
        assert len(taken) == len(paths)
        assert sum(taken.values()) == lines or held
        assert grown or not held
        assert folder.ledger.acknowledged() == folder.ledger.count().done


def played(folder: LogFolder, steps: list[str]) -> tuple[list[Path], set[str]]:
    """The files there are then, and the names of those that grew."""
    paths, grown = list[Path](), set[str]()
    for number, step in enumerate(steps):
        match step:
            case "new" | "skewed" | "late":
                hour = ("2026_11_22", "20") if step == "late" else ("2026_11_23", "12")
                text = b'{"id": %d}\n' % number
                paths.append(folder.write(f"{number}.json", text, hour=hour))
                if step == "skewed":
                    set_time(paths[-1], datetime(2020 + number, 1, 1, tzinfo=UTC))
            case "grow" if paths:
                with paths[-1].open("ab") as file:
                    file.write(ROW)
                grown.add(paths[-1].name)
            case "rename" if paths and paths[0].name not in grown:
                paths[0] = paths[0].rename(paths[0].with_name(f"r{number}.json"))
            case "restart":
                folder.again()
            case "sweep":
                folder.sweep()
    return paths, grown
