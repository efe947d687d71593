"""Rows that others delete, and a mirror that is rebuilt for it, make no READY false.

On real servers, under load; `test_model.py` does the same, and more, many times in memory.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest

from demo import machine
from monitor.store.store import ServiceStore
from tests.proof.evidence import ALL, Findings, unequal
from tests.proof.judging import Tribunal
from tests.proof.stand import Stand
from tests.proof.test_kill import FOLDER
from tests.proof.trouble import Trouble

SEED = 2
DECISIONS, EACH = 150, 40


@pytest.mark.stack
def test_trouble_that_others_make_makes_no_ready_false(capsys: pytest.CaptureFixture[str]) -> None:
    machine.require(FOLDER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    stand = Stand(Path(tempfile.mkdtemp(dir=FOLDER, prefix="trouble-")), SEED)
    trouble, findings = Trouble(stand), Findings()
    try:
        stand.open()
        trouble.rob()
        trouble.rebuild()
        stand.finish()
        examine(trouble, findings)
    finally:
        stand.close()
        stand.asker.save(stand.home / "decisions.jsonl")
        told = summary(stand)
        (FOLDER / "trouble.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        with capsys.disabled():
            click.echo(f"\n{json.dumps(told, indent=2)}\nwrong: {str(findings) or 'nothing'}")

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    assert told["decisions"] >= DECISIONS
    assert min(told["ready"], told["not ready"]) >= EACH
    shutil.rmtree(stand.home)


def examine(trouble: Trouble, findings: Findings) -> None:
    """Every READY by the ledger, and the mirrors by the oracle."""
    stand = trouble.stand
    findings.add("wrong in mirrors", unequal(stand))
    store = ServiceStore.open(stand.home / "sluice.db")
    try:
        certificates = {one.id: one for one in store.certificates.list(limit=ALL)}
    finally:
        store.close()
    tribunal = Tribunal(
        str(stand.service.lake),
        stand.ledger.entries(),
        certificates,
        stand.based,
        moved=trouble.moved,
    )
    findings.add("false READY", tribunal.false(stand.asker.decisions))
    findings.add("judges asleep", tribunal.asleep(stand.asker.decisions))


def summary(stand: Stand) -> dict[str, Any]:
    """What was done, and how many answers it got; a question that was READY counts once."""
    decisions = stand.asker.decisions
    ready = {each.question for each in decisions if each.ready}
    waiting = sum(not each.ready for each in decisions)
    return {
        "decisions": len(ready) + waiting,
        "ready": len(ready),
        "not ready": waiting,
        "log": stand.log,
    }
