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
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable, QueryBuilder

from demo.daemon import Daemon
from demo.ports import free_ports
from demo.servers import Servers
from demo.web import LOCAL
from pipeline.errors import UnreachableError
from pipeline.installed import EXTRAS
from pipeline.spark import jars

PARTS = ("pipeline", "checks", "alerts", "monitor", "demo", "bench", "tests", "docs", "grafana")
NAME = "depot"
LARGEST = 950  # MiB; 937 were measured, of which pyspark is 453
CARRIED = {
    "anyio",
    "h11",
    "pydantic-core",
    "py4j",
    "starlette",
}  # of fastapi, uvicorn, pydantic, pyspark
BEHIND = {"crc32c"}  # kafka-python imports it where it is installed
FILES = ("pyproject.toml", "README.md", "LICENSE", "jars.lock", "MANIFEST.in", "clean_build.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("wheel")  # setuptools leaves files where it builds
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(jars.ROOT / part, copy / part, ignore=ignored)
    for file in FILES:
        shutil.copy(jars.ROOT / file, copy)
    stale = copy / "build/lib/monitor/commands/gone.py"  # of an earlier build
    stale.parent.mkdir(parents=True)
    stale.touch()
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
    assert "monitor/commands/gone.py" not in names
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
        "from pipeline import installed; from pipeline.spark import jars;"
        "from monitor.web.status_page import runbook_link;"
        "print(installed.is_checkout(), len(jars.locked_jars()),"
        " runbook_link('lost.md'), jars.JARS)"
    )

    told = _run(str(python), "-c", code, cwd=tmp_path).split()
    _run(str(home / "bin" / "sluice"), "init", cwd=tmp_path)

    cache = str(tmp_path / "cache" / "sluice" / "jars")
    assert told == ["False", str(len(jars.locked_jars())), "runbooks/lost.md", cache]
    assert (tmp_path / "sluice.yaml").is_file()


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what it declares, without an extra.

    Versions are those of the lock: a release of another must not fail this test.
    """
    home = tmp_path_factory.mktemp("installed") / "env"
    lock = jars.ROOT / "requirements.lock"
    into = ("--python", str(home / "bin" / "python"), "--constraint", str(lock))
    for command in (
        ("venv", "--python", sys.executable, str(home)),
        ("pip", "install", *into, str(wheel)),
    ):
        done = subprocess.run(
            [_uv(), *command],
            env={**os.environ, "UV_SYSTEM_CERTS": "true"},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stderr
    return home


@pytest.mark.stack
@pytest.mark.spark
def test_f180_an_installed_wheel_gets_a_table_ready_outside_of_the_repository(
    environment: Path, servers: Servers, tmp_path: Path
) -> None:
    site = Site(environment, tmp_path / "site")
    site.home.mkdir()
    servers.mysql.execute(
        f"CREATE DATABASE {NAME}",
        *(f"CREATE TABLE {NAME}.orders_{n} (id INT PRIMARY KEY, item TEXT)" for n in (1, 2)),
        *(f"INSERT INTO {NAME}.orders_{n} VALUES ({n}, 'tea')" for n in (1, 2)),
    )
    try:
        site.sluice("init")
        site.configure(servers)

        assert "run `sluice jars`" in site.sluice("check-config")
        assert "run `sluice jars`" in site.sluice("run", status=2)
        site.sluice("jars", "--from", _maven(tmp_path / "maven").as_uri())
        assert "warning" not in site.sluice("check-config")
        assert "no collector is registered" in site.sluice("doctor", status=1)
        site.sluice("connector", NAME, "--apply")
        assert "nothing is refused" in site.sluice("doctor")

        site.start()
        answer = site.sluice("gate", f"{NAME}.orders", "--wait", "6m")

        assert answer.startswith("READY")
        assert site.rows() == 2
    finally:
        site.service.stop()
        with suppress(UnreachableError):
            servers.connect.deregister(NAME)
        servers.mysql.execute(f"DROP DATABASE {NAME}")


@pytest.mark.stack
def test_f181_the_base_installation_is_as_small_as_its_parts_allow(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (packages,) = environment.glob("lib/python*/site-packages")
    sizes = {one.name: _mebibytes(one) for one in packages.iterdir()}
    largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:5]
    whole = _mebibytes(environment)

    with capsys.disabled():
        parts = ", ".join(f"{name} {sizes[name]:.0f}" for name in largest)
        sys.stdout.write(f"\nbase installation: {whole:.0f} MiB ({parts})\n")

    assert whole < LARGEST, "see docs/dependencies.md, Size"


def _mebibytes(place: Path) -> float:
    """Of the files below *place*, without those that are compiled at their first import."""
    files = [place] if place.is_file() else place.rglob("*")
    plain = (one for one in files if one.is_file() and not one.is_symlink())
    return sum(one.stat().st_size for one in plain if one.suffix != ".pyc") / 2**20


@dataclass(eq=False)
class Site:
    """A folder in which the installed program is used, as one of an operator."""

    environment: Path
    home: Path

    def __post_init__(self) -> None:
        (self.port,) = free_ports(1)
        own = {"DEPOT_PASSWORD": "sluice", "SLUICE_JARS": str(self.home / "jars")}
        self.service = Daemon("sluice", self.home / "service.log", environment=own)

    def configure(self, servers: Servers) -> None:
        """Edit what init has written."""
        path = self.home / "sluice.yaml"
        debezium = self.home / "debezium.properties"
        debezium.write_text("password=debezium\n", encoding="utf-8")
        written = path.read_text(encoding="utf-8")
        for before, after in (
            ("127.0.0.1:9092", servers.kafka.bootstrap),
            ("name: shop", f"name: {NAME}"),
            ("port: 3306", f"port: {servers.mysql.port}"),
            ("SHOP_PASSWORD", "DEPOT_PASSWORD"),
            ("prefix: shop", f"prefix: {NAME}"),
            ("http://127.0.0.1:8083", servers.connect.url),
            (
                "connector: shop\n",
                f"connector: {NAME}\n      options:"
                f' {{settings: {{database.password: "${{file:{debezium}:password}}"}}}}\n',
            ),
        ):
            assert before in written
            written = written.replace(before, after, 1)
        written += f"""
