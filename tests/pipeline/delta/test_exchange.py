import ctypes
import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.delta import local


def test_two_folders_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / folder.name).touch()

    assert local.exchanged(str(one), str(other))

    assert [each.name for each in one.iterdir()] == ["other"]
    assert [each.name for each in other.iterdir()] == ["one"]


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        local.exchanged(str(tmp_path / "one"), str(tmp_path / "other"))


@pytest.mark.parametrize(
    "library",
    [
        pytest.param(SimpleNamespace(), id="a system without the call"),
        pytest.param(SimpleNamespace(renameat2=lambda *_: -1), id="a file system without it"),
    ],
)
def test_where_nobody_knows_how_nothing_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: object
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EINVAL)

    assert not local.exchanged(str(tmp_path), str(tmp_path / "other"))
