"""Nobody gets READY by less than places in the log who has not asked for it, and it is said."""

from dataclasses import replace

import pytest

from checks.ordering import (
    SourceOrdering,
    accepted_ordering,
    partition_counts,
    scattered_reasons,
    unaccepted_reasons,
    weaker_proof_reasons,
    weakest_ordering,
)
from checks.readiness import ReadinessPolicy as Policy
from checks.readiness import ReadinessState, Rule, assess
from pipeline.model import Ordering, Shard, TopicPartition
from pipeline.reports import Hold
from tests.checks.samples import GATING, TABLE
from tests.checks.test_readiness import BOTH, LANDED, MIRROR, inputs, reason_codes

LOG, SEQUENCE, OFFSET = Ordering
(SOURCE,) = TABLE.sources


@pytest.mark.parametrize(
    ("has", "accepts", "refused"),
    [
        pytest.param(LOG, LOG, False, id="places in the log"),
        pytest.param(LOG, OFFSET, False, id="more than is asked for"),
        pytest.param(SEQUENCE, LOG, True, id="the collector's sequence is no place"),
        pytest.param(OFFSET, LOG, True, id="an offset is no place"),
        pytest.param(OFFSET, SEQUENCE, True, id="an offset is no sequence"),
        pytest.param(SEQUENCE, OFFSET, False, id="a sequence is more than an offset"),
        pytest.param(OFFSET, OFFSET, False, id="the config asks for it"),
    ],
)
def test_the_config_says_what_is_enough(has: Ordering, accepts: Ordering, *, refused: bool) -> None:
    reasons = unaccepted_reasons(TABLE, {SOURCE: SourceOrdering(has, accepts)})

    assert [one.code for one in reasons] == ["weak_order"] * refused
    assert [one.id for one in reasons] == [""] * refused
    assert all(f"weakest_order: {has}" in one.text for one in reasons)


def test_a_table_is_as_weak_as_the_weakest_of_its_sources() -> None:
    both = replace(TABLE, shards=(Shard("a", "d.t"), Shard("b", "d.t")))
    known = {"a": SourceOrdering(LOG), "b": SourceOrdering(SEQUENCE, SEQUENCE)}

    assert weakest_ordering(both, known) is SEQUENCE
    assert unaccepted_reasons(both, known) == ()


def test_a_source_that_is_in_no_config_is_not_believed() -> None:
    assert weakest_ordering(TABLE, {}) is OFFSET
    assert [one.code for one in unaccepted_reasons(TABLE, {})] == ["weak_order"]


def test_offsets_of_several_partitions_are_no_order() -> None:
    known = {
        SOURCE: SourceOrdering(OFFSET, OFFSET, r"canal(\..+)?"),
        "other": SourceOrdering(LOG, LOG, ".*"),
    }
    names = ("canal:0", "other.t:0", "other.t:1", "canal.t:0", "canals:0")
    landed = [*map(TopicPartition.parse, names)]

    counts = partition_counts(known, landed)

    assert counts == {SOURCE: 2}
    assert [one.code for one in scattered_reasons(TABLE, counts)] == ["weak_order"]
    assert scattered_reasons(TABLE, partition_counts(known, landed[:3])) == ()
    assert partition_counts({"other": known["other"]}, landed) == {}


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("question", [LANDED, MIRROR], ids=["landed", "mirror"])
def test_what_is_not_accepted_is_unknown_whatever_is_waived(question: object, rule: Rule) -> None:
    weak = unaccepted_reasons(TABLE, {SOURCE: SourceOrdering(OFFSET)})
    asked = LANDED if question is LANDED else MIRROR
    bent = inputs(ordering=OFFSET, weak_order=weak, waived=frozenset({"", "weak_order"}))

    answer = assess(asked, bent, Policy(rule, gating=GATING))

    assert (answer.state, reason_codes(answer)) == (ReadinessState.UNKNOWN, ["weak_order"])
    assert answer.certificate is None


def test_a_yes_by_offsets_names_its_proof_when_it_is_given_and_later() -> None:
    bent = inputs(ordering=OFFSET, accepted=OFFSET)

    first = assess(MIRROR, bent, BOTH)
    again = assess(MIRROR, bent, BOTH, certificate=first.certificate)

    assert first.ready
    assert first.certificate
    assert first.certificate.evidence.ordering is OFFSET
    assert reason_codes(first) == ["weaker_proof"]
    assert reason_codes(again) == ["certified", "weaker_proof"]
    assert "partition_offset" in first.reasons[0].text
    assert "sent again" in first.reasons[0].text


def test_a_yes_by_places_in_the_log_has_nothing_to_add() -> None:
    answer = assess(MIRROR, inputs(), BOTH)

    assert answer.certificate
    assert (answer.certificate.evidence.ordering, reason_codes(answer)) == (LOG, [])
    assert weaker_proof_reasons(LOG) == ()


def test_a_certificate_by_offsets_does_not_answer_for_a_format_that_tells_places() -> None:
    given = assess(MIRROR, inputs(ordering=OFFSET, accepted=OFFSET), BOTH).certificate
    late = inputs(holds=(Hold("h", TABLE.name, "x", "y"),))

    anew = assess(MIRROR, inputs(), BOTH, certificate=given)

    assert anew.certificate
    assert (anew.certificate.evidence.ordering, reason_codes(anew)) == (LOG, [])
    assert assess(MIRROR, late, BOTH, certificate=given).state is ReadinessState.BLOCKED


def test_what_may_be_answered_by_is_the_weakest_of_a_tables_sources() -> None:
    both = replace(TABLE, shards=(Shard("a", "d.t"), Shard("b", "d.t")))
    known = {"a": SourceOrdering(LOG), "b": SourceOrdering(OFFSET, OFFSET)}

    assert (accepted_ordering(both, known), accepted_ordering(TABLE, {})) == (OFFSET, LOG)


def test_a_certificate_by_offsets_answers_no_more_once_that_is_not_accepted() -> None:
    given = assess(MIRROR, inputs(ordering=OFFSET), BOTH).certificate
    weak = unaccepted_reasons(TABLE, {SOURCE: SourceOrdering(OFFSET)})

    answer = assess(MIRROR, inputs(ordering=OFFSET, weak_order=weak), BOTH, certificate=given)

    assert (answer.state, reason_codes(answer)) == (ReadinessState.UNKNOWN, ["weak_order"])
