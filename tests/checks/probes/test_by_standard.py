"""A key that the mirror has by a standard has no ranges; checks say so, by its column."""

from dataclasses import replace
from typing import Any

import pytest

from checks.model import Outcome, Verdict
from checks.probes.max_id import MaxId
from checks.probes.range_counts import RangeCounts
from checks.run import Check, Probe, run_probe
from tests.checks.world_fake import TABLE, FakeWorld


@pytest.mark.parametrize("probe", [MaxId(), RangeCounts()], ids=["max_id", "range_counts"])
def test_ranges_of_a_key_with_a_standard_are_refused_by_its_name(probe: Probe[Any]) -> None:
    table = replace(TABLE, id_column=None, key=("id",), by_standard=("id", "phone"))

    told = run_probe(Check("p", probe, table), FakeWorld())

    assert isinstance(told, Verdict)
    assert (told.ruling.outcome, told.ruling.code) == (Outcome.UNKNOWN, "unsupported")
    assert told.ruling.reason == "key column id is written by a standard"


def test_a_standard_beside_the_key_takes_no_range_away() -> None:
    assert not replace(TABLE, by_standard=("phone",)).no_ranges
