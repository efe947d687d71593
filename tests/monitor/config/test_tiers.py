"""What a tier means: who has a line of its own, and who waits for how long."""

from datetime import timedelta

import pytest

from monitor.config.file import parse_config
from tests.monitor.config.test_config import MINIMAL, PLACE


@pytest.mark.parametrize(
    ("more", "cycles"),
    [
        pytest.param("", {2: 5}, id="a third of the budget of tier 2, which is that of tier 1"),
        pytest.param("readiness: {lag_budget: {0: PT1M, 2: PT60M}}", {2: 20}, id="or its own"),
        pytest.param(
            "schedule: {cycles: {1: PT10M}}", {1: 10}, id="what is told, and nothing else"
        ),
        pytest.param("schedule: {cycles: {}}", {}, id="none"),
    ],
)
def test_low_tiers_wait_for_less_than_would_be_late(more: str, cycles: dict[int, int]) -> None:
    told = parse_config(MINIMAL + more, PLACE).settings.cycles

    assert told == {tier: timedelta(minutes=length) for tier, length in cycles.items()}


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        pytest.param("tier: 0", 20_000, id="batches are short where a table is urgent"),
        pytest.param("tier: 0, ignore: true", 2_000_000, id="one that is ignored is not"),
        pytest.param("tier: 1", 2_000_000, id="none is"),
    ],
)
def test_tier_0_has_a_line_of_its_own_where_a_rule_names_it(rule: str, rows: int) -> None:
    settings = parse_config(f"{MINIMAL}tables: [{{shards: 'a.b', {rule}}}]", PLACE).settings

    assert (settings.divided, settings.most_rows) == (rows == 20_000, rows)
