"""pipeline/spark/session.py: workers that run something else are refused by name."""

from dataclasses import replace

import pytest

from pipeline.errors import ConfigError
from pipeline.spark.session import read_environment, require_agreement

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
