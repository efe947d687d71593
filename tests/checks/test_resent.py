"""While a log is sent again older rows may stand, and nobody gets READY, nor keeps it."""

from dataclasses import replace

import pytest

from checks.blocks import Inputs
from checks.readiness import Question, Readiness, ReadinessPolicy, ReadinessState, assess
from pipeline.heartbeats import HeartbeatHistory, LandedHeartbeat
from pipeline.lags.samples import MirrorPosition, extended, step
from pipeline.model import Order, Stage
from tests.checks.samples import CUT, TABLE, beats, lags, mark, samples

MIRROR, LANDED = Question(Stage.MIRROR, CUT), Question(Stage.LANDED, CUT)
COPY = Question(Stage.COPY, CUT, "cache")  # where it stands is told as if it were the mirror
CALM = HeartbeatHistory(highest=900, order=Order(1, 0, 7), last=900, raised=51)


def asked(
    trail: HeartbeatHistory,
    question: Question = MIRROR,
    before: Readiness | None = None,
    idle_since: int | None = None,
) -> Readiness:
    """*idle_since*: its last change, and so its mirror's last turn, is of this batch."""
    landed, known = replace(mark(batch=51), beats={"shop": trail}), mark(batch=50)
    if idle_since is not None:
        tables = {TABLE.name: idle_since}
        landed, known = replace(landed, tables=tables), replace(known, tables=tables)
    steps = extended((), step(known, {"shop": beats()}))
    standing = MirrorPosition(7, 50 if idle_since is None else idle_since)
    found = samples(landed=landed, steps=steps, standing=standing)
    given = None if before is None else before.certificate
    policy = ReadinessPolicy()
    return assess(question, Inputs(TABLE, found, lags(found)), policy, certificate=given)


@pytest.mark.parametrize(
    ("trail", "why"),
    [
        pytest.param(replace(CALM, last=880), "880 came behind 900", id="it is sent again now"),
        pytest.param(replace(CALM, leaps=1), "came behind", id="by two"),
        pytest.param(replace(CALM, over=51), "sent again until 51", id="the mirror is from within"),
        pytest.param(
            replace(CALM, raised=50),
            "behind all that was listed with batch 50",
            id="nobody knows yet",
        ),
    ],
)
@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_a_mirror_that_may_hold_older_rows_is_not_ready(
    trail: HeartbeatHistory, why: str, question: Question
) -> None:
    found = asked(trail, question)

    assert found.state is ReadinessState.NOT_READY
    assert why in found.reasons[0].text


@pytest.mark.parametrize(
    "trail",
    [
        pytest.param(CALM, id="never"),
        pytest.param(replace(CALM, again=49, over=50), id="and it has what came again"),
    ],
)
@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_one_that_holds_all_that_came_again_is_ready(
    trail: HeartbeatHistory, question: Question
) -> None:
    assert asked(trail, question).ready


@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_one_that_stands_before_the_newest_came_again_is_not_ready(question: Question) -> None:
    """Its batch 50 is of rows that were sent again; 900 came again in 51, and 901 behind it."""
    trail = HeartbeatHistory(highest=900, order=Order(1, 0, 7), last=900, raised=40)
    for number in (900, 901):
        trail = trail.next(LandedHeartbeat(number, "canal", 0, number, Order(1, 0, number)), 51)

    found = asked(trail, question)

    assert found.state is ReadinessState.NOT_READY
    assert "sent again until 51" in found.reasons[0].text


@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_one_of_which_nothing_came_again_is_ready_though_it_has_no_turn(question: Question) -> None:
    """A table that is idle is applied through batch 40 for ever, and is believed by what it had."""
    trail = replace(CALM, again=49, over=50)

    idle = asked(trail, question, idle_since=40)

    assert idle.ready
    assert asked(trail, question, before=idle, idle_since=40).ready


def test_what_was_certified_before_is_not_to_be_read_while_it_is_sent_again() -> None:
    before = asked(CALM)

    during, unsure = (
        asked(replace(CALM, last=880), before=before),
        asked(replace(CALM, raised=50), before=before),
    )

    assert before.ready
    assert during.state is ReadinessState.NOT_READY
    assert unsure.ready
    assert asked(CALM, before=before).ready


def test_where_nothing_is_sent_again_no_heartbeat_is_waited_for_until_numbers_fall() -> None:
    """A ledger of files: rows land all the time, and a heartbeat once all files were looked at."""
    once = replace(CALM, raised=50, once=True)

    assert asked(once).ready
    assert asked(replace(once, last=880)).state is ReadinessState.NOT_READY
    assert asked(replace(once, over=51)).state is ReadinessState.NOT_READY


def test_the_change_log_is_asked_only_whether_it_is_sent_again_now() -> None:
    assert asked(replace(CALM, raised=50, over=51), LANDED).ready
    assert not asked(replace(CALM, last=880), LANDED).ready
