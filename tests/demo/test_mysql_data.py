"""The server finds what it is linked with, whatever the distribution calls it."""

from pathlib import Path

import pytest

from demo import mysql_data, unpack


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(unpack, "mysql", lambda: tmp_path)
    return tmp_path


def test_f50_a_library_that_was_renamed_stands_beside_the_server(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = base / "libaio.so.1t64"
    renamed.touch()
    monkeypatch.setattr(mysql_data, "RENAMED", renamed)

    mysql_data.program()
    command = mysql_data.program()

    assert (base / "bin" / "libaio.so.1").readlink() == renamed
    assert command[0] == str(base / "bin" / "mysqld")


def test_where_it_bears_its_own_name_nothing_is_put_there(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_data, "RENAMED", base / "none")

    mysql_data.program()

    assert list((base / "bin").iterdir()) == []
