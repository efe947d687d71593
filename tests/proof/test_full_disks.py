"""The disk of the lake is full, and that of the store: nothing lost, no READY false, no one helps.

Each step of landing and merging on a full disk, one at a time: tests/pipeline/test_killed.py; the
store's: tests/monitor/store/test_full.py.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import pytest

from demo.disks import SAID, small_disks
from tests.proof import robinhood
from tests.proof.evidence import Findings, examine
from tests.proof.robinhood import PostgresSystem
from tests.proof.small_disks import Disk, require_mounts
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder

SEED = 5


def on_postgres(home: Path) -> Stand:
    """The shop of docs/systems/robinhood.md, in JSON."""
    config, built = robinhood.written(home, avro=False), partial(PostgresSystem, avro=False)
    stand = Stand(home, SEED, config=config, collect=robinhood.collect, built=built)
    stand.workload.survive = True
    return stand


@pytest.mark.stack
@pytest.mark.long
@pytest.mark.parametrize(
    "on",
    [
        pytest.param(lambda home: Stand(home, SEED), id="MySQL"),
        pytest.param(on_postgres, id="Postgres"),
    ],
)
def test_without_room_nothing_is_lost_and_with_room_it_goes_on_by_itself(
    capsys: pytest.CaptureFixture[str], on: Callable[[Path], Stand]
) -> None:
    home, findings = new_folder("full"), Findings()
    require_mounts(home)
    stand = on(home)
    with small_disks(home):
        try:
            stand.open()
            service = stand.service.daemon.process
            for name in SAID:
                Disk(stand, name).fill()
            assert stand.service.daemon.process == service, "nobody started it anew"
            stand.finish()
            examine(stand, findings)
        finally:
            stand.close()
            with capsys.disabled():
                click.echo("\n" + "\n".join(stand.log))

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}"
    shutil.rmtree(stand.home)
