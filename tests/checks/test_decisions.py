"""Which of two answers stands?  The edges of checks/readiness.py that a person meets seldom."""

from dataclasses import replace
from typing import Any

import pytest

from checks.blocks import Inputs
from checks.model import Reason
from checks.readiness import (
    Question,
    Readiness,
    ReadinessPolicy,
    ReadinessState,
    Rule,
    answer_for_display,
    assess,
)
from pipeline.model import Missing, Stage
from pipeline.reports import Hold
from tests.checks.samples import NOW, TABLE, mark
from tests.checks.test_readiness import (
    BOTH,
    LANDED,
    MINUTE,
    MIRROR,
    SECOND,
    codes,
    inputs,
    issued,
)

WRITTEN = Hold("foreign_write:db.t:8", TABLE.name, "foreign_write", "version 8 is not Sluice's")
STILL = Hold("schema:db.t", TABLE.name, "schema", "a column was dropped")
CLOCK = Reason("clock", "source shop: its clock is 720.0 s ahead of Sluice's")
RECENT = Question(Stage.LANDED, NOW - 12 * SECOND)  # by positions in, by clocks not yet


def test_only_what_is_not_ready_yet_has_an_eta() -> None:
    gone = inputs(taken={"landed": Missing("down")})

    assert assess(MIRROR, inputs(), BOTH).eta is None
    assert assess(MIRROR, inputs(holds=(STILL,)), BOTH).eta is None
    assert assess(MIRROR, gone, BOTH).eta is None
    assert assess(RECENT, inputs(), replace(BOTH, margin=MINUTE)).eta is not None


def test_an_answer_for_the_eye_is_the_same_without_a_certificate() -> None:
    slow = replace(BOTH, margin=MINUTE)

    yes, no = answer_for_display(MIRROR, inputs(), BOTH), answer_for_display(RECENT, inputs(), slow)

    assert (yes.state, yes.eta, yes.certificate) == (ReadinessState.READY, None, None)
    assert (no.state, no.certificate) == (ReadinessState.NOT_READY, None)
    assert no.eta == assess(RECENT, inputs(), slow).eta is not None


def test_by_the_sum_rule_alone_positions_are_not_asked() -> None:
    """As where a collector cannot say what it has acknowledged."""
    behind = inputs(taken={"landed": mark(through=90)}, lags=inputs().lags)

    by_clocks = assess(LANDED, behind, ReadinessPolicy(rule=Rule.SUM))
    by_both = assess(LANDED, behind, BOTH)

    assert (by_clocks.state, codes(by_clocks)) == (ReadinessState.READY, [])
    assert (by_both.state, codes(by_both)) == (ReadinessState.NOT_READY, ["not_landed"])


@pytest.mark.parametrize("question", [MIRROR, LANDED])
def test_f01_no_answer_is_ready_by_clocks_that_nobody_believes(question: Question) -> None:
    answer = assess(question, inputs(clocks=(CLOCK,)), BOTH)

    assert answer.state is ReadinessState.UNKNOWN
    assert answer.reasons[0] == CLOCK


def test_f01_rules_do_not_disagree_by_clocks_that_nobody_believes() -> None:
    slow, since = replace(BOTH, margin=MINUTE), NOW - 10 * MINUTE

    answer = assess(RECENT, inputs(clocks=(CLOCK,)), slow, disagreeing=since)

    assert answer.disagreeing is None
    assert "rules_disagree" not in codes(answer)


def certified(question: Question, **more: Any) -> Readiness:
    """What is answered to *question*, which has a certificate, as things stand now."""
    one = replace(issued(), stage=question.stage)
    return assess(question, inputs(**more), BOTH, certificate=one)


def test_f02_a_certificate_does_not_answer_over_rows_that_others_wrote() -> None:
    answer = certified(MIRROR, holds=(WRITTEN,))

    assert (answer.state, answer.certificate) == (ReadinessState.BLOCKED, None)
    assert codes(answer) == ["foreign_write"]


@pytest.mark.parametrize(
    ("question", "more"),
    [
        pytest.param(LANDED, {"holds": (WRITTEN,)}, id="written to the mirror, asked of the log"),
        pytest.param(MIRROR, {"holds": (STILL,)}, id="held for what comes later"),
        pytest.param(MIRROR, {"holds": (WRITTEN,), "waived": frozenset({WRITTEN.id})}, id="waived"),
    ],
)
def test_a_certificate_answers_whatever_came_later(
    question: Question, more: dict[str, Any]
) -> None:
    answer = certified(question, **more)

    assert answer.ready
    assert codes(answer) == ["certified"]


def disagreeing(question: Question, held: Inputs, policy: ReadinessPolicy) -> str:
    answer = assess(question, held, policy, disagreeing=NOW - 10 * MINUTE)
    (told,) = [reason.text for reason in answer.reasons if reason.code == "rules_disagree"]
    return told


def test_rules_that_disagree_are_told_by_their_names() -> None:
    behind = inputs(taken={"landed": mark(through=90)}, lags=inputs().lags)

    by_positions = disagreeing(RECENT, inputs(), replace(BOTH, margin=MINUTE))
    by_clocks = disagreeing(LANDED, behind, BOTH)

    assert by_positions.startswith("proof says ready, sum rule says not")
    assert by_clocks.startswith("sum rule says ready, proof says not")
