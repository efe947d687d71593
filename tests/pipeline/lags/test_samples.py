"""Which batches say something of a table?"""

from typing import Any

import pytest

from pipeline.lags.samples import LandedBatch, extended, step
from pipeline.model import Table
from tests.checks.samples import TABLE, beats, mark, samples

OTHER = Table("shop.users", ())


@pytest.mark.parametrize(
    ("more", "batches"),
    [
        pytest.param({}, [47, 48, 49, 50], id="all of them"),
        pytest.param({"complete": {"shop/shop_01.orders": 49}}, [49, 50], id="since its base"),
        pytest.param({"departed": {TABLE.name: 48}}, [48, 49, 50], id="since a shard left it"),
        pytest.param({"belated": {TABLE.name: 49}}, [49, 50], id="since quarantined changes came"),
        pytest.param(
            {"complete": {"shop/shop_00.orders": 47}, "departed": {TABLE.name: 50}},
            [50],
            id="since the later of both",
        ),
        pytest.param(
            {"complete": {"shop/x.users": 49}, "departed": {OTHER.name: 50}},
            [47, 48, 49, 50],
            id="another table's say nothing",
        ),
    ],
)
def test_a_batch_from_before_a_table_was_whole_says_nothing_of_it(
    more: dict[str, Any], batches: list[int]
) -> None:
    known: tuple[LandedBatch, ...] = ()
    for batch in (47, 48, 49):
        known = extended(known, step(mark(batch=batch), {"shop": beats()}))

    found = samples(landed=mark(**more), steps=known).walked(TABLE)

    assert [one.batch for one in found] == batches
