"""Set-up prints each step with its duration."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from demo import unpack
from pipeline.spark import jars

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = """#!/bin/bash
case "$*" in
"-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/uv;;
"-m pipeline.spark.jars") echo "jars: fetched 0 of 9";;
esac
"""


def test_f183_the_first_set_up_prints_each_step_and_its_duration(tmp_path: Path) -> None:
    for name in ("Makefile", "step.sh", "pyproject.toml", "requirements.lock", "jars.lock"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(ROOT / "requirements-build.lock", tmp_path)
    _program(tmp_path / "packages.sh", "#!/bin/bash\n")
    python = _program(tmp_path / "fake-python", PYTHON)
    _program(tmp_path / "python.sh", f"#!/bin/bash\necho {python}\n")
    (tmp_path / "build" / "jars").mkdir(parents=True)

    first = _make(tmp_path)
    second = _make(tmp_path)

    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    count = sum("==" in line for line in lines)
    assert first[0] == "setup: the first run takes 1 to 6 minutes: Python packages, then jars"
    assert [re.sub(r" in \d+ s", "", line) for line in first[1:]] == [
        "setup: virtual environment in .venv",
        "setup: virtual environment in .venv: done",
        f"setup: {count} Python packages of requirements.lock",
        f"setup: {count} Python packages of requirements.lock: done",
        "setup: Sluice itself",
        "setup: Sluice itself: done",
        "jars: fetched 0 of 9",
    ]
    assert second == []


def test_f183_a_long_step_prints_that_it_goes_on(tmp_path: Path) -> None:
    told = tmp_path / "told"
    waits = "until grep -q 'so far' \"$0\"; do read -r -t 0.02 < <(:) || true; done"
    with told.open("w") as stream:
        subprocess.run(
            [str(ROOT / "step.sh"), "packages", "bash", "-c", waits, str(told)],
            env={**os.environ, "STEP_PACE": "0.05"},
            stderr=stream,
            check=True,
            timeout=60,
        )

    lines = told.read_text("utf-8").splitlines()
    assert lines[0] == "setup: packages"
    assert re.fullmatch(r"setup: packages: \d+ s so far", lines[1])
    assert any(re.fullmatch(r"setup: packages: done in \d+ s", line) for line in lines)


def test_f183_a_step_that_fails_is_named_and_keeps_its_status() -> None:
    done = subprocess.run(
        [str(ROOT / "step.sh"), "packages", "bash", "-c", "echo no route >&2; exit 7"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 7
    assert re.search(r"no route\nsetup: packages: failed after \d+ s", done.stderr)


def test_f183_only_what_is_not_unpacked_yet_is_unpacked_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives = {"mysql": (Path("mysql-1.jar"),), "connect": (Path("a-1.tar.gz"),)}
    unpacked: list[str] = []
    monkeypatch.setattr(jars, "jar_files", archives.__getitem__)
    monkeypatch.setattr(unpack, "UNPACKED", tmp_path)
    monkeypatch.setattr(unpack, "mysql", lambda: unpacked.append("mysql"))
    monkeypatch.setattr(unpack, "plugins", lambda: unpacked.append("plugins"))
    (tmp_path / "mysql-1").mkdir()
    said: list[str] = []

    unpack.prepare(said.append)

    assert unpacked == ["plugins"]
    assert said == ["unpack Debezium", "unpack Debezium: done in 0 s"]


def _program(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def _make(home: Path) -> list[str]:
    done = subprocess.run(
        ["/usr/bin/make", "setup"],
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return (done.stderr + done.stdout).splitlines()
