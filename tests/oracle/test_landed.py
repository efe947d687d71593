"""What the change log shows: images by row and number, from the first batch that holds them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from demo.shop.ledger import RowState
from tests.oracle.landed import Landed, read_landed

ITEMS = "shop.order_items"
PLACES = (1, 2, 3, 2, 3, 4, 9, 8, 7)


def row_image(order: int, line: int, touched: int) -> str:
    return json.dumps({"order_id": order, "line": line, "sku": "x", "touched": touched})


def bare(order: int, line: int) -> str:
    """Give the image of a deleted row of which the log tells only the key."""
    return json.dumps({"order_id": order, "line": line, "sku": "", "touched": 0})


@pytest.fixture
def landed(tmp_path: Path) -> Landed:
    changes = [
        (1, ITEMS, "c", None, row_image(5, 1, 10)),
        (2, ITEMS, "u", row_image(5, 1, 10), row_image(5, 1, 11)),
        (3, ITEMS, "d", row_image(5, 1, 11), None),
        (4, ITEMS, "u", row_image(5, 1, 10), row_image(5, 1, 11)),
        (4, ITEMS, "tombstone", None, None),
        (4, "shop.nobody", "c", None, "{}"),
        (5, ITEMS, "d", bare(7, 1), None),
        (6, ITEMS, "u", None, row_image(7, 1, 13)),
        (6, ITEMS, "c", None, row_image(7, 1, 12)),
    ]
    names = ("batch", "shard", "op", "before", "after")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*changes, strict=True)), strict=True))
    columns |= {"order": [{"pos": at} for at in PLACES], "offset": list(range(len(changes)))}
    write_deltalake(str(tmp_path / "changes"), pa.table(columns))
    return read_landed(str(tmp_path))


@pytest.mark.parametrize(
    ("state", "batch", "shown"),
    [
        pytest.param(RowState(ITEMS, (5, 1), 10), 1, True, id="an insert, in its batch"),
        pytest.param(RowState(ITEMS, (5, 1), 11), 1, False, id="an update, before its batch"),
        pytest.param(RowState(ITEMS, (5, 1), 11), 2, True, id="sent again later, seen at first"),
        pytest.param(RowState(ITEMS, (5, 1), None, 11), 2, False, id="a delete, too early"),
        pytest.param(RowState(ITEMS, (5, 1), None, 11), 3, True, id="a delete, by what it took"),
        pytest.param(RowState(ITEMS, (5, 1), None, 10), 9, False, id="a delete of another state"),
        pytest.param(RowState(ITEMS, (5, 2), 10), 9, False, id="another row"),
        pytest.param(RowState(ITEMS, (7, 1), None, 13), 5, True, id="a bare delete, by order"),
        pytest.param(RowState(ITEMS, (7, 1), None, 12), 9, False, id="one of a state before"),
    ],
)
def test_a_state_is_shown_from_the_first_batch_that_holds_its_image(
    landed: Landed, state: RowState, batch: int, shown: bool
) -> None:
    assert landed.shows(state, batch) is shown
