"""Real servers for tests marked `stack`, one small Spark session for those marked `spark`.

Servers live under build/ and end with the tests.
"""

import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from sqlalchemy import Pool, event

from demo import machine
from demo.mysql import MySQL
from demo.ports import free_ports
from demo.postgres import Postgres
from demo.redis import Redis
from demo.s3 import S3
from demo.servers import Servers
from pipeline.settings import PipelineSettings
from pipeline.spark import jars
from pipeline.spark.session import open_session
from tests.pipeline.hanging import Hanging
from tests.slow import mark_slow

FOLDER = jars.ROOT / "build" / "tests"
FILED = ("spark", "stack", "thorough")  # marks by whose names the Makefile finds files

# A busy machine is slow, not wrong.  The first draw of a process pays for all later ones (letters,
# and the constants of every module): seen to take 32 s in whichever law came first, others 0.03 s.
SLOW = (HealthCheck.too_slow,)
settings.register_profile("patient", deadline=None, suppress_health_check=SLOW)
settings.register_profile("brief", settings.get_profile("patient"), max_examples=20)  # make check
settings.load_profile("patient")

# Tests by thousands, their modules and what these import are no garbage: seldom look among them.
gc.set_threshold(50_000, 20, 20)

# What the program itself does too.  The default draws every local variable of every frame, in
# colours: 5 s for one error that a test provokes.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Where a test sets up the log, as `sluice run` does, those after it log as before."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structlog, "configure", partial(_uncached, structlog.configure))
        yield
    if structlog.is_configured():
        structlog.reset_defaults()
        root.handlers[:] = before
        root.setLevel(level)


def _uncached(configure: Callable[..., None], **how: Any) -> None:
    """A logger that has kept what it was set up with would keep it for ever."""
    configure(**{**how, "cache_logger_on_first_use": False})


@pytest.fixture(scope="session", autouse=True)
def no_power_failure() -> Iterator[None]:
    """A disk need not keep anything when the power fails, which would end the tests as well.

    What is synced, and in which order, is asked of a disk that writes it down; what a store's
    connections are told, of a connection that is new.
    """

    def unsynced(connection: Any, record: Any, _proxy: object) -> None:
        if "unsynced" not in record.info:  # once a connection: it is lent for each transaction
            connection.execute("PRAGMA synchronous=OFF").close()
            record.info["unsynced"] = True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: None)
        event.listen(Pool, "checkout", unsynced)
        yield
        event.remove(Pool, "checkout", unsynced)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before tests are chosen by their marks."""
    marked = {(item.path, one.name) for item in items for one in item.iter_markers()}
    for file, mark in sorted(one for one in marked if one[1] in FILED):
        if f"mark.{mark}" not in file.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{file}: write mark.{mark} in it, by which make test finds it")
    mark_slow(items)


def pytest_sessionfinish() -> None:
    """What thousands of tests left is looked through once in the end, and not five times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """A folder for servers of this run."""
    machine.require(FOLDER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=FOLDER, prefix="servers-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def servers(server_folder: Path) -> Iterator[Servers]:
    """MySQL, Kafka and Connect shared by all tests: make names of your own, leave them running."""
    with Servers.create(server_folder / "shared") as running:
        yield running


@pytest.fixture
def start_servers(server_folder: Path) -> Iterator[Callable[[], Servers]]:
    """A way to get started servers that nobody else uses; they end with the test."""
    with ExitStack() as started:

        def start() -> Servers:
            home = Path(tempfile.mkdtemp(dir=server_folder, prefix="own-"))
            return started.enter_context(Servers.create(home))

        yield start


@pytest.fixture(scope="session")
def _s3(server_folder: Path) -> Iterator[S3]:
    started = S3(server_folder / "s3", free_ports(1)[0])
    started.start()
    yield started
    started.stop()


@pytest.fixture
def s3(_s3: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """A bucket shared by all tests, which this process and its children can reach."""
    for name, value in _s3.environment.items():
        monkeypatch.setenv(name, value)
    return _s3


@pytest.fixture
def start_mysql(server_folder: Path) -> Iterator[Callable[[int], MySQL]]:
    """A way to get a started MySQL with a server id, beside the shared one (whose id is 1)."""
    with ExitStack() as started:

        def start(server_id: int) -> MySQL:
            home = Path(tempfile.mkdtemp(dir=server_folder, prefix="mysql-"))
            (port,) = free_ports(1)
            mysql = MySQL(home, port, server_id)
            started.callback(mysql.kill)  # a replica takes ten seconds to stop
            mysql.start()
            return mysql

        yield start


@pytest.fixture(scope="session", params=["15", "18"])
def postgres(server_folder: Path, request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """Postgres of the oldest and the newest version, each shared: make databases of your own."""
    made = _postgres(server_folder, request.param)
    made.start()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def redis(server_folder: Path) -> Iterator[Redis]:
    """Redis shared by all tests: make prefixes of your own."""
    made = Redis(server_folder / "redis", free_ports(1)[0])
    made.start()
    yield made
    made.stop()


@pytest.fixture
def start_postgres(server_folder: Path) -> Iterator[Callable[..., Postgres]]:
    """A way to get a started Postgres of a version, with options, that nobody else uses."""
    with ExitStack() as started:

        def start(version: str = "18", **options: str) -> Postgres:
            made = _postgres(server_folder, version, options)
            started.callback(made.remove)
            made.start()
            return made

        yield start


def _postgres(folder: Path, version: str, options: Mapping[str, str] | None = None) -> Postgres:
    home = Path(tempfile.mkdtemp(dir=folder, prefix="postgres-"))
    (port,) = free_ports(1)
    return Postgres(home, port, version, options or {})


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session shared by all tests: leave its settings as they are."""
    lake: Path = tmp_path_factory.mktemp("lake")
    settings = PipelineSettings(
        lake=str(lake),
        kafka="",
        sources=(),
        driver_memory="1000m",
        spark={
            "spark.sql.warehouse.dir": str(lake / "warehouse"),
            # for minutes on few cores the better compiler costs more than it gains
            # (its code cache is small by default, and Spark stands still once that is full)
            "spark.driver.extraJavaOptions": (
                "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
            ),
        },
    )
    session = open_session(settings, jars.spark_jars(), ["examples.json_lines"])
    yield session
    session.stop()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """One who never answers, until the test is over."""
    made = Hanging()
    yield made
    made.release()
