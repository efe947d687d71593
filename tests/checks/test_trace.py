"""A traced row is called lost or different only where that is proven, and each state has a case."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.trace import (
    LandedChange,
    LandedChanges,
    MirrorFacts,
    TraceFacts,
    TraceState,
    judge_trace,
)
from pipeline.model import Missing, Op, Order

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SILENT = Missing("no answer in 3 s")
LOSSES = {
    TraceState.NOT_CAPTURED,
    TraceState.GHOST,
    TraceState.LOST_FROM_MIRROR,
    TraceState.DIFFERENT,
}


def at(pos: int) -> Order:
    return Order(1, 1, pos)


def change(op: Op, batch: int, pos: int, **more: Any) -> LandedChange:
    return LandedChange(op, batch, at(pos), **more)


CREATED = change(Op.CREATE, 3, 10)
UPDATED = change(Op.UPDATE, 4, 20)
DELETED = change(Op.DELETE, 5, 30)
SETTLED = change(Op.SETTLE, 5, 30)
HAS, HAS_NOT = MirrorFacts(has=True, applied=5, order=at(10)), MirrorFacts(has=False, applied=5)
FACTS = TraceFacts(
    source=True,
    waiting="",
    log=LandedChanges((CREATED,)),
    refused=(),
    mirror=HAS,
    covered=True,
    known_batch=5,
)
NO_ENTRY = LandedChanges()


def facts(**more: Any) -> TraceFacts:
    return replace(FACTS, **more)


def log(*entries: LandedChange, **more: Any) -> LandedChanges:
    return LandedChanges(entries, **more)


LATE = change(Op.UPDATE, 4, 8, at=NOON + timedelta(seconds=5))
SOON = change(Op.UPDATE, 3, 10, at=NOON)


@pytest.mark.parametrize(
    ("told", "state"),
    [
        pytest.param(facts(), TraceState.MERGED, id="equal, and nothing newer"),
        pytest.param(facts(log=NO_ENTRY), TraceState.MERGED, id="equal, entries dropped by age"),
        pytest.param(facts(log=SILENT), TraceState.MERGED, id="equal, the log is silent"),
        pytest.param(facts(covered=False), TraceState.MERGED, id="equal needs no proof"),
        pytest.param(
            facts(mirror=replace(HAS, rows=2)), TraceState.DUPLICATE, id="twice in the mirror"
        ),
        pytest.param(
            facts(source=False, log=log(DELETED, CREATED), mirror=HAS_NOT),
            TraceState.MERGED,
            id="deleted everywhere",
        ),
        pytest.param(
            facts(source=False, mirror=replace(HAS, archived=True)),
            TraceState.MERGED,
            id="archived",
        ),
        pytest.param(
            facts(source=False, mirror=replace(HAS, archived=True), log=log(DELETED, CREATED)),
            TraceState.MERGED,
            id="archived, and deleted since",
        ),
        pytest.param(
            facts(source=False, log=log(DELETED, CREATED), mirror=HAS_NOT, covered=False),
            TraceState.MERGED,
            id="deleted everywhere needs no proof",
        ),
        pytest.param(
            facts(source=False, log=log(SETTLED), mirror=HAS_NOT),
            TraceState.ABSENT,
            id="nowhere, and its shard was emptied once",
        ),
        pytest.param(
            facts(source=False, log=log(replace(SETTLED, batch=6)), mirror=HAS_NOT),
            TraceState.ABSENT,
            id="nowhere, and what empties its shard is not merged",
        ),
        pytest.param(
            facts(log=log(replace(SETTLED, batch=6), CREATED), differing=("name",)),
            TraceState.LANDED_NOT_MERGED,
            id="what empties its shard is not merged",
        ),
        pytest.param(
            facts(source=False, log=NO_ENTRY, mirror=HAS_NOT, covered=False),
            TraceState.ABSENT,
            id="nowhere",
        ),
        pytest.param(
            facts(log=NO_ENTRY, mirror=HAS_NOT),
            TraceState.NOT_CAPTURED,
            id="only at the source",
        ),
        pytest.param(
            facts(log=log(DELETED, CREATED), mirror=HAS_NOT),
            TraceState.NOT_CAPTURED,
            id="inserted again after its delete, unseen",
        ),
        pytest.param(
            facts(log=log(change(Op.TRUNCATE, 5, 30), CREATED), mirror=HAS_NOT),
            TraceState.NOT_CAPTURED,
            id="inserted again after a truncate, unseen",
        ),
        pytest.param(
            facts(waiting="t:0:7", differing=("name",)), TraceState.IN_TOPIC, id="in the topic"
        ),
        pytest.param(
            facts(waiting="t:0:7"), TraceState.IN_TOPIC, id="in the topic, though both are equal"
        ),
        pytest.param(
            facts(waiting="t:0:7", source=SILENT, log=SILENT, mirror=SILENT),
            TraceState.IN_TOPIC,
            id="in the topic, whoever else is silent",
        ),
        pytest.param(
            facts(refused=("t:0:7@4",), log=NO_ENTRY, mirror=HAS_NOT),
            TraceState.QUARANTINED,
            id="refused",
        ),
        pytest.param(
            facts(refused=("t:0:7@4",)), TraceState.MERGED, id="refused, and right by now"
        ),
        pytest.param(
            facts(log=log(change(Op.UPDATE, 6, 20), CREATED), differing=("name",)),
            TraceState.LANDED_NOT_MERGED,
            id="an update is not merged",
        ),
        pytest.param(
            facts(log=log(change(Op.CREATE, 6, 20)), mirror=HAS_NOT),
            TraceState.LANDED_NOT_MERGED,
            id="a create is not merged",
        ),
        pytest.param(
            facts(source=False, log=log(change(Op.DELETE, 6, 20), CREATED)),
            TraceState.LANDED_NOT_MERGED,
            id="a delete is not merged",
        ),
        pytest.param(
            facts(log=log(change(Op.UPDATE, 6, 10)), differing=("name",)),
            TraceState.IN_FLIGHT,
            id="the mirror has what landed meanwhile",
        ),
        pytest.param(
            facts(log=log(UPDATED, CREATED), differing=("name",)),
            TraceState.OVERWRITTEN_BY_OLDER,
            id="below a merged change",
        ),
        pytest.param(
            facts(source=False, log=log(DELETED, CREATED)),
            TraceState.OVERWRITTEN_BY_OLDER,
            id="back after its delete was merged",
        ),
        pytest.param(
            facts(log=log(SOON, LATE), differing=("name",)),
            TraceState.OVERWRITTEN_BY_OLDER,
            id="the latest change has a lower order",
        ),
        pytest.param(
            facts(log=log(replace(SOON, op=Op.READ, live=False), LATE), differing=("name",)),
            TraceState.DIFFERENT,
            id="the time of a row that was read is no time of a change",
        ),
        pytest.param(facts(source=False), TraceState.GHOST, id="no delete landed"),
        pytest.param(facts(mirror=HAS_NOT), TraceState.LOST_FROM_MIRROR, id="merged, and gone"),
        pytest.param(facts(differing=("name",)), TraceState.DIFFERENT, id="other values"),
        pytest.param(
            facts(differing=("name",), waiting=SILENT),
            TraceState.DIFFERENT,
            id="all has landed, so a silent topic has nothing",
        ),
        pytest.param(
            facts(differing=("name",), covered=False), TraceState.IN_FLIGHT, id="not landed yet"
        ),
        pytest.param(
            facts(differing=("name",), base=False), TraceState.IN_FLIGHT, id="in its snapshot"
        ),
        pytest.param(
            facts(differing=("name",), known_batch=2),
            TraceState.IN_FLIGHT,
            id="changed while it was traced",
        ),
        pytest.param(facts(source=SILENT), TraceState.UNDECIDED, id="the source is silent"),
        pytest.param(facts(mirror=SILENT), TraceState.UNDECIDED, id="the mirror is silent"),
        pytest.param(facts(source=False, log=SILENT), TraceState.UNDECIDED, id="the log is silent"),
        pytest.param(
            facts(source=False, refused=SILENT), TraceState.UNDECIDED, id="quarantine is silent"
        ),
        pytest.param(
            facts(source=False, log=log(whole=False)),
            TraceState.UNDECIDED,
            id="the log was not searched to its beginning",
        ),
    ],
)
def test_each_case_has_its_state(told: TraceFacts, state: TraceState) -> None:
    verdict = judge_trace(told)

    assert verdict.state is state, verdict.sentence
    assert verdict.sentence
    assert verdict.advice


def test_a_difference_names_its_columns() -> None:
    verdict = judge_trace(facts(differing=("name", "state")))

    assert verdict.columns == ("name", "state")
    assert verdict.sentence.endswith("name, state")


def test_a_silent_hop_is_named_with_its_reason() -> None:
    verdict = judge_trace(facts(source=SILENT, waiting=SILENT))

    assert verdict.sentence == "source did not answer: no answer in 3 s"


def test_what_emptied_the_shard_is_no_change_of_a_row_that_never_landed() -> None:
    first, again = (
        judge_trace(facts(log=entries, mirror=HAS_NOT)).sentence
        for entries in (log(SETTLED), log(SETTLED, CREATED))
    )

    assert first.endswith("no change of it is in the change log")
    assert again.endswith("its newest landed change is a settle")


def test_a_held_mirror_is_named() -> None:
    verdict = judge_trace(facts(log=log(change(Op.UPDATE, 6, 20)), hold="no_key"))

    assert "the mirror is held: no_key" in verdict.sentence


ENTRIES = st.builds(
    LandedChange,
    op=st.sampled_from([Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE, Op.SETTLE]),
    batch=st.integers(0, 8),
    order=st.none() | st.builds(at, st.integers(0, 5)),
    at=st.none() | st.sampled_from([NOON, NOON + timedelta(seconds=1)]),
    live=st.booleans(),
)
LOGS = st.builds(
    LandedChanges, entries=st.lists(ENTRIES, max_size=3).map(tuple), whole=st.booleans()
)
MIRRORS = st.builds(
    MirrorFacts,
    has=st.booleans(),
    applied=st.integers(-1, 8),
    order=st.none() | st.builds(at, st.integers(0, 5)),
    archived=st.booleans(),
)
FACTS_OF_ALL_KINDS = st.builds(
    TraceFacts,
    source=st.just(SILENT) | st.booleans(),
    waiting=st.just(SILENT) | st.sampled_from(["", "t:0:7"]),
    log=st.just(SILENT) | LOGS,
    refused=st.just(SILENT) | st.sampled_from([(), ("t:0:7@4",)]),
    mirror=st.just(SILENT) | MIRRORS,
    differing=st.sampled_from([(), ("name",)]),
    covered=st.booleans(),
    known_batch=st.integers(-1, 8),
    base=st.booleans(),
)


@given(FACTS_OF_ALL_KINDS)
def test_a_loss_is_proven(told: TraceFacts) -> None:
    verdict = judge_trace(told)

    if verdict.state in LOSSES:
        assert told.covered
        assert told.base
        assert not isinstance(told.source, Missing)
        assert isinstance(told.mirror, MirrorFacts)
        assert isinstance(told.log, LandedChanges)
        assert told.log.whole
        assert all(one.batch <= told.known_batch for one in told.log.entries[:1])
        assert told.waiting in ("", SILENT)
        assert told.refused == ()


@given(FACTS_OF_ALL_KINDS)
def test_merged_is_true(told: TraceFacts) -> None:
    verdict = judge_trace(told)

    if verdict.state is TraceState.MERGED:
        assert isinstance(told.mirror, MirrorFacts)
        if told.source:
            assert told.mirror.has
            assert not told.differing
        assert not isinstance(told.source, Missing)
        assert not told.waiting or told.waiting == SILENT


@given(FACTS_OF_ALL_KINDS)
def test_a_row_that_changes_is_no_loss(told: TraceFacts) -> None:
    assert judge_trace(replace(told, covered=False)).state not in LOSSES
    assert judge_trace(replace(told, base=False)).state not in LOSSES


@given(FACTS_OF_ALL_KINDS, st.sampled_from(["source", "log", "mirror", "refused"]))
def test_a_hop_that_falls_silent_makes_no_loss(told: TraceFacts, hop: str) -> None:
    fewer: Any = {hop: SILENT}
    assert judge_trace(replace(told, **fewer)).state not in LOSSES


@pytest.mark.parametrize(
    ("newest", "order", "says"),
    [
        pytest.param(DELETED, None, "its delete is merged", id="a row that another writer added"),
        pytest.param(CREATED, None, "no delete landed", id="an adopted row"),
    ],
)
def test_a_ghost_whose_delete_is_merged_is_not_said_to_have_none(
    newest: LandedChange, order: Order | None, says: str
) -> None:
    mirror = replace(HAS, order=order)

    verdict = judge_trace(facts(source=False, log=log(newest, CREATED), mirror=mirror))

    assert (verdict.state, says in verdict.sentence) == (TraceState.GHOST, True)
    assert ("another writer of the mirror" in verdict.advice) is (newest is DELETED)
