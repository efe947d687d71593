"""Whose question may get a yes by now?  Asked without ruling anything; covers monitor/gate.py."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from checks.readiness import Rule
from monitor.gate import GateQuestion
from pipeline.lags.lag import MOVING
from pipeline.model import Missing, Stage
from tests.monitor.rig import ORDERS, USERS, Rig


@pytest.fixture
def healthy(rig: Rig) -> Rig:
    """Two rounds of a pipeline that works."""
    rig.round()
    rig.round()
    return rig


def of(cut: datetime, *tables: str, stage: Stage = Stage.MIRROR) -> GateQuestion:
    return (tables or (USERS,), cut, stage, "")


def test_a_question_has_hope_once_its_cut_has_landed_and_not_before(healthy: Rig) -> None:
    cut = healthy.now + timedelta(seconds=1)
    healthy.second(2)
    early = healthy.gate.hopeful([of(cut), of(cut, stage=Stage.LANDED)])
    healthy.beat()
    written = healthy.gate.hopeful([of(cut)])
    healthy.second(2)
    healthy.land()
    healthy.second(2)

    landed = healthy.gate.hopeful([of(cut), of(cut, USERS, ORDERS), of(healthy.now)])

    assert (early, written) == ([], [])
    assert landed == [of(cut), of(cut, USERS, ORDERS)]


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("stage", MOVING)
def test_who_gets_a_yes_had_hope(healthy: Rig, stage: Stage, rule: Rule) -> None:
    """Else it would be found late."""
    healthy.assessor.policy = replace(healthy.assessor.policy, rule=rule)
    begin = healthy.now
    cuts = [begin + timedelta(seconds=number) for number in range(8)]
    answers = set[int]()
    for _ in range(8):
        healthy.round()
        for cut in cuts:
            hoped = healthy.gate.hopeful([of(cut, stage=stage)])
            told, _ = healthy.ask(cut=cut.isoformat(), stage=stage.value)

            assert told == 404 or hoped
            answers.add(told)
    assert answers == {200, 404}


def test_where_the_sum_of_lags_decides_alone_all_have_hope(healthy: Rig) -> None:
    healthy.assessor.policy = replace(healthy.assessor.policy, rule=Rule.SUM)
    asked = [of(healthy.now + timedelta(seconds=1)), of(healthy.now)]

    assert healthy.gate.hopeful(asked) == asked


def test_nobody_is_kept_waiting_by_hope_and_nothing_is_ruled(healthy: Rig) -> None:
    before = healthy.store.certificates.list()

    healthy.gate.recorder.deciding = None  # type: ignore[assignment]

    assert healthy.gate.hopeful([of(healthy.now - timedelta(days=2))])
    assert healthy.store.certificates.list() == before


def test_what_is_not_known_leaves_hope(healthy: Rig) -> None:
    """Only a question that is asked finds out what is wrong."""
    healthy.lake.silent = True
    healthy.collector.position = Missing("no offset")
    healthy.second(20)

    asked = [of(healthy.now), of(healthy.now, "shop.unheard_of")]
    assert healthy.gate.hopeful(asked) == asked