tables: [{{shards: '{NAME}\\.orders_\\d', table: {NAME}.orders}}]
pipeline: {{driver_memory: 1g}}
http: {{port: {self.port}}}
"""
        path.write_text(written, encoding="utf-8")

    def sluice(self, *words: str, status: int = 0) -> str:
        """What the program prints; *status* is its exit status."""
        done = subprocess.run(
            [*self._command(*words)],
            env={**os.environ, **self.service.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self) -> None:
        """Run the service until the test stops it."""
        self.service.start(self._command("run"), self._answers, timedelta(minutes=3))

    def rows(self) -> int:
        """Rows in the mirror, as an engine reads it."""
        mirror = DeltaTable(str(self.home / "lake" / "mirrors" / NAME / "orders"))
        asked = QueryBuilder().register("t", mirror).execute("SELECT * FROM t")
        return int(asked.read_all().num_rows)

    def _command(self, *words: str) -> tuple[str, ...]:
        """As typed in the folder: what Python finds there it would import, too."""
        outside = ("/usr/bin/env", "--unset=PYTHONPATH", f"--chdir={self.home}")
        return (*outside, str(self.environment / "bin" / "sluice"), *words)

    def _answers(self) -> bool:
        try:
            return LOCAL.get(f"http://127.0.0.1:{self.port}/livez").is_success
        except httpx.HTTPError:
            return False


def _maven(root: Path) -> Path:
    """Spark's jars, which `make setup` has fetched, laid out as a Maven repository."""
    for jar in jars.locked_jars():
        if jar.folder == jars.SPARK:
            group, artifact, version = jar.coordinate.split(":")[:3]
            folder = root.joinpath(*group.split("."), artifact, version)
            folder.mkdir(parents=True)
            shutil.copy(jars.JARS / jar.folder / jar.file, folder)
    return root


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
