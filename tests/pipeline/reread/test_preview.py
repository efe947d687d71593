"""A dry run tells what a repair would change, and changes nothing."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirror_side import MirrorSide
from pipeline.model import Op, Order, Shard, Table
from pipeline.reread import preview
from pipeline.reread.preview import Previews, compared
from pipeline.rereads import Preview, RereadState, RowsWished, WishedKey, WishedRange
from tests.pipeline.reading import readings
from tests.pipeline.reread.test_bootstrap import Beside
from tests.pipeline.reread.test_repair import HeldIds, make, repair

AT = Order(1, 7, 500)
OLD, NEW = (
    {"order": dict(zip(("epoch", "log", "pos", "row"), o, strict=True))}
    for o in ((1, 7, 400, 0), (1, 7, 600, 0))
)


def mirror(**changed: Any) -> dict[str, Any]:
    return {"id": 1, "name": "a", "_sluice": OLD} | changed


@pytest.mark.parametrize(
    ("source", "there", "found"),
    [
        pytest.param({"id": 1, "name": "a"}, mirror(), (0, 0, 0), id="alike"),
        pytest.param({"id": 1, "name": "b"}, mirror(), (0, 0, 1), id="different"),
        pytest.param({"id": 1, "name": None}, mirror(), (0, 0, 1), id="null"),
        pytest.param({"id": 1, "name": "b"}, mirror(_sluice=NEW), (0, 0, 0), id="newer there"),
        pytest.param({"id": 1, "name": "b"}, mirror(_sluice=None), (0, 0, 1), id="adopted"),
        pytest.param({"id": 1, "name": "a"}, None, (1, 0, 0), id="missing"),
        pytest.param(None, mirror(), (0, 1, 0), id="extra"),
        pytest.param(None, mirror(_sluice=NEW), (0, 0, 0), id="made since"),
        pytest.param(
            {"id": 1, "name": float("nan")}, mirror(name=float("nan")), (0, 0, 0), id="nan"
        ),
        pytest.param({"id": 1, "name": '{"a":1}'}, mirror(name='{"a": 1}'), (0, 0, 0), id="json"),
        pytest.param({"id": 1, "name": "{a"}, mirror(name="{b"), (0, 0, 1), id="no json"),
        pytest.param(
            {"id": 1, "name": Decimal("1.0")}, mirror(name=Decimal("1.00")), (0, 0, 0), id="number"
        ),
    ],
)
def test_rows_are_compared_as_of_the_fence(
    source: dict[str, Any] | None, there: dict[str, Any] | None, found: tuple[int, int, int]
) -> None:
    made = compared({1: source} if source else {}, {1: there} if there else {}, AT)

    assert (made.missing, made.extra, made.different) == found
    assert len(made.keys) == sum(found)


class HeldRows(HeldIds):
    """A mirror of whole rows."""

    def rows_of(self, shard: Shard, column: str, span: tuple[int, int]) -> list[dict[str, Any]]:
        return [
            {"id": n, "name": "again" if n % 2 else "old", "_sluice": OLD}
            for n in self.ids(shard, column, span, 1_000)
        ]


def states(beside: Beside, previews: Previews) -> RereadState:
    beside.number += 1
    beside.desk.topics.beat("a", beside.number, pos=beside.rows.end + 1)
    beside.rows.end += 5
    beside.desk.server.end = beside.rows.end
    beside.desk.land()
    log = beside.desk.log()
    log.look()
    catalog = Catalog(beside.router, readings("a", "b"))
    catalog.add(log.schema_changes(-1))
    landed = LandedState(beside.desk.loop.mark, catalog)
    (state,) = previews.run(landed, beside.again.tables(landed, beside.wishes))
    return state


@pytest.mark.parametrize(
    ("wished", "preview", "why"),
    [
        pytest.param(
            RowsWished(ranges=(WishedRange(3, 8),)),
            Preview(2, 1, 1, ("missing: 4", "missing: 8", "extra: 5", "different: 6")),
            "",
            id="told",
        ),
        pytest.param(
            RowsWished(keys=(WishedKey('["7"]'),)), None, "a dry run is of ids", id="keys"
        ),
        pytest.param(
            RowsWished(ranges=(WishedRange(0, 40),), most=9), None, "9 may be", id="too many"
        ),
    ],
)
def test_nothing_lands_of_a_dry_run(
    tmp_path: Path, wished: RowsWished, preview: Preview | None, why: str
) -> None:
    held = HeldRows([3, 5, 6, 7])
    beside = make(tmp_path, repair(wished), held)
    mirror, feeds = cast(MirrorSide, held), beside.desk.loop.feeds
    previews = Previews(feeds, beside.rows, lambda _: mirror, lambda: datetime.now(UTC))
    for _ in range(9):
        state = states(beside, previews)
        if state.done is not None or state.refused:
            break

    assert (state.preview, state.refused) == (preview, preview is None)
    assert why in state.why
    assert beside.desk.landed(Op.READ, Op.DELETE) == []
    assert beside.desk.loop.mark.rereads == {}


def looking(path: Path, wished: RowsWished) -> tuple[Beside, Previews]:
    held = HeldRows([3, 5, 6, 7])
    beside = make(path, repair(wished), held)
    mirror, feeds = cast(MirrorSide, held), beside.desk.loop.feeds
    return beside, Previews(feeds, beside.rows, lambda _: mirror, lambda: datetime.now(UTC))


def test_rows_of_all_ranges_count(tmp_path: Path) -> None:
    wished = RowsWished(ranges=(WishedRange(0, 9), WishedRange(20, 29)), most=15)
    beside, previews = looking(tmp_path, wished)

    told = [states(beside, previews) for _ in range(3)]

    assert told[-1].refused
    assert "rows or more of db.t are asked for, 15 may be" in told[-1].why


def test_a_table_whose_shards_are_gone_is_told_so(tmp_path: Path) -> None:
    beside, previews = looking(tmp_path, RowsWished(ranges=(WishedRange(3, 8),)))
    landed = LandedState(beside.desk.loop.mark, Catalog(beside.router, readings("a", "b")))

    (state,) = previews.run(landed, [(beside.wishes[0], Table("db.t", (), ("id",), "id"))])

    assert "no shard of it is known" in state.why
    assert state.done is None


def test_a_round_has_its_time_and_each_shard_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases and repairs are read by the same line: it is not to wait for a large dry run."""
    monkeypatch.setattr(preview, "ROUND", -1.0)
    beside, previews = looking(tmp_path, RowsWished(ranges=(WishedRange(3, 8),)))
    table = Table("db.t", (Shard("a", "db.t"), Shard("a", "db.u")), ("id",), "id")
    landed = LandedState(beside.desk.loop.mark, Catalog(beside.router, readings("a", "b")))

    rounds = [previews.run(landed, [(beside.wishes[0], table)]) for _ in range(4)]

    turns = [[one.shard for one in told if one.why != preview.QUEUED] for told in rounds]
    assert turns == [["a/db.t"], ["a/db.u"], ["a/db.t"], ["a/db.u"]]


def test_what_was_looked_at_is_not_read_again(tmp_path: Path) -> None:
    beside, previews = looking(tmp_path, RowsWished(ranges=(WishedRange(3, 8),)))
    while states(beside, previews).done is None:
        pass
    reads = len(beside.rows.reads)

    again = states(beside, previews)

    assert (again.done is not None, len(beside.rows.reads)) == (True, reads)
