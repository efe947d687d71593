"""Changes that belong in an image and landed after it was made, on real Delta tables."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checks.certificate import Certificate, CertificateBasis, Evidence, revoke_lost
from pipeline.apply.merge_job import below_cut, select_late
from pipeline.image import Image
from pipeline.model import Op, Order, Origin, Stage
from pipeline.settings import PublishRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.lake import ID, NOW, LocalLake, row

C, U, D, R, S, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.SETTLE, Op.TRUNCATE
CUT = NOW + timedelta(minutes=25)
MADE = Column("made", "TIMESTAMP")


def image_of(key: int, made: str) -> dict[str, str]:
    return {"after": f'{{"id": {key}, "made": "{made}"}}'}


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """With an image of two rows, and a change after it."""
    rule = PublishRule("db.*", day="made")
    made = LocalLake(tmp_path, publish=(rule,), columns=(ID, MADE))
    made.settings = replace(made.settings, time_zone="Europe/Berlin")
    made.reopen()
    old = "2026-01-01T10:00:00Z"
    made.play([row(C, 10, 1, **image_of(1, old)), row(C, 11, 2, **image_of(2, old))])
    made.end_day(CUT, 50, "2026-01-02")
    made.now = CUT
    made.land(row(U, 40, 1, **image_of(1, old)), row(U, 60, 1, **image_of(1, old)))
    made.run()
    return made


REPAIR = int(Origin.REPAIR)


@pytest.mark.parametrize(
    ("rows", "count", "days"),
    [
        pytest.param(
            [row(R, 45, 3, **image_of(3, "2026-01-01T23:30:00Z"), origin=REPAIR)],
            1,
            {"2026-01-02": 1},
            id="a repair that was read before the cut, by the day of the zone",
        ),
        pytest.param(
            [
                row(R, 45, 3, **image_of(3, "2025-12-30T10:00:00Z"), origin=REPAIR),
                row(R, 45, 4, **image_of(4, "2025-12-30T11:00:00Z"), origin=REPAIR),
                row(R, 45, 5, after='{"id": 5, "made": null}', origin=REPAIR),
            ],
            3,
            {"": 1, "2025-12-30": 2},
            id="of several days, and of none",
        ),
        pytest.param(
            [row(U, 48, 2, **image_of(2, "2026-01-01T10:00:00Z"))],
            1,
            {"2026-01-01": 1},
            id="a live change that nobody knew of",
        ),
        pytest.param([row(T, 49, None)], 1, {"": 1}, id="a truncate"),
    ],
)
def test_what_belongs_in_an_image_and_came_after_it_is_listed_by_day(
    lake: LocalLake, rows: list[Mapping[str, Any]], count: int, days: Mapping[str, int]
) -> None:
    lake.land(*rows)
    turn = lake.apply()

    (late,) = lake.image().late
    assert turn.hold is None
    assert (late.batch, late.rows, dict(late.days)) == (lake.checkpoint.batch, count, days)
    lake.land(row(U, 90, 2, **image_of(2, "2026-01-01T10:00:00Z")))
    lake.apply()
    assert len(lake.image().late) == 1


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            [row(C, 10, 1, **image_of(1, "2026-01-01T10:00:00Z"))],
            id="sent again, and long changed",
        ),
        pytest.param([row(U, 40, 1, **image_of(1, "2026-01-01T10:00:00Z"))], id="sent again"),
        pytest.param([row(U, 70, 2, **image_of(2, "2026-01-01T10:00:00Z"))], id="after the cut"),
        pytest.param(
            [row(U, 50, 2, **image_of(2, "2026-01-01T10:00:00Z"))], id="at the cut, which is after"
        ),
        pytest.param(
            [{**row(Op.TOMBSTONE, 0, 1), "order": None, "before": None}], id="it says nothing"
        ),
    ],
)
def test_nothing_else_is_late(lake: LocalLake, rows: list[Mapping[str, Any]]) -> None:
    lake.land(*rows)
    lake.apply()

    assert lake.image().late == ()


@pytest.mark.parametrize("stage", list(Stage))
def test_a_late_change_takes_back_what_was_said_of_its_cut_and_nothing_said_since(
    lake: LocalLake, stage: Stage
) -> None:
    watching = Lake(lake.settings, DeltaMirrors(None))
    image, before = lake.image(), watching.applied("db.t")
    assert before is not None
    evidence = Evidence(
        image.fences, lake.checkpoint.batch, image.version, before.batch, mirror=before.mirror
    )
    one = Certificate("c", "db.t", stage, CUT, lake.now, evidence)
    other = replace(one, cut=CUT - timedelta(days=1), stage=Stage.MIRROR)
    assert (
        revoke_lost([one, other], CertificateBasis(before, lake.checkpoint.batch), lake.now) == ()
    )

    lake.land(row(R, 45, 3, **image_of(3, "2026-01-01T10:00:00Z"), origin=REPAIR))
    lake.apply()
    after = watching.applied("db.t")

    ground = CertificateBasis(after, lake.checkpoint.batch)
    (gone,) = revoke_lost([one, other], ground, lake.now)
    assert gone.cut == CUT
    assert gone.why == "1 changes from before its cut landed after it"
    since = replace(
        one, stage=Stage.MIRROR, evidence=replace(evidence, batch=lake.checkpoint.batch)
    )
    assert revoke_lost([since], ground, lake.now) == ()


def test_orders_are_compared_from_left_to_right_in_their_own_source() -> None:
    orders = [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 9, 0), (1, 3, 0, 0), (2, 0, 0, 0), (0, 9, 9, 9)]
    names = ("epoch", "log", "pos", "row")
    kind = pa.struct([(name, pa.int64()) for name in names])
    structs = [dict(zip(names, one, strict=True)) for one in orders]
    changes = pa.table(
        {
            "source": ["s"] * len(orders) + ["other", "s"],
            "order": pa.array([*structs, structs[0], None], kind),
        }
    )

    kept = below_cut(changes, {"s": Order(1, 2, 3, 5)})

    assert [tuple(one.values()) for one in kept["order"].to_pylist()] == [orders[0], orders[5]]


def test_where_nothing_can_be_late_nobody_asks_what_has_landed() -> None:
    def never(_: pa.Table) -> pa.Table:
        raise AssertionError

    made = Image(CUT, 1, 5, (), {"s": Order(1, 1, 50)}, CUT, datetime.max.replace(tzinfo=UTC))
    kind = pa.struct([(name, pa.int64()) for name in ("epoch", "log", "pos", "row")])
    order = pa.array([{"epoch": 1, "log": 1, "pos": 60, "row": 0}], kind)
    changes = pa.table({"source": ["s"], "op": ["u"], "batch": [9], "order": order})

    assert [*select_late([made], changes, never)] == []
