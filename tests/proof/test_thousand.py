"""1,000 real tables are onboarded by one pattern, change every cycle, and become READY each time.

What the run said stays as build/proof/thousand.json; a failed run leaves its folder beside it.
"""

import json
import shutil
import tempfile
from pathlib import Path

import click
import pytest

from demo import machine
from pipeline.spark import jars
from tests.proof.thousand import Thousand

FOLDER = jars.ROOT / "build" / "proof"
CYCLES = 5

pytestmark = [pytest.mark.stack, pytest.mark.long]


def test_1000_tables_are_ready_after_every_cycle_and_equal_their_sources(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine.require(FOLDER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    stand = Thousand(Path(tempfile.mkdtemp(dir=FOLDER, prefix="thousand-")))
    try:
        stand.open()
        for _ in range(CYCLES):
            stand.cycle()
        told = json.dumps(stand.figures(), indent=2)
        stand.service.stop()
        wrong = stand.compare()
    finally:
        stand.close()

    (FOLDER / "thousand.json").write_text(told + "\n", encoding="utf-8")
    with capsys.disabled():
        click.echo(f"\n{told}")
    assert wrong == {}
    shutil.rmtree(stand.home)
