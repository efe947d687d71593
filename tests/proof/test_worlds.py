"""Each world has a script in which READY would be false, but for one rule of the product.

The second test takes that rule away: then the script tells a false READY, so it can fail.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from checks import blocks
from checks.model import Verdict
from checks.readiness import ReadinessState
from monitor.observe.verdicts import LatestVerdicts
from pipeline.landing import next_checkpoint
from pipeline.landing.gaps import detect_failover_divergence
from pipeline.landing.hazards import detect_hazards
from pipeline.landing.heartbeats import detect_missing_heartbeats
from pipeline.landing.rule import CheckpointRule
from pipeline.model import Stage
from tests.proof.model import TABLE, Model
from tests.proof.tally import MODEL, judged

READY = ReadinessState.READY


@dataclass(eq=False)
class Script:
    """A model that is driven by hand; ``states`` are what the gate said, newest last."""

    model: Model
    states: list[ReadinessState] = field(default_factory=list)
    given: set[str] = field(default_factory=set)

    def write(self, *keys: int) -> None:
        """One transaction for each of *keys*."""
        for key in keys:
            self.model.second(0.1)
            self.model.numbers += 1
            self.model.database.write(self.model.numbers, key, self.model.truth)

    def go_on(self, seconds: int = 3) -> None:
        """A healthy pipeline; the gate is asked each second about all that is written by now."""
        self.model.second(0.1)
        cut = self.model.truth
        for _ in range(seconds):
            self.model.write_heartbeat()
            self.model.carry(99)
            self.model.land()
            self.model.apply()
            self.ask(cut)

    def ask(self, cut: datetime) -> None:
        """Ask about all before *cut*."""
        for stage in (Stage.LANDED, Stage.MIRROR):
            (answer,) = self.model.gate.decide([TABLE], cut, stage).answers
            self.states.append(answer.state)
            if answer.certificate is not None:
                self.given.add(answer.certificate.id)

    def false(self) -> list[str]:
        """What was not true of what the gate said."""
        landed, found = self.model.landed(), list[str]()
        for id_ in self.given:
            one = self.model.store.certificates.get(id_)
            assert one is not None
            found += self.model.violations(one, landed)
        return found

    def is_ready(self) -> bool:
        """Whether the last answer of each stage was READY."""
        return self.states[-2:] == [READY, READY]


def skipped_heartbeats(script: Script) -> None:
    """The collector skips a row and the heartbeat behind it, and a new base has them."""
    script.write(1)
    script.model.write_heartbeat()
    script.model.database.skip()
    script.go_on()
    assert not script.is_ready()
    script.model.database.snapshot()


def failover_without_gtids(script: Script) -> None:
    """The collector goes on at the end of another server's log, which cannot name what it has."""
    script.write(1)
    script.model.database.fail_over()
    script.model.database.skip()
    script.go_on()
    assert not script.is_ready()
    script.model.database.snapshot()


def dropped_by_tolerance(script: Script) -> None:
    """The collector cannot send a row, is told to go on, and to do so no more."""
    database = script.model.database
    database.tolerant, database.refused = True, 1
    script.write(1)
    script.go_on()
    assert not script.is_ready()
    database.tolerant = False
    script.go_on(14)  # landing tells of it for a minute of its own
    assert not script.is_ready()
    database.snapshot()


def waived_in_part(script: Script) -> None:
    """A merge loses two rows, a person waives one; then both are repaired."""
    script.model.lose([1, 2], named=2)
    script.model.waive()
    script.go_on()
    assert script.states[-1] is not READY
    script.model.repair()


def restarted_after_a_fail(script: Script) -> None:
    """A check finds a loss, the service restarts; the row is repaired, the service restarts."""
    script.model.lose([1], named=1)
    script.model.reload()
    script.go_on()
    assert script.states[-1] is not READY
    script.model.repair()
    script.model.reload()


def _without(rule: CheckpointRule) -> tuple[CheckpointRule, ...]:
    return tuple(one for one in next_checkpoint.RULES if one is not rule)


def _all_of_it(fail: Verdict, waived: Collection[str] = ()) -> tuple[str, ...]:
    """A waiver of one row is taken for one of all."""
    return () if waived else WAIVERS_OF(fail, waived)


def _forget(_: LatestVerdicts, __: Any) -> None:
    """Nothing is remembered of what was ruled before the restart."""


WAIVERS_OF = blocks.waivers_of
WORLDS: Mapping[Callable[[Script], None], tuple[Any, str, Any]] = {
    skipped_heartbeats: (next_checkpoint, "RULES", _without(detect_missing_heartbeats)),
    failover_without_gtids: (next_checkpoint, "RULES", _without(detect_failover_divergence)),
    dropped_by_tolerance: (next_checkpoint, "RULES", _without(detect_hazards)),
    waived_in_part: (blocks, "waivers_of", _all_of_it),
    restarted_after_a_fail: (LatestVerdicts, "load", _forget),
}
EACH = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)


def prepared(folder: Path, world: Callable[[Script], None]) -> Script:
    """A healthy pipeline with every row in it."""
    model = Model(folder, 1)
    model.database.named = world is not failover_without_gtids
    script = Script(model)
    script.write(0, 1, 2, 3)
    script.go_on()
    assert script.is_ready()
    return script


@EACH
def test_no_ready_is_false_in(world: Callable[[Script], None], tmp_path: Path) -> None:
    script = prepared(tmp_path, world)

    world(script)
    script.go_on(6)

    assert judged(MODEL, len(script.states), script.false()) == []
    assert script.is_ready(), "what was lost is there again"
    script.model.close()


@EACH
def test_but_for_its_rule_a_ready_is_false_in(
    world: Callable[[Script], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = prepared(tmp_path, world)
    monkeypatch.setattr(*WORLDS[world])

    with pytest.raises(AssertionError):  # it is READY at once
        world(script)

    assert script.false() != []
    script.model.close()
