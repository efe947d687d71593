"""No READY is false for what others do: to a mirror, to a topic, to the source.

Rows are deleted there and the mirror is rebuilt; a topic is made anew with rows that were not
landed, one deleted with a statement; a replica takes over.  On real servers, under load;
`test_model.py` does the same, and more, many times in memory.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from demo import machine
from demo.shop.schema import MIRRORS
from monitor.store.store import ServiceStore
from tests.proof.evidence import ALL, Findings, unequal
from tests.proof.judging import Tribunal
from tests.proof.stand import Stand
from tests.proof.tally import SERVERS, judged
from tests.proof.test_kill import FOLDER
from tests.proof.trouble import LOST, Trouble

SEED = 2
DECISIONS, EACH = 300, 60
HEALED = 2 * len(MIRRORS)  # each table, in both stages
EPOCHS = "SELECT DISTINCT \"order\"['epoch'] AS epoch FROM log WHERE op = 'c' ORDER BY epoch"


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
        trouble.lose_topic()
        trouble.lose_statement()
        trouble.rebase()
        trouble.fail_over()
        stand.finish()
        examine(trouble, findings)
    finally:
        stand.close()
        stand.asker.save(stand.home / "decisions.jsonl")
        told = summary(trouble)
        (FOLDER / "trouble.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        with capsys.disabled():
            click.echo(f"\n{json.dumps(told, indent=2)}\nwrong: {str(findings) or 'nothing'}")

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    assert told["decisions"] >= DECISIONS
    assert min(told["ready"], told["not ready"]) >= EACH
    assert min(told["ready after"].values()) >= HEALED, told
    shutil.rmtree(stand.home)


def examine(trouble: Trouble, findings: Findings, epochs: Sequence[int] = (1, 2)) -> None:
    """Every READY by the ledger, and the mirrors by the oracle; changes are of these *epochs*."""
    stand = trouble.stand
    findings.add("wrong in mirrors", unequal(stand))
    store = ServiceStore.open(stand.home / "sluice.db")
    try:
        certificates = {one.id: one for one in store.certificates.list(limit=ALL)}
    finally:
        store.close()
    tribunal = Tribunal(
        stand.service.lake,
        stand.ledger.entries(),
        certificates,
        stand.bases,
        moved=trouble.moved,
    )
    if not tribunal.unlanded(LOST, trouble.deleted):
        findings.add("no loss", ["all that the deleted topic held had landed: nothing was tried"])
    if (found := counted(stand)) != [*epochs]:
        findings.add("epochs", [f"the changes are of {found}, and not of {[*epochs]}"])
    decisions = stand.asker.decisions
    findings.add("false READY", judged(SERVERS, len(decisions), tribunal.false(decisions)))
    findings.add("judges asleep", tribunal.asleep(stand.asker.decisions))


def counted(stand: Stand) -> list[int]:
    """The epochs that changes landed in."""
    log = DeltaTable(f"{stand.service.lake}/changes")
    found = pa.table(QueryBuilder().register("log", log).execute(EPOCHS).read_all())
    return [row["epoch"] for row in found.to_pylist()]


def summary(trouble: Trouble) -> dict[str, Any]:
    """What was done, and how many answers it got; a question that was READY counts once."""
    stand = trouble.stand
    decisions = stand.asker.decisions
    ready = {each.question for each in decisions if each.ready}
    waiting = sum(not each.ready for each in decisions)
    return {
        "decisions": len(ready) + waiting,
        "ready": len(ready),
        "not ready": waiting,
        "ready after": {
            what: sum(each.ready and each.question.cut > since for each in decisions)
            for what, since in trouble.healed.items()
        },
        "log": stand.log,
    }
