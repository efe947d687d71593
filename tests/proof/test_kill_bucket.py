"""The whole way with its lake behind S3's API, killed in between: nothing lost, nothing doubled."""

import shutil
from collections.abc import Iterator

import pytest

from demo.ports import free_ports
from demo.s3 import S3
from tests.proof.evidence import Findings, examine
from tests.proof.plan import Round, Victim
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder

ROUNDS = (Round(Victim.SERVICE, 4, 0, rush=False), Round(Victim.SPARK, 4, 0, rush=False))


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    home = new_folder("bucket")
    s3 = S3(home / "s3", free_ports(1)[0])
    for name, value in s3.environment.items():  # for the oracle, which reads it from here
        monkeypatch.setenv(name, value)
    s3.start()
    made = Stand(home, seed=1, s3=s3)
    try:
        yield made
    finally:
        made.close()
        s3.stop()


@pytest.mark.stack
def test_a_lake_in_a_bucket_outlives_kills_of_the_service_and_of_spark(stand: Stand) -> None:
    findings = Findings()

    stand.open()
    for round_ in ROUNDS:
        stand.play(round_)
    stand.finish()
    examine(stand, findings)

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    shutil.rmtree(stand.home)
