"""The whole way on more than one machine: a lake behind S3's API, tasks on a standalone cluster.

Killed in between, and with a bucket that throttles or hangs: nothing is lost, nothing doubled, and
no READY is false.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.ports import free_ports
from demo.processes import wait_until
from demo.s3 import BUCKET, S3
from demo.spark_cluster import SparkCluster
from tests.proof.evidence import Findings, examine
from tests.proof.plan import Round, Victim
from tests.proof.stand import PATIENCE, Stand
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


def throttle(stand: Stand) -> None:
    _starve(stand, "slow_down")


def hang(stand: Stand) -> None:
    _starve(stand, "hang")


def _starve(stand: Stand, fault: str) -> None:
    """The bucket fails until the service has said that it cannot land."""
    assert stand.s3 is not None
    log = stand.service.daemon.log
    before = log.stat().st_size
    with stand.s3.failing(fault):
        stand.note(f"bucket: {fault}")
        wait_until(lambda: _cannot_land(log, before), PATIENCE, "word of the bucket")
    stand.note("bucket as before")
    stand.recover()


def _cannot_land(log: Path, since: int) -> bool:
    lines = log.read_bytes()[since:].decode(errors="replace").splitlines()
    return any("job failed" in one and "job=land" in one and BUCKET in one for one in lines)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param([kill_a_worker], marks=pytest.mark.stack, id="short"),
        pytest.param(
            [throttle, kill_the_service, hang, kill_a_worker, kill_spark],
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
