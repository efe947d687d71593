"""Looks of before come late: a round goes through many tables while jobs ask with newer ones."""

from dataclasses import replace
from datetime import timedelta

import pytest

from checks.readiness import Question
from monitor.observe.sampler import Sampling
from pipeline.landing.new_rules import with_rules
from pipeline.model import Stage
from pipeline.route import Router
from pipeline.settings import TableRule
from tests.monitor.rig import ORDERS, USERS, Rig

DAY, EARLIER = "2026-03-28", "2026-03-27"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round()
    rig.round()
    return rig


def test_an_older_look_takes_back_nothing_that_a_newer_one_has_certified(rig: Rig) -> None:
    older = rig.watcher.look(timedelta())
    rig.beat()
    rig.land()
    rig.apply()
    rig.second(2)
    certificate = rig.ask(cut=EARLIER)[1]["tables"][0]["certificate"]

    _judge(rig, older)

    kept = rig.store.certificates.get(certificate)
    assert kept is not None
    assert kept.evidence.version == 2
    assert kept.revoked is None


def test_what_an_older_look_has_certified_is_taken_back_by_the_next(rig: Rig) -> None:
    """The one in between has seen that the mirror is gone, and the certificate was not there."""
    older = rig.watcher.look(timedelta())
    rig.second(2)
    del rig.lake.mirrors[USERS]
    rig.ask(cut=DAY)
    certificate = _judge(rig, older)
    rig.second(2)

    rig.ask(cut=DAY)

    kept = rig.store.certificates.get(certificate)
    assert kept is not None
    assert kept.why == "its mirror cannot be read: there is no mirror"


def _judge(rig: Rig, look: Sampling) -> str:
    """What a round does with a table: answer, and certify."""
    table = rig.roster.table(USERS)
    assert table is not None
    question = Question(Stage.MIRROR, rig.gate.cut(EARLIER))
    inputs = rig.assessor.inputs(table, look, rig.assessor.facts(rig.now))
    answer = rig.assessor.answer(question, inputs)
    rig.assessor.certify([answer])
    assert answer.certificate is not None
    return answer.certificate.id


@pytest.mark.parametrize("restart", [False, True])
def test_a_rule_that_sends_it_another_shard_takes_back_what_was_said_before(
    rig: Rig, restart: bool
) -> None:
    """A folded table promises all of its shards, and the new one's rows are in no version yet."""
    certificate = rig.ask(cut=EARLIER)[1]["tables"][0]["certificate"]
    other = rig.ask(ORDERS, cut=EARLIER)[1]["tables"][0]["certificate"]
    rig.beat()
    rig.land()
    assert rig.lake.newest is not None
    name = "shop/shop.users_2"
    before = replace(rig.lake.newest, shards={**rig.lake.newest.shards, name: "shop.users_2"})
    rig.lake.newest = with_rules(before, before, Router((TableRule(r"shop\.users_2", USERS),)))
    if restart:
        rig.restart()
    rig.second(2)

    status, answer = rig.ask(cut=EARLIER)

    kept, spared = (rig.store.certificates.get(one) for one in (certificate, other))
    assert kept is not None
    assert kept.why.endswith("the rules send it a shard that it did not have")
    assert spared is not None
    assert spared.revoked is None
    assert (status, answer["state"]) == (409, "revoked")
