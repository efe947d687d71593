"""Tables are read again under load, Spark and service are killed meanwhile: nothing is wrong."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner

from demo.processes import wait_until
from demo.shop.schema import MIRRORS
from demo.story.service import read_config
from monitor.commands.bootstrap import COMMAND
from tests.proof.evidence import Findings, examine
from tests.proof.judging import Base
from tests.proof.plan import Round, Victim
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder
from tests.proof.test_trouble import examine as examine_trouble
from tests.proof.trouble import LOST, Trouble

SOON = timedelta(minutes=10)


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


@pytest.mark.stack
@pytest.mark.long
def test_a_table_that_lost_changes_is_read_again_by_itself_and_is_ready_after_kills() -> None:
    """Nobody asks for it but the config; all other tables are READY meanwhile."""
    home, findings = new_folder("rebootstrap"), Findings()
    stand = Stand(home, 11, config=allowing(home))
    trouble = Trouble(stand)
    try:
        stand.open()
        trouble.lose_topic()
        wait_until(lambda: bool(read_again(stand)), SOON, "a re-reading that nobody asked for")
        stand.play(Round(Victim.SPARK, 0.0, 0.0, rush=True))
        stand.play(Round(Victim.SERVICE, 0.0, 0.0, rush=True))
        stand.recover()
        after = trouble.deleted + timedelta(microseconds=1)
        stand.bases.append(Base(after, datetime.now(UTC), frozenset({LOST})))
        told = read_again(stand)
        stand.finish()
        examine_trouble(trouble, findings, [1])
    finally:
        stand.close()

    assert [(one["table"], one["who"], one["done"]) for one in told] == [(LOST, "sluice", True)]
    assert "gap" in told[0]["reason"]
    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    shutil.rmtree(stand.home)


def allowing(home: Path) -> Path:
    """The demo's config, which lets the table that loses changes be read again at once."""
    told = read_config()
    told["rebootstrap"] = [{"tables": LOST, "how": "auto", "after": "PT1S"}]
    path = home / "allowing.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def read_again(stand: Stand) -> list[dict[str, Any]]:
    """What the service tells; nothing while it does not answer."""
    try:
        found: list[dict[str, Any]] = stand.service.http.get("/v1/bootstraps").json()
    except httpx.HTTPError:
        return []
    return found


def bootstrap(url: str) -> list[dict[str, Any]]:
    words = [*MIRRORS, "--reason", "to see that it does no harm", "--server", url, "--json"]
    result = CliRunner().invoke(COMMAND, words, catch_exceptions=False)
    found: list[dict[str, Any]] = json.loads(result.output.splitlines()[-1])
    return found


def began(stand: Stand) -> bool:
    return any(one["rows"] > 0 for one in read_again(stand))
