"""Whatever clocks, servers, topics and mirrors do: no READY is false, by a ledger of its own."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from checks.certificate import Certificate, Evidence
from checks.readiness import ReadinessState
from pipeline.model import Stage
from tests.example_count import examples
from tests.proof.model import TABLE, Model
from tests.proof.play import Play
from tests.proof.tally import MODEL, judged

SECONDS = 40
CALM = 40  # seconds after which a table is READY, whatever happened before
SEEDS = range(17)
DECISIONS = 1_000  # of one run, at least


def play_seed(folder: Path, seed: int, seconds: int = SECONDS) -> Play:
    """Play by *seed*; transactions of odd ones have no names.

    A run that was never READY in the midst of its troubles goes on in peace until it is.
    """
    play = Play(Model(folder, seed))
    play.model.database.named = seed % 2 == 0
    for _ in range(seconds):
        play.second()
    play.calm = True
    while not play.states[ReadinessState.READY] and play.seconds < seconds + CALM:
        play.second()
    return play


def given(play: Play) -> Iterator[Certificate]:
    """Every READY that was told."""
    for number in play.certificates:
        one = play.model.store.certificates.get(number)
        assert one is not None, f"{number} is not in the store"
        yield one


def false(play: Play) -> list[str]:
    """Those that were not true."""
    landed = play.model.landed()
    return [why for one in given(play) for why in play.model.violations(one, landed)]


@pytest.mark.parametrize("seed", SEEDS[: examples(17, brief=1)])
def test_no_ready_is_false(tmp_path: Path, seed: int) -> None:
    play = play_seed(tmp_path, seed)

    assert judged(MODEL, play.states.total(), false(play)) == []
    assert play.states.total() >= DECISIONS
    assert play.states[ReadinessState.READY] > 0
    play.model.close()


@pytest.mark.long
def test_none_of_twenty_thousand_is_false(tmp_path: Path) -> None:
    decided, seed = 0, 1_000
    while decided < 20_000:
        folder = tmp_path / str(seed)
        folder.mkdir()
        play = play_seed(folder, seed)
        assert false(play) == [], seed
        decided, seed = decided + play.states.total(), seed + 1
        play.model.close()


def test_the_judge_is_awake(tmp_path: Path) -> None:
    """With the evidence of the first certificate the last one would be false."""
    play = play_seed(tmp_path, 3)
    landed = (one for one in given(play) if one.stage is Stage.LANDED)
    first, *_, last = sorted(landed, key=lambda one: one.issued)

    found = play.model.violations(replace(last, evidence=first.evidence), play.model.landed())

    assert found
    play.model.close()


def test_the_judge_sees_rows_that_are_lost_and_not_waived(tmp_path: Path) -> None:
    model = Model(tmp_path, 1)
    for key in range(4):
        model.database.write(key + 1, key, model.truth)
    for _ in range(3):
        model.write_heartbeat()
        model.carry(9)
        model.land()
        model.apply()
    model.lose([1, 2], named=1)
    now = model.lake.mirrors[TABLE]
    evidence = Evidence((), now.batch, mirror=now.mirror, version=now.version)
    one = Certificate("c", TABLE, Stage.MIRROR, model.truth, model.now, evidence)

    found = model.violations(one, model.landed())
    model.waive()
    after = model.violations(one, model.landed())

    assert [why.partition(": row ")[2][0] for why in found] == ["1", "2"]
    assert [why.partition(": row ")[2][0] for why in after] == ["2"]
    model.close()


def test_a_base_that_was_read_before_a_statement_knows_nothing_of_it(tmp_path: Path) -> None:
    model = Model(tmp_path, 1)
    model.database.write(1, 1, model.truth)  # an empty table has no snapshot
    model.database.snapshot()
    model.lose_statement()
    cut = model.truth + timedelta(seconds=1)
    for _ in range(3):
        model.write_heartbeat()
        model.carry(9)
        model.land()
    evidence = Evidence((), model.harness.loop.checkpoint.batch)
    one = Certificate("c", TABLE, Stage.LANDED, cut, cut, evidence)

    (why,) = model.violations(one, model.landed())

    assert len(model.bases) == 1
    assert "knows nothing of a statement" in why
    model.close()
