"""The Liulishuo system, whole, by the config of its page: nothing lost, and no READY false."""

import shutil
import time

import click
import httpx
import pytest

from tests.proof.evidence import Findings, examine
from tests.proof.liulishuo import (
    FOLDED,
    MONITORS,
    ORDERS,
    Loss,
    Nightly,
    collect,
    ruled,
    written,
)
from tests.proof.plan import Round, Victim, plan
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder
from tests.proof.torment import EVERY, Torment
from tests.proof.trouble import Trouble

SEED = 11


@pytest.mark.stack
def test_shards_in_one_topic_become_one_table_its_image_and_three_monitors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    home, findings, began = new_folder("liulishuo"), Findings(), time.monotonic()
    stand = Stand(home, SEED, config=written(home), collect=collect)
    nightly, loss = Nightly(stand), Loss(stand)
    try:
        stand.open()
        nightly.let_midnight_come()
        stand.play(Round(Victim.CONNECT, 0.0, 0.0, rush=True))
        nightly.wait()
        findings.add("wrong in the image", nightly.wrong())
        stand.workload.stop()
        stand.recover()
        ruled(stand, "pass", *MONITORS)
        stand.note("monitors pass")
        loss.plant()
        failed = ruled(stand, "fail", *MONITORS)
        stand.note("monitors fail")
        closed = stand.service.gate([FOLDED])
        loss.alarm()
        loss.touch()
        stand.finish()
        findings.add("READY for lost rows", loss.unrevoked())
        examine(stand, findings)
    finally:
        stand.close()
        with capsys.disabled():
            click.echo(f"\n{time.monotonic() - began:.0f} s\n" + "\n".join(stand.log))

    alarms = findings.wrong.pop("false alarms", [])
    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    assert closed.status == httpx.codes.CONFLICT
    for verdict in failed.values():
        named = " ".join(verdict["keys"])
        assert loss.shard in named, verdict
        assert str(max(loss.ids)) in named, verdict
    assert any(monitor in one for one in alarms for monitor in MONITORS), alarms
    shutil.rmtree(stand.home)


@pytest.mark.stack
@pytest.mark.long
def test_kills_and_all_that_befalls_such_a_system_lose_nothing_and_make_no_ready_false(
    capsys: pytest.CaptureFixture[str],
) -> None:
    home, findings = new_folder("liulishuo-long"), Findings()
    stand = Stand(home, SEED, config=written(home), collect=collect)
    torment, trouble = Torment(stand, ORDERS), Trouble(stand)
    try:
        stand.open()
        for round_ in plan(8, SEED):
            stand.play(round_)
        torment.send_again(EVERY)
        torment.grow()
        torment.alter()
        trouble.fail_over()
        torment.poison()
        stand.finish()
        examine(stand, findings)
    finally:
        stand.close()
        with capsys.disabled():
            click.echo("\n" + "\n".join(stand.log))

    findings.wrong.pop("false alarms", None)  # a table that is poisoned is told of, and rightly
    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    shutil.rmtree(stand.home)
