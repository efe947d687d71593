from pathlib import Path

import pytest

from demo import machine
from pipeline.errors import ConfigError


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is missing: `make check` brings no libraries, and asks for no free disk."""
    monkeypatch.setattr(machine, "LIBRARIES", {})
    monkeypatch.setattr(machine, "DISK", 0)


@pytest.mark.stack
def test_this_machine_is_fit(tmp_path: Path) -> None:
    machine.require(tmp_path / "not" / "yet" / "there")


@pytest.mark.usefixtures("fit")
@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        pytest.param("JAVAS", (99,), "Java 17 or 21 is needed; run: sudo apt-get", id="wrong Java"),
        pytest.param("DISK", 2**60, "are needed; free some space", id="no disk"),
        pytest.param(
            "LIBRARIES",
            {"libnone.so.1": "libnone1"},
            "libnone.so.1 is missing, MySQL needs it; run: sudo apt-get install libnone1",
            id="no library",
        ),
    ],
)
def test_what_is_missing_is_one_line_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object, line: str
) -> None:
    monkeypatch.setattr(machine, name, value)

    with pytest.raises(ConfigError) as caught:
        machine.require(tmp_path)

    assert line in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_no_java_is_one_line_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="install a Java 17 runtime"):
        machine.require(tmp_path)
