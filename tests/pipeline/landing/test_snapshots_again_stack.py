"""A real connector loses its offset, and reads its MySQL again: a gap, and what is gone goes."""

from collections.abc import Callable

import pytest

from pipeline.report import read_gap
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_a_collector_that_lost_its_offset_leaves_a_gap_until_all_is_read_again(
    pipe: Callable[..., Pipe],
) -> None:
    """What went meanwhile is sent by nobody, nor is a row of a table that was emptied."""
    p = pipe("forgot")
    columns = "(id INT PRIMARY KEY, name VARCHAR(80))"
    p.sql(f"CREATE TABLE DB.t {columns}", f"CREATE TABLE DB.emptied {columns}")
    p.sql("INSERT INTO DB.t VALUES (1, 'a'), (2, 'b')", "INSERT INTO DB.emptied VALUES (1, 'a')")
    p.start()
    p.catch_up()
    assert (p.lane.mark.gaps, p.lane.mark.again) == ({}, {})
    p.servers.connect.halt(p.name)
    p.sql("DELETE FROM DB.emptied", "DELETE FROM DB.t WHERE id = 2")
    p.servers.connect.forget_offsets(p.name)
    p.servers.connect.resume(p.name)

    p.until(lambda: p.name in p.lane.mark.again)
    told = [one for landed in p.landed for one in landed.gaps]
    p.catch_up()

    shards = {f"{p.name}/{p.name}.{name}" for name in ("t", "emptied")}
    assert all({*gap.shards} <= shards for gap in told)
    again = p.lane.mark.again[p.name]
    assert (again.tables, again.asked) == (2, False)
    assert list(map(read_gap, p.lane.mark.gaps.values())) == []
    assert {n: o for n, o in p.lane.mark.lost.items() if o >= again.order}.keys() == shards
    assert p.pairs() == p.source_pairs() == {1: "a"}
    assert p.pairs("emptied") == {}
