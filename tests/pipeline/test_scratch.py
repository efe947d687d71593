"""Folders for Spark's temporary files go with their process, or with the next one."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import UnreachableError
from pipeline.spark.scratch import make_scratch, open_scratch

HOST = re.sub("[^A-Za-z0-9.]", "_", socket.gethostname())

LIVES_ON = """
import sys, time
from pathlib import Path
from pipeline.spark.scratch import make_scratch

print(make_scratch(Path(sys.argv[1])), flush=True)
time.sleep(float(sys.argv[2]))
"""


def started(parent: Path, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", LIVES_ON, str(parent), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_folder_for_temporary_files_goes_with_its_process_or_with_the_next_one(
    tmp_path: Path,
) -> None:
    with started(tmp_path, 60) as killed, started(tmp_path, 60) as living:
        left, kept = [Path(one.stdout.readline().strip()) for one in (killed, living) if one.stdout]
        (left / "blockmgr-1").mkdir()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with started(tmp_path, 0) as ended:
            assert ended.wait() == 0

        assert list(tmp_path.iterdir()) == [kept]
        living.send_signal(signal.SIGKILL)
    made = make_scratch(tmp_path)

    assert list(tmp_path.iterdir()) == [made]
    assert made.stat().st_mode & 0o777 == 0o700


def test_what_another_program_put_there_stays(tmp_path: Path) -> None:
    target = tmp_path / "of-another"
    target.mkdir()
    (target / "file").touch()
    (tmp_path / f"sluice-spark-{HOST}-1-aaaa").symlink_to(target)
    (tmp_path / f"sluice-spark-{HOST}-1-bbbb").write_text("a file")

    made = make_scratch(tmp_path)

    assert (target / "file").exists()
    assert sorted(one.name for one in tmp_path.iterdir() if one != made) == [
        "of-another",
        f"sluice-spark-{HOST}-1-aaaa",
        f"sluice-spark-{HOST}-1-bbbb",
    ]


def test_a_place_for_temporary_files_that_takes_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnreachableError, match=r"cannot be made in .*/file: .* SPARK_LOCAL_DIRS$"):
        make_scratch(tmp_path / "file")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SPARK_LOCAL_DIRS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmpdir"))
    return tmp_path


def test_what_comes_first_says_where_the_folders_are(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, java = open_scratch("", ""), f'-Xss4m "-Djava.io.tmpdir={places}/of java"'
    own, setting = open_scratch(java, ""), open_scratch(java, f"{places}/one, {places}/two")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.io.tmpdir={places}/tool")
    tool = open_scratch("-Xss4m", ",")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{places}/variable")
    variable = open_scratch(java, f"{places}/one")

    assert plain.java.parent == places / "tmpdir"
    assert plain.spark == (plain.java,)
    assert own.java.parent == places / "of java"
    assert own.spark == (own.java,)
    assert own.option == f'"-Djava.io.tmpdir={own.java}"'
    assert setting.java.parent == places / "of java"
    assert [one.parent for one in setting.spark] == [places / "one", places / "two"]
    assert tool.spark == (tool.java,)
    assert tool.java.parent == places / "tool"
    assert [one.parent for one in variable.spark] == [places / "variable"]


def test_spark_alone_sees_the_folders(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, seen = open_scratch("", ""), []
    with first.environment():
        seen.append(os.environ["SPARK_LOCAL_DIRS"])
    seen.append(os.environ.get("SPARK_LOCAL_DIRS", "none"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(places))
    with first.environment():
        seen.append(os.environ["SPARK_LOCAL_DIRS"])

    assert seen == [str(first.java), "none", str(first.java)]
    assert os.environ["SPARK_LOCAL_DIRS"] == str(places)


def test_one_folder_of_several_is_enough_and_without_any_the_first_is_named(places: Path) -> None:
    (places / "file").touch()
    some = open_scratch("", f"{places}/file,{places}/two")

    assert [one.parent for one in some.spark] == [places / "two"]
    with pytest.raises(UnreachableError, match=rf"cannot be made in {places}/file: File exists; "):
        open_scratch("", f"{places}/file")


@pytest.mark.parametrize("name", ["a,b", 'a"b'])
def test_a_folder_that_no_option_can_name_is_refused(
    places: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TMPDIR", f"{places}/{name}")

    with pytest.raises(UnreachableError, match=r"a comma or quotation mark is in the name of .*a"):
        open_scratch("", "")
    assert list(places.iterdir()) == []
