"""Spark's jobs as its REST API tells them."""

from typing import Any

from demo.story.spark_jobs import SparkJob, largest, read_jobs


def spark_job(number: int, what: str | None, status: str = "SUCCEEDED") -> dict[str, Any]:
    """A job as Spark 4.0.4 tells it; what nobody reads is left out."""
    return {
        "jobId": number,
        "name": "toArrow at spread.py:49",
        "submissionTime": "2026-11-26T18:00:00.250GMT",
        "completionTime": "2026-11-26T18:00:03.500GMT",
        "status": status,
        "numTasks": 4,
        **({} if what is None else {"description": what}),
    }


def test_jobs_that_land_or_merge_have_rows_tasks_and_seconds_in_their_order() -> None:
    jobs = read_jobs(
        [
            spark_job(3, "merge slice of shop.visits, 300000 rows read"),
            spark_job(1, "land batch 0 of lane main, 301734 rows"),
            spark_job(0, None),
            spark_job(2, "look up shop.visits"),
            spark_job(4, "land batch 9 of lane main, 21000 rows", "RUNNING"),
        ]
    )

    assert jobs == (
        SparkJob("land batch 0 of lane main, 301734 rows", 4, 301_734, 3.25),
        SparkJob("merge slice of shop.visits, 300000 rows read", 4, 300_000, 3.25),
    )
    assert str(jobs[0]) == "land batch 0 of lane main, 301734 rows: 4 tasks, 3.2 s"


def test_the_largest_job_of_a_kind_is_told_or_that_there_is_none() -> None:
    small, large = SparkJob("land batch 1, 9 rows", 1, 9, 1), SparkJob("land batch 2", 1, 99, 1)

    assert largest([small, large], "land") is large
    assert largest([small, large], "merge") is None
