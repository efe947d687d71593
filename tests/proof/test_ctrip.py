"""The Ctrip system, whole, by the config of its page: nothing lost, and no READY false."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from demo.processes import wait_until
from tests.proof.ctrip import SOON, Site
from tests.proof.ctrip_trouble import TROUBLES

pytestmark = pytest.mark.stack


@pytest.fixture
def site(capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    made = Site(Path(tempfile.mkdtemp(prefix="ctrip-")))
    try:
        yield made
    finally:
        made.close()
        with capsys.disabled():
            click.echo("\n" + "\n".join(made.log))
    if made.sound:  # else it is evidence
        shutil.rmtree(made.home)


def test_shards_on_two_instances_become_one_table_over_a_mirror(site: Site) -> None:
    site.open()
    site.ready()
    site.note("READY")
    site.kill_sender(1)
    site.kill_sender(2)
    site.ready()
    site.kill_service()
    site.ready()
    finish(site)


@pytest.mark.long
def test_two_that_send_one_log_are_told_and_nothing_is_lost_or_falsely_ready(site: Site) -> None:
    site.open()
    site.remember_place(1)
    site.ready()
    site.note("READY")
    site.send_beside(1)
    wait_until(
        lambda: site.incidents("by two collectors, or by one that keeps restarting"),
        SOON,
        "an incident",
    )
    site.note("told")
    site.end_twin()
    site.ready()
    finish(site)


@pytest.mark.long
def test_brokers_restarts_columns_poison_and_fail_overs_lose_nothing(site: Site) -> None:
    site.open()
    site.ready()
    site.note("READY")
    for trouble in TROUBLES:
        trouble(site)
        site.kill_sender(1)
        site.kill_sender(2)
        site.ready()
        site.note("READY")
    site.kill_service()
    site.ready()
    finish(site)


def finish(site: Site) -> None:
    """All is written and merged: then the mirror is its sources, and no READY was false."""
    wait_until(lambda: bool(site.given), SOON, "a READY while rows are written")
    site.orders.stop()
    site.ready()
    site.note(f"{len(site.given)} READY; {site.orders.moved} rows moved")

    assert site.wrong() == []
    assert site.difference().clean, f"{site.difference()}"
    assert site.orders.moved > 0
    site.sound = True
