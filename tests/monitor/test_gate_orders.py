"""The gate names the proof it rests on, and stays shut where that is not accepted."""

from dataclasses import replace

import pytest

from checks.ordering import SourceOrdering
from pipeline.model import Ordering, PartitionEnd
from tests.monitor.rig import Rig

DAY, EARLIER = "2026-03-28", "2026-03-27"
OFFSET = SourceOrdering(Ordering.OFFSET, Ordering.OFFSET, r"shop\..+")


def asked(rig: Rig, cut: str) -> tuple[int, list[str], str | None]:
    """The status, the codes of its reasons, and the order that a yes rests on."""
    status, answer = rig.ask(cut=cut)
    (table,) = answer["tables"]
    return status, [reason["code"] for reason in table["reasons"]], table["order"]


@pytest.fixture
def healthy(rig: Rig) -> Rig:
    rig.round()
    rig.round()
    return rig


def test_places_in_the_log_are_named_and_need_no_word_more(healthy: Rig) -> None:
    assert asked(healthy, EARLIER) == (200, ["unchecked"], "log_position")
    assert asked(healthy, EARLIER) == (200, ["certified", "unchecked"], "log_position")


def test_offsets_open_the_gate_only_if_they_are_asked_for_and_are_named(rig: Rig) -> None:
    rig.assessor.orderings = {"shop": replace(OFFSET, weakest=Ordering.LOG)}
    rig.round()
    rig.round()
    assert asked(rig, DAY) == (404, ["weak_order"], None)

    rig.assessor.orderings = {"shop": OFFSET}
    assert asked(rig, DAY) == (200, ["weaker_proof", "unchecked"], "partition_offset")
    _, answer = rig.ask(cut=DAY)
    kept = rig.client.get(f"/v1/certificates/{answer['tables'][0]['certificate']}").json()
    assert kept["order"] == "partition_offset"

    rig.assessor.orderings = {"shop": replace(OFFSET, weakest=Ordering.LOG)}
    assert asked(rig, DAY) == (404, ["weak_order"], None)


def test_offsets_of_two_partitions_open_no_gate(healthy: Rig) -> None:
    healthy.assessor.orderings = {"shop": OFFSET}
    assert asked(healthy, EARLIER)[0] == 200
    mark = healthy.lake.newest
    assert mark is not None

    more = {"shop.shop.users:1": PartitionEnd(1), "elsewhere:0": PartitionEnd(1)}
    healthy.lake.newest = replace(mark, batch=mark.batch + 1, offsets={**mark.offsets, **more})
    healthy.apply()
    healthy.second(2)

    assert asked(healthy, EARLIER) == (404, ["weak_order"], None)
