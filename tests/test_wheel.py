"""The wheel alone, installed in its own environment and run outside of a checkout."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from pipeline import jars
from pipeline.extras import EXTRAS

PARTS = ("pipeline", "checks", "alerts", "monitor", "demo", "bench", "tests", "docs", "grafana")
CARRIED = {"anyio", "h11", "py4j", "starlette"}  # parts of what fastapi, uvicorn and pyspark offer
BEHIND = {"crc32c"}  # kafka-python imports it where it is installed
FILES = ("pyproject.toml", "README.md", "LICENSE", "jars.lock")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("wheel")  # setuptools leaves files where it builds
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(jars.ROOT / part, copy / part, ignore=ignored)
    for file in FILES:
        shutil.copy(jars.ROOT / file, copy)
    _run(_uv(), "build", "--wheel", "--no-build-isolation", "--python", sys.executable, cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


def test_f180_the_wheel_has_what_the_service_reads_and_nothing_of_the_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()

    tops = {name.split("/")[0] for name in names if not name.startswith("sluice-")}
    data = {name.partition("/data/share/sluice/")[2] for name in names}
    assert tops == {"pipeline", "checks", "alerts", "monitor"}
    assert "monitor/web/status.html" in names
    assert data >= {
        "jars.lock",
        "grafana/dashboards/overview.json",
        "grafana/prometheus/rules.yaml",
    }
    pages = {str(page.relative_to(jars.ROOT)) for page in (jars.ROOT / "docs").rglob("*.md")}
    assert {name for name in data if name.endswith(".md")} == pages


def test_f180_an_installed_wheel_finds_its_data_outside_the_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "env"
    _run(_uv(), "venv", "--python", sys.executable, str(home), cwd=tmp_path)
    python = home / "bin" / "python"
    _run(_uv(), "pip", "install", "--python", str(python), "--no-deps", str(wheel), cwd=tmp_path)
    code = (
        "from pipeline import installed, jars; from monitor.web.runbooks import link;"
        "print(installed.is_checkout(), len(jars.locked()), link('lost.md'), jars.JARS)"
    )

    told = _run(str(python), "-c", code, cwd=tmp_path).split()
    _run(str(home / "bin" / "sluice"), "init", cwd=tmp_path)

    cache = str(tmp_path / "cache" / "sluice" / "jars")
    assert told == ["False", str(len(jars.locked())), "runbooks/lost.md", cache]
    assert (tmp_path / "sluice.yaml").is_file()


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def _run(*command: str, cwd: Path) -> str:
    """Run with the checkout's dependencies on the path, but not the checkout."""
    packages = sysconfig.get_path("purelib")
    environment = {
        **os.environ,
        "PYTHONPATH": packages,
        "XDG_CACHE_HOME": str(cwd / "cache"),
        "UV_OFFLINE": "1",
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_f181_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    names = packages_distributions()
    imported = {
        name.lower().replace("_", "-")
        for top in {each for part in PARTS[:4] for each in _imports(jars.ROOT / part)}
        for name in names.get(top, ())
    } - {"sluice"}
    project = tomllib.loads((jars.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = {_name(each) for each in project["dependencies"]}
    of_extras = {_name(each) for extra in set(EXTRAS.values()) for each in extras[extra]}

    assert imported - declared - of_extras == CARRIED
    assert (declared | of_extras) - imported == BEHIND
    assert declared & of_extras == set()


def test_f181_the_extra_that_a_message_names_installs_the_package() -> None:
    project = tomllib.loads((jars.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = packages_distributions()

    for package, extra in EXTRAS.items():
        installed = {each.lower().replace("_", "-") for each in names[package]}
        assert installed <= {_name(each) for each in extras[extra]}, package
    assert extras["all"] == [f"sluice[{','.join(sorted(set(EXTRAS.values())))}]"]
    assert "sluice[all]" in extras["dev"]


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=]", requirement)[0]


def _imports(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (each.name.split(".")[0] for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.split(".")[0]
