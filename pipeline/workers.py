"""Do a cluster's workers run what the service runs?  Asked at the start, before they write.

Work is pickled here and read there: with another Sluice, or another library below it, it fails
later and in stranger words, or not at all.
"""

import hashlib
import platform
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipeline.errors import ConfigError, UnreachableError
from pipeline.spark import alone
from pipeline.spread import spread

LIBRARIES = ("pyarrow", "numpy", "msgspec", "obstore", "pyroaring", "confluent-kafka")
WITHIN = timedelta(minutes=2)
NOBODY = (
    "no worker took a task within {within}; has the cluster a free core and the memory of "
    "spark.executor.memory, and do its machines reach the driver at {driver} (spark.driver.host)?"
)


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """What a Python process runs, by the names of an operator, and on which machine."""

    host: str
    versions: Mapping[str, str]


def require_alike(session: SparkSession, master: str) -> None:
    """Return only if every worker that takes a task runs what this process runs.

    As many are asked as the cluster has cores for us.

    Raises:
        ConfigError: one runs something else.
        UnreachableError: nobody took a task, or none could be run there.
    """
    if alone(master):
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="workers")
    pieces: list[object] = [None] * max(2, session.sparkContext.defaultParallelism)
    asked = pool.submit(spread, session, environment, pieces)
    pool.shutdown(wait=False)
    try:
        agree(environment(None), asked.result(WITHIN.total_seconds()))
    except TimeoutError as error:
        driver = session.conf.get("spark.driver.host")
        said = NOBODY.format(within=WITHIN, driver=driver)
        session.sparkContext.cancelAllJobs()
        raise UnreachableError(f"{master}: {said}") from error


def agree(here: WorkerEnvironment, there: Sequence[WorkerEnvironment]) -> None:
    """Return only if all run the same.

    Raises:
        ConfigError: what differs where, and what now.
    """
    for one in there:
        for name, own in here.versions.items():
            if (other := one.versions.get(name, "none")) != own:
                raise ConfigError(
                    f"worker {one.host} runs {name} {other}, the service {own}; give the workers "
                    "the service's environment (spark.pyspark.python, docs/guides/cluster.md)"
                )


def environment(_: Any) -> WorkerEnvironment:
    """What this process runs."""
    found = {"Python": platform.python_version(), "Sluice": _digest()}
    return WorkerEnvironment(
        socket.gethostname(), found | {name: _version(name) for name in LIBRARIES}
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # of an extra
        return "none"


@cache
def _digest() -> str:
    """Of all its files: a version says little of a working copy."""
    folder, told = Path(__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        told.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return told.hexdigest()[:12]
