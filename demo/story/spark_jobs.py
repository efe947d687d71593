"""Reads the Spark jobs of one run from the REST API of the Spark UI.

Only jobs with a description count: the pipeline describes each job that lands or merges, with its
rows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from pipeline.errors import UnreachableError
from pipeline.reports import SPARK_WORK

_ROWS = re.compile(r"(\d+) rows")
_TIME = "%Y-%m-%dT%H:%M:%S.%f%Z"
WORK = SPARK_WORK
"""First words of the descriptions that the pipeline gives."""


@dataclass(frozen=True, slots=True)
class SparkJob:
    """One job that has ended: its work, tasks, rows and duration."""

    what: str
    tasks: int
    rows: int
    seconds: float

    @property
    def work(self) -> str:
        """Return one of ``WORK``."""
        return self.what.partition(" ")[0]

    def __str__(self) -> str:
        """Return one line for people; the description contains the rows."""
        return f"{self.what}: {self.tasks} tasks, {self.seconds:.1f} s"


def ask_spark(url: str) -> tuple[SparkJob, ...]:
    """Return the jobs of the application whose UI is at *url*, in the order of their start.

    Raises:
        UnreachableError: no server answers.
    """
    try:
        with httpx.Client(base_url=f"{url}/api/v1", timeout=60, trust_env=False) as http:
            (application, *_) = http.get("/applications").raise_for_status().json()
            answer = http.get(f"/applications/{application['id']}/jobs").raise_for_status()
            return read_jobs(answer.json())
    except (httpx.HTTPError, ValueError) as error:
        raise UnreachableError(f"Spark's pages do not answer at {url}: {error!r}") from error


def read_jobs(told: Iterable[Mapping[str, Any]]) -> tuple[SparkJob, ...]:
    """Read ``/jobs``: the successful jobs that land or merge."""
    ended = (job for job in told if job["status"] == "SUCCEEDED")
    found = [(job["jobId"], _job(job)) for job in ended if job.get("description")]
    return tuple(job for _, job in sorted(found, key=_number) if job.work in WORK)


def largest(jobs: Sequence[SparkJob], work: str) -> SparkJob | None:
    """Return the job with the most rows of this *work*; None without any."""
    return max((job for job in jobs if job.work == work), key=lambda job: job.rows, default=None)


def _number(told: tuple[int, SparkJob]) -> int:
    return told[0]


def _job(told: Mapping[str, Any]) -> SparkJob:
    what = told["description"]
    rows = _ROWS.search(what)
    began, ended = (_instant(told[name]) for name in ("submissionTime", "completionTime"))
    seconds = (ended - began).total_seconds()
    return SparkJob(what, told["numTasks"], int(rows[1]) if rows else 0, seconds)


def _instant(text: str) -> datetime:
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
