"""The whole way on more than one machine: a lake behind S3's API, tasks on a standalone cluster.

Killed in between: nothing is lost, nothing doubled, and no READY is false.
"""

import shutil
from collections.abc import Callable, Iterator

import pytest

from demo.ports import free_ports
from demo.s3 import S3
from demo.spark_cluster import SparkCluster
from tests.proof.evidence import Findings, examine
from tests.proof.plan import Round, Victim
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder

DOWN = 3.0  # seconds without a worker


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    home = new_folder("elsewhere")
    s3, cluster = S3(home / "s3", free_ports(1)[0]), SparkCluster(home / "spark")
    for name, value in s3.environment.items():  # for workers and the oracle
        monkeypatch.setenv(name, value)
    made = Stand(home, seed=1, s3=s3, cluster=cluster)
    try:
        s3.start()
        cluster.start()
        yield made
    finally:
        made.close()
        cluster.stop()
        s3.stop()


def kill_a_worker(stand: Stand) -> None:
    """A machine of the cluster is gone for a while."""
    assert stand.cluster is not None
    stand.cluster.workers[0].kill()
    stand.note("worker killed")
    stand.load(DOWN)
    stand.cluster.start_worker(0)
    stand.recover()


def kill_spark(stand: Stand) -> None:
    stand.play(Round(Victim.SPARK, 3, 0, rush=False))


def kill_the_service(stand: Stand) -> None:
    stand.play(Round(Victim.SERVICE, 3, 0, rush=False))


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param([kill_a_worker], marks=pytest.mark.stack, id="short"),
        pytest.param(
            [kill_the_service, kill_a_worker, kill_spark],
            marks=[pytest.mark.stack, pytest.mark.long],
            id="all",
        ),
    ],
)
def test_a_lake_in_a_bucket_filled_by_a_cluster_outlives_kills(
    stand: Stand, harm: list[Callable[[Stand], None]]
) -> None:
    findings = Findings()

    stand.open()
    stand.load(3)
    for kill in harm:
        kill(stand)
    stand.finish()
    examine(stand, findings)

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}\n" + "\n".join(stand.log)
    shutil.rmtree(stand.home)
