"""Builds the one Spark session, and requires that workers run what the driver runs.

No other module builds a session. Each setting states its reason.

The check runs at start, before any worker writes. Work is pickled in the driver and unpickled
in the workers. A different version of Sluice, Python or a library would fail later with a
misleading error, or would not fail at all. On a `local` master there is nothing to check.
Cannot detect: workers that take no task during the check.

Workers get two settings as environment variables: the modules that they preload
(`SLUICE_PLUG_INS`) and their niceness (`SLUICE_NICENESS`). `worker_daemon` reads them.

On a `local` master, Spark's temporary files are in folders of this process (`scratch`).
"""

import hashlib
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pipeline.errors import ConfigError, UnreachableError
from pipeline.parallel import spark_map
from pipeline.reports import SparkWork
from pipeline.settings import PipelineSettings, may_be_spark_secret
from pipeline.spark import jars as spark_jars
from pipeline.spark.scratch import open_scratch

PRELOADED = "SLUICE_PLUG_INS"  # modules that workers preload, separated by commas
NICENESS = "SLUICE_NICENESS"  # niceness of workers


_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # we find a value that does not fit; the job must not fail
    "spark.scheduler.mode": "FAIR",  # one large MERGE must not starve small ones
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 costs seconds a commit
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    "spark.databricks.delta.retentionDurationCheck.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Readers other than Spark misread INT96, the default, outside the years 1677 to 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The source of a MERGE is cached and deterministic, so Delta need not copy or reject it.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.merge.failSourceCachedAfterMaterialization": "false",
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "true",
    "spark.python.daemon.module": "pipeline.spark.worker_daemon",  # imports once for all workers
    "spark.sql.codegen.cache.maxEntries": "1000",  # a thousand tables, a few plans each
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
ARCHIVE = spark_jars.JARS / "spark.jsa"  # class archive that `pipeline.spark.classes` writes
ARCHIVE_SIZE = ARCHIVE.with_suffix(".size")
NO_CDS_LOG = "-Xlog:cds*=off"  # Java reports each class that does not fit into an archive
_GIVING_WAY = "5"  # a worker gets a third of the driver's share of a contended core
# Not on a cluster: its workers must reach the driver by the machine's or the operator's name.
_ALONE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def open_session(
    settings: PipelineSettings, jars: Sequence[Path], plug_ins: Iterable[str] = ()
) -> SparkSession:
    """Build the session with *jars* on its class path, or return the existing one.

    *plug_ins* are modules that its workers preload.

    Raises:
        UnreachableError: Spark did not start on the master.
    """
    name = f"sluice:{settings.lane}"
    builder = SparkSession.builder.appName(name).master(settings.master)
    options = {
        **_SETTINGS,
        **(_ALONE if is_one_process(settings.master) else {}),
        "spark.driver.memory": settings.driver_memory,
        "spark.jars": ",".join(str(jar) for jar in jars),
        f"spark.executorEnv.{PRELOADED}": ",".join(sorted(set(plug_ins))),
        # The driver does urgent work, so workers, which do the large work, yield to it.
        f"spark.executorEnv.{NICENESS}": _GIVING_WAY if settings.divided else "0",
        **settings.spark,
    }
    # Workers must run the service's Python, not the first python3 on the PATH. PySpark reads this
    # variable; it reads the setting of that name only if spark-submit started the program.
    os.environ["PYSPARK_PYTHON"] = options.get("spark.pyspark.python", sys.executable)
    for key, value in options.items():
        builder = builder.config(key, value)
    try:
        _start_java(name, settings.master, options)
        session = builder.getOrCreate()
    except Py4JError as error:
        reason = str(error).partition("\n: ")[2].partition("\n")[0] or str(error).partition("\n")[0]
        raise UnreachableError(
            f"Spark did not start on {settings.master} ({reason.partition(': ')[2] or reason}); is "
            "its master up, and can its workers start executors? their logs say more"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start_java(name: str, master: str, options: Mapping[str, str]) -> None:
    """Start Spark's process, and pass secrets to it only after it has started.

    PySpark writes every setting that it has at the start into the command line of the process,
    which all users of the machine can read.
    """
    if SparkContext._gateway is not None:
        return
    places: AbstractContextManager[None] = nullcontext()
    if is_one_process(master):
        java = options.get(_JAVA_OPTIONS, "")
        scratch = open_scratch(java, options.get("spark.local.dir", ""))
        java = share_classes(f"{java} {scratch.option}".strip())
        options, places = {**options, _JAVA_OPTIONS: java}, scratch.environment()
    every = {"spark.app.name": name, "spark.master": master, **options}
    plain = {key: value for key, value in every.items() if not may_be_spark_secret(key)}
    with places:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            SparkConf().setAll(list(plain.items()))
        )
    SparkContext(gateway=gateway, conf=SparkConf().setAll(list(every.items())))


