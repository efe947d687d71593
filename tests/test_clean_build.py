"""A build deletes what an earlier one left in the project's `build/lib`, and nothing elsewhere."""

import logging
from pathlib import Path

import pytest

from clean_build import empty


def _filled(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "mine.txt").touch()
    return folder


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "project"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


def test_the_own_folder_is_deleted(project: Path) -> None:
    own = _filled(project / "build/lib")

    empty(Path("build/lib"))

    assert not own.exists()


def test_another_folder_is_left_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = _filled(tmp_path / "elsewhere")

    with caplog.at_level(logging.WARNING):
        empty(other)

    assert (other / "mine.txt").exists()
    assert f"{other} is not the project's build/lib" in caplog.text


@pytest.mark.parametrize("link", ["build", "build/lib"])
def test_what_a_link_leads_to_is_left_and_told(
    link: str, project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = _filled(tmp_path / "elsewhere" / "lib")
    (project / link).parent.mkdir(exist_ok=True)
    (project / link).symlink_to(other.parent if link == "build" else other)

    with caplog.at_level(logging.WARNING):
        empty(Path("build/lib"))

    assert (other / "mine.txt").exists()
    assert "is not emptied" in caplog.text
