"""Which keys have changed since a batch: what explains a difference between source and mirror."""

from pathlib import Path

import pytest

from pipeline.changelog.reader import LogReader
from pipeline.delta.reader import open_table
from pipeline.model import Op, Shard, Table
from tests.pipeline.lakes import change, write_changes

A, B = Shard("shop", "s.orders_00"), Shard("shop", "s.orders_01")
TABLE = Table("shop.orders", (A, B), ("id",), "id")


@pytest.mark.parametrize(
    ("after", "found"),
    [
        pytest.param(-1, (True, True, True, False), id="since ever"),
        pytest.param(0, (False, True, True, False), id="changed later, or its shard emptied"),
        pytest.param(1, (False, False, True, False), id="only the emptied shard"),
        pytest.param(2, (False, False, False, False), id="nothing since"),
    ],
)
def test_a_key_is_touched_by_its_own_change_or_by_one_that_emptied_its_shard(
    tmp_path: Path, after: int, found: tuple[bool, ...]
) -> None:
    write_changes(
        tmp_path,
        0,
        [change(Op.CREATE, 10, key="k", offset=0), change(Op.CREATE, 11, key="l", offset=1)],
    )
    write_changes(tmp_path, 1, [change(Op.DELETE, 20, key="l", offset=2)])
    write_changes(tmp_path, 2, [change(Op.TRUNCATE, 30, shard=B.name)])
    opened = open_table(str(tmp_path))
    assert opened is not None

    asked = [(A, "k"), (A, "l"), (B, "m"), (A, "m")]

    assert LogReader(opened, "main").touched(TABLE, asked, after) == found
    assert LogReader(opened, "main").touched(TABLE, [], after) == ()
