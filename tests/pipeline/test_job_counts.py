"""Spark jobs are described by what they do, and counted once they have ended well."""

from dataclasses import dataclass, field
from typing import cast

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import UnreachableError
from pipeline.reports import SparkWork
from pipeline.spark.session import JobCounts


@dataclass(eq=False)
class Context:
    """A session, and its context: the descriptions that were set."""

    described: list[str] = field(default_factory=list)

    @property
    def sparkContext(self) -> "Context":  # noqa: N802  - PySpark's name
        return self

    def setJobDescription(self, text: str) -> None:  # noqa: N802  - PySpark's name
        self.described.append(text)


def test_jobs_are_added_up_by_work_until_they_are_taken() -> None:
    context, counts = Context(), JobCounts()
    session = cast(SparkSession, context)
    for rows in (30_000, 50_000):
        with counts.counted(session, "land", "batch 4 of lane main", tasks=4, rows=rows):
            pass

    found = counts.take()["land"]

    assert (found.jobs, found.tasks, found.rows) == (2, 8, 80_000)
    assert found.seconds > 0
    assert counts.take() == {}
    assert context.described[:2] == ["land batch 4 of lane main, 30000 rows read", ""]


def test_a_job_that_fails_is_not_counted() -> None:
    counts, session = JobCounts(), cast(SparkSession, Context())

    with (
        pytest.raises(UnreachableError),
        counts.counted(session, "merge", "slice of db.t", tasks=1, rows=9),
    ):
        raise UnreachableError("a Spark job failed")

    assert counts.take() == {}


def test_what_is_added_up_is_of_both() -> None:
    assert SparkWork(1, 2, 3, 4.0) + SparkWork(10, 20, 30, 40.0) == SparkWork(11, 22, 33, 44.0)
