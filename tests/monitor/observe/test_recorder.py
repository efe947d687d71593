"""What does a FAIL find in the store after a restart?  Covers monitor/observe/recorder.py."""

from datetime import timedelta

import pytest

from checks.model import Outcome, Ruling, Verdict
from monitor.observe.rulings import Rulings
from monitor.store.waivers import Waiver
from tests.monitor.rig import USERS, Rig

CHECK = "range_counts"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """A service whose check has looked at all rows."""
    rig.whole = frozenset({CHECK})
    rig.restart()
    rounds(rig)
    return rig


def rounds(rig: Rig) -> None:
    for _ in range(2):
        rig.round()


def say(rig: Rig, outcome: Outcome) -> int:
    """As a probe's round tells it; how many were kept."""
    ruling, fences = Ruling(outcome, "told", "", ("[1, 2)",)), (rig.fences.of("shop")[-1],)
    one = Verdict(USERS, CHECK, ruling, rig.now, fences, value=0.0)
    kept = rig.recorder.changed([one])
    rig.recorder.tell([one], kept=kept)
    return len(kept)


def test_after_a_restart_a_fail_spares_what_has_passed_before_the_last_day(rig: Rig) -> None:
    say(rig, Outcome.PASS)
    rounds(rig)
    cut = rig.now - timedelta(seconds=2)
    rounds(rig)
    status, answer = rig.ask(cut=cut.isoformat())
    rig.second(25 * 3600)
    rounds(rig)
    say(rig, Outcome.PASS)
    rounds(rig)
    rig.rulings = Rulings()
    rig.rulings.load(rig.store.verdicts)
    rig.restart()

    say(rig, Outcome.FAIL)

    issued = rig.store.certificates.get(answer["tables"][0]["certificate"])
    assert status == 200
    assert issued is not None
    assert issued.revoked is None


@pytest.mark.parametrize(
    ("whole", "kept"),
    [
        pytest.param(True, [1, 0, 0, 1, 0], id="it looks at all rows: once a day"),
        pytest.param(False, [1, 0, 0, 0, 0], id="it looks at some: a FAIL spares nothing by it"),
    ],
)
def test_of_a_pass_that_lasts_few_are_kept(rig: Rig, whole: bool, kept: list[int]) -> None:
    rig.whole = frozenset({CHECK} if whole else ())
    rig.restart()
    said = []
    for hours in (0, 2, 20, 3, 20):
        rig.second(hours * 3600)
        said.append(say(rig, Outcome.PASS))

    assert said == kept


KEYS = ("[1, 2)", "[2, 3)")


def named(*keys: str) -> tuple[str, ...]:
    """Waiver ids of ranges that the check found wrong."""
    return tuple(f"{CHECK}:{USERS}:{key}" for key in keys)


@pytest.mark.parametrize(
    ("waived", "holds"),
    [
        pytest.param((), False, id="none is waived"),
        pytest.param(KEYS[:1], False, id="one of two is waived"),
        pytest.param(KEYS[1:], False, id="the other of two is waived"),
        pytest.param(KEYS, True, id="both are waived"),
    ],
)
def test_f113_a_fail_of_two_keys_revokes_until_both_are_waived(
    rig: Rig, waived: tuple[str, ...], holds: bool
) -> None:
    status, answer = rig.ask(cut=(rig.now - timedelta(seconds=2)).isoformat())
    for id_ in named(*waived):
        rig.store.waivers.add(Waiver(id_, "the rows are known", "ann", rig.now))

    rig.say(USERS, Ruling(Outcome.FAIL, "two ranges differ", "", KEYS))

    issued = rig.store.certificates.get(answer["tables"][0]["certificate"])
    assert status == 200
    assert issued is not None
    assert (issued.revoked is None) is holds