def share_classes(java: str) -> str:
    """Return the options *java* with the class archive, if it exists and they name no other.

    The archive must have the size that is stored beside it: Java crashes with a truncated one.
    """
    if "-XX:SharedArchiveFile=" in java or "-XX:ArchiveClassesAtExit=" in java:
        return java
    with suppress(OSError):
        if f"{ARCHIVE.stat().st_size}" == ARCHIVE_SIZE.read_text(encoding="ascii"):
            return f'{java} "-XX:SharedArchiveFile={ARCHIVE}" {NO_CDS_LOG}'.strip()
    return java


def is_one_process(master: str) -> bool:
    """Whether *master* is `local`: all of Spark runs in one process on this machine."""
    return master.partition("[")[0] == "local"


@dataclass(eq=False)
class JobCounts:
    """Counts the jobs that land or merge; several threads may run jobs."""

    _found: dict[str, SparkWork] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def counted(
        self, session: SparkSession, work: str, what: str, *, tasks: int, rows: int
    ) -> Iterator[None]:
        """Describe the job inside the block by *work* and *what*; count it if it succeeds."""
        began = time.monotonic()
        with describe_jobs(session, f"{work} {what}, {rows} rows read"):
            yield
        done = SparkWork(1, tasks, rows, time.monotonic() - began)
        with self._lock:
            self._found[work] = self._found.get(work, SparkWork()) + done

    def take(self) -> dict[str, SparkWork]:
        """Return the counts by work since the last call, and reset them."""
        with self._lock:
            found, self._found = self._found, {}
        return found


@contextmanager
def describe_jobs(session: SparkSession, text: str) -> Iterator[None]:
    """Show *text* in the Spark UI for every job run inside the block, in this thread."""
    context = session.sparkContext
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setJobDescription("")


LIBRARIES = ("pyarrow", "numpy", "msgspec", "obstore", "pyroaring", "confluent-kafka")
WITHIN = timedelta(minutes=2)
NOBODY = (
    "no worker took a task within {within}; has the cluster a free core and the memory of "
    "spark.executor.memory, and do its machines reach the driver at {driver} (spark.driver.host)?"
)


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The versions that a Python process runs, by names that operators know, and its machine."""

    host: str
    versions: Mapping[str, str]


def require_same_environment(session: SparkSession, master: str) -> None:
    """Raise unless every worker that takes a task has the same versions as this process.

    It runs as many tasks as Spark's default parallelism, at least two.

    Raises:
        ConfigError: a worker has another version.
        UnreachableError: the tasks did not end in time, or could not run.
    """
    if is_one_process(master):
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="workers")
    pieces: list[object] = [None] * max(2, session.sparkContext.defaultParallelism)
    asked = pool.submit(spark_map, session, read_environment, pieces)
    pool.shutdown(wait=False)
    try:
        require_agreement(read_environment(None), asked.result(WITHIN.total_seconds()))
    except TimeoutError as error:
        driver = session.conf.get("spark.driver.host")
        said = NOBODY.format(within=WITHIN, driver=driver)
        session.sparkContext.cancelAllJobs()
        raise UnreachableError(f"{master}: {said}") from error


def require_agreement(here: WorkerEnvironment, there: Sequence[WorkerEnvironment]) -> None:
    """Raise unless all environments have the versions of *here*.

    Raises:
        ConfigError: a version differs; the message names the worker, the version and the fix.
    """
    for one in there:
        for name, own in here.versions.items():
            if (other := one.versions.get(name, "none")) != own:
                raise ConfigError(
                    f"worker {one.host} runs {name} {other}, the service {own}; give the workers "
                    "the service's environment (spark.pyspark.python, docs/guides/cluster.md)"
                )


def read_environment(_: Any) -> WorkerEnvironment:
    """Read the versions and the host name of this process."""
    found = {"Python": platform.python_version(), "Sluice": _digest()}
    return WorkerEnvironment(
        socket.gethostname(), found | {name: _version(name) for name in LIBRARIES}
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # it belongs to an extra
        return "none"


@cache
def _digest() -> str:
    """Digest of all files of the package; one version may be many working copies."""
    folder, digest = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
