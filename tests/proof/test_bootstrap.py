"""Tables are read again under load, Spark and service are killed meanwhile: nothing is wrong.

Covers monitor/commands/bootstrap.py, pipeline/reread/rounds.py
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from demo.processes import wait_until
from demo.shop.schema import MIRRORS
from monitor.commands.bootstrap import COMMAND
from tests.proof.evidence import Findings, examine
from tests.proof.judging import Base
from tests.proof.plan import Round, Victim
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder

SOON = timedelta(minutes=4)


@pytest.mark.stack
def test_a_new_base_under_load_and_kills_leaves_nothing_wrong_and_no_ready_false() -> None:
    stand, findings = Stand(new_folder("bootstrap"), 7), Findings()
    begun = datetime.now(UTC)
    try:
        stand.open()
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(bootstrap, stand.service.url)
            wait_until(lambda: began(stand), SOON, "rows read again")
            stand.play(Round(Victim.SPARK, 0.0, 0.0, rush=True))
            told = reading.result(SOON.total_seconds())
        stand.bases.append(Base(begun, datetime.now(UTC)))
        stand.recover()
        stand.finish()
        examine(stand, findings)
    finally:
        stand.close()

    assert sorted(one["table"] for one in told) == sorted(MIRRORS)
    assert all(one["done"] and one["rows"] > 0 for one in told), told
    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    shutil.rmtree(stand.home)


def bootstrap(url: str) -> list[dict[str, Any]]:
    words = [*MIRRORS, "--reason", "to see that it does no harm", "--server", url, "--json"]
    result = CliRunner().invoke(COMMAND, words, catch_exceptions=False)
    found: list[dict[str, Any]] = json.loads(result.output.splitlines()[-1])
    return found


def began(stand: Stand) -> bool:
    answer = stand.service.http.get("/v1/bootstraps").json()
    return any(one["rows"] > 0 for one in answer)
