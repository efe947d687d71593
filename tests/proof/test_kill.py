"""`kill -9` under load loses nothing, doubles nothing, and no READY is false; nor by a wrong clock.

What a failed run leaves - lake, ledger, store, logs, every decision - stays under build/proof; what
the last run said stands beside it.
"""

import json
import shutil
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from demo import machine
from demo.shop.schema import MIRRORS
from pipeline.spark import jars
from tests.grafana.answers import lasting
from tests.proof.evidence import Findings, examine
from tests.proof.plan import plan
from tests.proof.stand import Stand

FOLDER = jars.ROOT / "build" / "proof"
SEED = 1
DECISIONS, EACH = 400, 100
WRONG = (720.0, -720.0, 4.0)  # seconds that the service's clock is set wrong by, one after another
ANSWERED = timedelta(minutes=6)  # a rate needs two merges

ROUNDS = [
    pytest.param(8, marks=pytest.mark.stack, id="8 rounds"),
    pytest.param(40, marks=[pytest.mark.stack, pytest.mark.long], id="40 rounds"),
]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_kills_under_load_lose_nothing_and_no_ready_is_false(
    rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stand, findings = Stand(new_folder(str(rounds)), SEED), Findings()
    began = time.monotonic()
    try:
        stand.open()
        findings.add("queries without an answer", unanswered(stand))
        for seconds in WRONG[: rounds // 8]:
            stand.mislead(seconds)
        for round_ in plan(rounds, SEED):
            stand.play(round_)
        stand.finish()
        examine(stand, findings)
    except BaseException as error:
        findings.wrong["trouble"] = [repr(error)]
        raise
    finally:
        stand.close()
        told = summary(stand, findings, rounds, time.monotonic() - began)
        keep(stand, told, rounds)
        with capsys.disabled():
            click.echo(f"\n{line(told)}")

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    assert told["decisions"] >= DECISIONS, line(told)
    assert min(told["ready"], told["not ready"]) >= EACH, line(told)
    shutil.rmtree(stand.home)


def unanswered(stand: Stand) -> list[str]:
    """What Grafana and Prometheus would not get from the service that runs here, under load."""
    home = stand.home / "prometheus"
    home.mkdir()
    found = lasting(stand.service.url.removeprefix("http://"), home, MIRRORS, ANSWERED)
    return [f"{place}: {why}" for place, why in found.items()]


def new_folder(run: str) -> Path:
    machine.require(FOLDER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=FOLDER, prefix=f"kill-{run}-"))


def summary(stand: Stand, findings: Findings, rounds: int, seconds: float) -> dict[str, Any]:
    """What the run was; a question that was READY counts as one READY, however often asked."""
    decisions = stand.asker.decisions
    ready = {each.question for each in decisions if each.ready}
    waiting = [each for each in decisions if not each.ready]
    return {
        "rounds": rounds,
        "seed": stand.seed,
        "time": str(timedelta(seconds=round(seconds))),
        "changes": stand.workload.tally["changes"],
        "decisions": len(ready) + len(waiting),
        "ready": len(ready),
        "not ready": len(waiting),
        "states": Counter(each.state for each in waiting),
        "reasons": Counter(code for each in waiting for code in each.reasons),
        "unanswered": stand.asker.unanswered,
        "findings": findings.wrong,
        "log": stand.log,
    }


def keep(stand: Stand, told: dict[str, Any], rounds: int) -> None:
    """Leave decisions and summary as files."""
    stand.asker.save(stand.home / "decisions.jsonl")
    text = json.dumps(told, indent=2) + "\n"
    (stand.home / "summary.json").write_text(text, encoding="utf-8")
    (FOLDER / f"kill-{rounds}.json").write_text(text, encoding="utf-8")


def line(told: dict[str, Any]) -> str:
    found = {what: len(each) for what, each in told["findings"].items()}
    return (
        f"{told['rounds']} kills in {told['time']}, seed {told['seed']}:"
        f" {told['changes']} changes; {told['decisions']} decisions,"
        f" {told['ready']} READY, {told['not ready']} not;"
        f" wrong: {found or 'nothing'}"
    )
