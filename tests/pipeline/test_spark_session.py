"""Spark jobs are counted by work, and workers that run something else are refused by name."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import ConfigError, UnreachableError
from pipeline.reports import SparkWork
from pipeline.spark import session
from pipeline.spark.session import JobCounts, read_environment, require_agreement


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


HERE = read_environment(None)


def test_workers_that_run_the_same_elsewhere_are_fine() -> None:
    require_agreement(HERE, [replace(HERE, host="w1"), replace(HERE, host="w2")])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("Python", "worker w1 runs Python 2.7, the service 3.", id="another Python"),
        pytest.param("Sluice", "worker w1 runs Sluice 2.7, the service ", id="another Sluice"),
        pytest.param("obstore", "worker w1 runs obstore 2.7", id="another library"),
    ],
)
def test_one_that_runs_another_is_refused_by_name(name: str, said: str) -> None:
    other = replace(HERE, host="w1", versions=dict(HERE.versions) | {name: "2.7"})

    with pytest.raises(ConfigError) as refused:
        require_agreement(HERE, [HERE, other])

    assert said in str(refused.value)
    assert "spark.pyspark.python" in str(refused.value)


def test_a_library_that_a_worker_does_not_tell_of_is_another() -> None:
    older = replace(HERE, host="w1", versions={"Python": HERE.versions["Python"]})

    with pytest.raises(ConfigError, match="worker w1 runs Sluice none"):
        require_agreement(HERE, [older])


def test_an_archive_of_classes_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ARCHIVE", tmp_path / "an archive.jsa")
    monkeypatch.setattr(session, "ARCHIVE_SIZE", tmp_path / "an archive.size")
    before = session.share_classes("-Xss4m")
    (tmp_path / "an archive.jsa").write_bytes(b"whole")
    (tmp_path / "an archive.size").write_text("4")
    cut_off = session.share_classes("-Xss4m")
    (tmp_path / "an archive.size").write_text("5")
    own = "-XX:SharedArchiveFile=mine.jsa"

    assert before == cut_off == "-Xss4m"
    assert session.share_classes("-Xss4m").split(" ", 1) == [
        "-Xss4m",
        f'"-XX:SharedArchiveFile={tmp_path}/an archive.jsa" -Xlog:cds*=off',
    ]
    assert session.share_classes(own) == own
