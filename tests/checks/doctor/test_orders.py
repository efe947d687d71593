"""The doctor says what the order of a source's changes cannot prove, before anybody waits."""

import pytest

from checks.doctor import check_order
from checks.ordering import SourceOrdering
from pipeline.finding import NOTE, REFUSE, FindingSeverity
from pipeline.model import Ordering

LOG, SEQUENCE, OFFSET = Ordering


@pytest.mark.parametrize(
    ("has", "accepts", "partitions", "found"),
    [
        pytest.param(LOG, LOG, 9, [], id="places in the log"),
        pytest.param(SEQUENCE, LOG, 9, [("weak_order", REFUSE)], id="not asked for"),
        pytest.param(SEQUENCE, SEQUENCE, 9, [("weak_order", NOTE)], id="asked for"),
        pytest.param(OFFSET, OFFSET, 1, [("weak_order", NOTE)], id="one partition"),
        pytest.param(OFFSET, OFFSET, 0, [("weak_order", NOTE)], id="nothing there yet"),
        pytest.param(
            OFFSET,
            SEQUENCE,
            2,
            [("weak_order", REFUSE), ("many_partitions", REFUSE)],
            id="offsets of two",
        ),
    ],
)
def test_less_than_places_in_the_log_is_told(
    has: Ordering, accepts: Ordering, partitions: int, found: list[tuple[str, FindingSeverity]]
) -> None:
    told = check_order(SourceOrdering(has, accepts), partitions, "source:shop")

    assert [(one.code, one.severity) for one in told] == found
    assert all(one.where == "source:shop" and one.fix for one in told)
    assert all(f"weakest_order: {has}" in one.fix for one in told[:1] if one.severity is REFUSE)
