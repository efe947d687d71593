"""One table that either writer takes on, and its mirror as two readers see it."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipeline.apply.row_metadata import SLUICE
from pipeline.delta.log import load_snapshot
from pipeline.delta.store import open_store
from pipeline.model import Account, Op, Origin
from pipeline.reports import MergeReport
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.change_log import read_table
from tests.builders.lake import LocalLake, row

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
ADOPTED = tuple(f"foreign_write:db.t:{version}" for version in range(1, 20))  # waived
Image = Mapping[str, Any]


def writers_of(kind: str, spark: SparkSession) -> DeltaMirrors:
    """``vectors`` or ``spark``, whatever the table is like."""
    if kind == "vectors":
        return DeltaMirrors(None)
    made = DeltaMirrors(spark)
    made.why = lambda _: "the test asks for it"
    return made


def change(
    op: Op, pos: int, image: Image, *, key: Sequence[str] = ("id",), **more: Any
) -> dict[str, Any]:
    """A change of a whole row as it is sent, at *pos*."""
    shard = more.get("shard", "db.t")
    told = json.dumps(image)
    made = row(op, pos, None, **more)
    own = {"key": json.dumps(["s", shard, *(str(image[name]) for name in key)])}
    return made | own | {"before": told if op is D else None, "after": None if op is D else told}


def snapshot_row(pos: int, image: Image, **more: Any) -> dict[str, Any]:
    """A row of a snapshot, below whatever was live at its place."""
    return change(R, pos, image, **more) | {"origin": int(Origin.SNAPSHOT)}


def applied(lake: LocalLake, *rows: Mapping[str, Any], waived: Sequence[str] = ()) -> Account:
    """Land and apply one batch; its account, after the log's own counts were held against it."""
    before = _count(lake)
    lake.land(*rows)
    turn = lake.apply(waived)
    assert turn.hold is None, turn.hold
    assert turn.account.residual == 0
    assert turn.batch == lake.checkpoint.batch
    metrics = newest(lake).metrics
    told = {name: int(metrics[f"numTargetRows{name}"]) for name in ("Inserted", "Deleted")}
    assert before + told["Inserted"] - told["Deleted"] == _count(lake)
    return turn.account


def newest(lake: LocalLake) -> Any:
    """The mirror's newest commit."""
    found = lake.runner.mirrors.look("db.t")
    assert found is not None
    return next(lake.runner.mirrors.commits("db.t", found.version))


def held(lake: LocalLake, *rows: Mapping[str, Any], waived: Sequence[str] = ()) -> MergeReport:
    """Land a batch that the mirror does not take."""
    lake.land(*rows)
    turn = lake.apply(waived)
    assert turn.hold is not None
    return turn


def read(lake: LocalLake, spark: SparkSession) -> list[dict[str, Any]]:
    """The mirror's rows without ``_sluice``, sorted, if Spark and deltalake agree on them."""
    path = lake.settings.mirror("db.t")
    by_spark = plain(spark.read.format("delta").load(path).toArrow().to_pylist())
    by_deltalake = plain(lake_rows(lake))
    assert _sorted(by_spark) == _sorted(by_deltalake)
    return sorted(by_spark, key=repr)


def plain(rows: Sequence[Image]) -> list[dict[str, Any]]:
    """Rows without ``_sluice``; readers have zones of different classes for UTC."""
    return [
        {
            name: value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
            for name, value in one.items()
            if name != SLUICE
        }
        for one in rows
    ]


def lake_rows(lake: LocalLake) -> list[dict[str, Any]]:
    """All columns as deltalake reads them, in no order."""
    return read_table(lake.settings.mirror("db.t")).select("SELECT * FROM t")


def path_of(lake: LocalLake) -> Path:
    return Path(lake.settings.mirror("db.t"))


def _count(lake: LocalLake) -> int:
    """Rows by the log's own counts."""
    found = load_snapshot(open_store(lake.settings.mirror("db.t")))
    if found is None:
        return 0
    files = found.files.values()
    return sum((f.records or 0) - (f.vector["cardinality"] if f.vector else 0) for f in files)


def _sorted(rows: Sequence[Image]) -> list[str]:
    return sorted(map(repr, rows))
