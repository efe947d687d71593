"""One contract for both writers of a mirror: what ours does by vectors, Spark's MERGE does too."""

import base64
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.model import Op, Order
from pipeline.settings import TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.pipeline.apply.two_writers import (
    ADOPTED,
    C,
    D,
    R,
    U,
    applied,
    change,
    lake_rows,
    newest,
    read,
    snapshot_row,
    writers_of,
)

pytestmark = pytest.mark.spark
MICROS = 86_400_000_000  # of a day
FIRST, LAST = (date(1, 1, 1) - date(1970, 1, 1)).days, (date(9999, 12, 31) - date(1970, 1, 1)).days
MOST, LEAST = str(2**64 - 1), f"-{'9' * 28}.{'9' * 10}"
LONG = "x" * 31 + "é" + "y" * 40


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# column, and (as it is sent, as it is read) of its edges
EDGES: tuple[tuple[Column, tuple[tuple[Any, Any], tuple[Any, Any]]], ...] = (
    (Column("tiny", "TINYINT"), ((-128, -128), (127, 127))),
    (Column("usmall", "SMALLINT UNSIGNED"), ((0, 0), (65_535, 65_535))),
    (Column("medium", "MEDIUMINT"), ((-(2**23), -(2**23)), (2**23 - 1, 2**23 - 1))),
    (Column("big", "BIGINT"), ((-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1))),
    (Column("ubig", "BIGINT UNSIGNED"), (("0", Decimal(0)), (MOST, Decimal(MOST)))),
    (Column("dec", "DECIMAL", 38, 10), ((LEAST, Decimal(LEAST)), ("0.5", Decimal("0.5000000000")))),
    (Column("whole", "DECIMAL", 38, 0), (("9" * 38, Decimal("9" * 38)), ("-1", Decimal(-1)))),
    (Column("wide", "DECIMAL", 65, 30), (("-1.50", "-1.50"), ("9" * 35, "9" * 35))),
    (Column("real", "FLOAT"), ((-0.0, -0.0), (1.5, 1.5))),
    (Column("double", "DOUBLE"), (("NaN", math.nan), (-0.0, -0.0))),
    (Column("flag", "BIT", 1), ((True, True), (False, False))),
    (Column("day", "DATE"), ((FIRST, date(1, 1, 1)), (LAST, date(9999, 12, 31)))),
    (
        Column("at", "DATETIME", 6),
        (
            (FIRST * MICROS, datetime(1, 1, 1)),  # noqa: DTZ001
            ((LAST + 1) * MICROS - 1, datetime(9999, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
        ),
    ),
    (
        Column("instant", "TIMESTAMP", 6),
        (
            ("1970-01-01T00:00:01Z", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            ("2038-01-19T03:14:07.499999Z", datetime(2038, 1, 19, 3, 14, 7, 499_999, tzinfo=UTC)),
        ),
    ),
    (Column("text", "VARCHAR", 200), (("trailing  ", "trailing  "), (LONG, LONG))),
    (Column("void", "VARCHAR", 200), (("", ""), ("\U0001f600" * 40, "\U0001f600" * 40))),
    (Column("blob", "BLOB"), ((coded(b"\0\xff " * 20), b"\0\xff " * 20), (coded(b""), b""))),
)


@pytest.fixture(params=["vectors", "spark"])
def writers(request: pytest.FixtureRequest, spark: SparkSession) -> DeltaMirrors:
    """Either writer."""
    return writers_of(request.param, spark)


def test_every_type_keeps_its_edges(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    columns = (Column("id", "INT"), *(column for column, _ in EDGES))
    lake = LocalLake(tmp_path, columns=columns, table_format=writers)
    low, high = ({c.name: edges[i][0] for c, edges in EDGES} for i in (0, 1))
    lowest, highest = ({c.name: edges[i][1] for c, edges in EDGES} for i in (0, 1))
    empty = dict.fromkeys(low)

    first = applied(
        lake, *(change(C, i, {"id": i, **it}) for i, it in enumerate((low, high, empty, low)))
    )
    turned = (change(U, 10, {"id": 0, **high}), change(U, 11, {"id": 2, **low}))
    second = applied(lake, *turned, change(D, 12, {"id": 3, **low}))

    wanted = [{"id": i, **it} for i, it in enumerate((highest, highest, lowest))]
    assert list(map(repr, read(lake, spark))) == list(map(repr, wanted))
    assert (first.applied, second.applied) == (4, 3)


def test_keys_of_every_kind_are_told_apart_byte_by_byte(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    columns = (
        *(Column("t", "VARCHAR", 99), Column("d", "DECIMAL", 38, 2), Column("day", "DATE")),
        *(Column("at", "DATETIME", 6), Column("b", "VARBINARY", 99), Column("n", "BIGINT")),
        Column("v", "INT"),
    )
    key = tuple(column.name for column in columns[:-1])
    lake = LocalLake(tmp_path, columns=columns, key=key, table_format=writers)
    one = {"t": "a", "d": "1.00", "day": 0, "at": 0, "b": coded(b"a"), "n": 0}
    texts = ("A", "a ", "ä", "a\u0308", "", "x" * 40, "x" * 41, "q'u`\\")
    others: list[dict[str, Any]] = [{"t": text} for text in texts]
    others += [{"d": "9" * 36 + ".99"}, {"d": "9" * 36 + ".98"}, {"d": "-1.00"}]
    others += [{"day": FIRST}, {"at": 1}, {"at": (LAST + 1) * MICROS - 1}]
    others += [{"b": coded(b"a\0")}, {"b": coded(b"\xff")}, {"n": -(2**63)}]
    rows = [one | other for other in ({}, *others)]

    applied(lake, *(change(C, i, {**r, "v": i}, key=key) for i, r in enumerate(rows)))
    odd = [change(U, 100 + i, {**r, "v": -i}, key=key) for i, r in enumerate(rows) if i % 2]
    gone = [change(D, 100 + i, {**rows[i], "v": i}, key=key) for i in (4, 8)]
    account = applied(lake, *odd, *gone)

    left = {i: -i if i % 2 else i for i in range(len(rows)) if i not in (4, 8)}
    assert sorted(one["v"] for one in read(lake, spark)) == sorted(left.values())
    assert account.applied == len(odd) + 2


def test_odd_names_of_columns_are_just_names(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    names = ("Order.Id", "a b", "q\"uo'te", "ba`ck", "SELECT", "x,;{}()=y", "é", "_act", "c0", "n")
    columns = tuple(Column(name, "VARCHAR", 40) for name in names)
    key = ("Order.Id", "ba`ck")
    lake = LocalLake(tmp_path, columns=columns, key=key, table_format=writers)
    rows = [{name: f"{i} {name}" for name in names} for i in range(3)]

    applied(lake, *(change(C, i, one, key=key) for i, one in enumerate(rows)))
    new = rows[0] | {"SELECT": "*", "a b": None}
    applied(lake, change(U, 10, new, key=key), change(D, 11, rows[1], key=key))

    assert read(lake, spark) == sorted([new, rows[2]], key=repr)


def test_only_what_is_newer_acts_and_each_change_has_its_term(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    lake = LocalLake(tmp_path, table_format=writers)
    applied(lake, *(row(C, 10 + i, i, "old") for i in range(7)))

    account = applied(
        lake,
        row(U, 5, 0, "older"),
        row(U, 11, 1, "equal"),
        snapshot_row(12, {"id": 2, "name": "same place, no live change"}),
        row(U, 30, 3, "newer"),
        row(U, 40, 3, "newest"),
        row(D, 13, 4, "old"),
        *(row(D, 31, 5, "old"), row(C, 32, 50, "re-keyed")),
        row(D, 3, 6, "old"),
        row(D, 99, 77, "never there"),
    )

    left = {0: "old", 1: "old", 2: "old", 3: "newest", 4: "old", 6: "old", 50: "re-keyed"}
    left.pop(4) if 4 not in {r["id"] for r in read(lake, spark)} else None
    assert {one["id"]: one["name"] for one in read(lake, spark)} == left
    assert account.read == 10
    assert (account.superseded, account.residual) == (1, 0)
    again = applied(lake, row(U, 40, 3, "newest"), row(D, 31, 5, "old"))
    assert again.applied == 0
    assert newest(lake).operation == "MERGE"


def test_a_delete_and_a_truncate_speak_for_their_own_shard(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    shards = ("db.t", "db.u")
    rules = (TableRule(r"db\.[tu]", "db.t"),)
    lake = LocalLake(tmp_path, rules=rules, shards=shards, table_format=writers)
    both = [row(C, 10 + i, i, s, shard=s) for i in range(3) for s in shards]
    applied(lake, *both, row(C, 80, 9, "after", shard="db.u"))

    settled = row(Op.TRUNCATE, 50, None, shard="db.u")
    account = applied(
        lake, row(D, 20, 0, "db.t"), settled, row(C, 60, 1, "new", shard="db.u"), row(U, 21, 1, "t")
    )
    late = applied(lake, row(R, 40, 2, "db.u", shard="db.u"))

    found = sorted((one["id"], one["name"]) for one in read(lake, spark))
    assert found == [(1, "new"), (1, "t"), (2, "db.t"), (9, "after")]
    assert (account.applied, late.applied, late.noop) == (4, 0, 1)


def test_a_row_moves_between_shards_whose_keys_are_unique(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    rules = (TableRule(r"db\.[tu]", "db.t", unique_across_shards=True),)
    lake = LocalLake(tmp_path, rules=rules, shards=("db.t", "db.u"), table_format=writers)

    def of(shard: str, *told: Any) -> dict[str, Any]:
        made = row(*told, shard=shard)
        return made | {"key": f'["{told[2]}"]'}

    applied(lake, of("db.t", C, 10, 1, "t"), of("db.t", C, 11, 2, "t"))
    applied(lake, of("db.t", D, 20, 1, "t"), of("db.u", C, 21, 1, "u"), of("db.u", D, 22, 2, "u"))

    assert {one["id"]: one["name"] for one in read(lake, spark)} == {1: "u", 2: "t"}


def test_added_and_widened_columns_keep_what_old_rows_mean(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    number = Column("n", "INT")
    lake = LocalLake(tmp_path, columns=(ID, number), table_format=writers)
    applied(lake, *(change(C, i, {"id": i, "n": i}) for i in range(3)))
    plain, filled = Column("plain x", "DATETIME", 6), Column("with", "VARCHAR", 9, default="dflt")

    lake.alter(ID, number, plain, at=Order(1, 1, 50))
    applied(lake, change(U, 60, {"id": 1, "n": 10, "plain x": MICROS}))
    lake.alter(ID, Column("n", "BIGINT"), plain, filled, at=Order(1, 1, 70))
    big = {"id": 2, "n": 2**40, "plain x": None, "with": None}
    applied(lake, change(U, 80, big), change(C, 81, {**big, "id": 3, "with": "w"}))

    day = datetime(1970, 1, 2)  # noqa: DTZ001
    assert read(lake, spark) == [
        {"id": 0, "n": 0, "plain x": None, "with": "dflt"},
        {"id": 1, "n": 10, "plain x": day, "with": "dflt"},
        big,
        {"id": 3, "n": 2**40, "plain x": None, "with": "w"},
    ]
    assert {one["_sluice"]["order"]["pos"] for one in lake_rows(lake)} == {0, 60, 80, 81}


def test_rows_without_provenance_are_older_than_any_change(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    lake = LocalLake(tmp_path, table_format=writers)
    spark.sql(
        f"CREATE TABLE delta.`{lake.settings.mirror('db.t')}` (id BIGINT, name STRING) USING delta"
    )
    spark.sql(
        f"INSERT INTO delta.`{lake.settings.mirror('db.t')}` "
        "VALUES (0, 'a'), (1, 'a'), (2, 'a'), (3, 'a')"
    )

    account = applied(
        lake, row(U, 10, 0, "new"), row(D, 11, 1, "a"), row(C, 12, 4, "new"), waived=ADOPTED
    )

    wanted = {0: "new", 2: "a", 3: "a", 4: "new"}
    assert {one["id"]: one["name"] for one in read(lake, spark)} == wanted
    assert account.applied == 3
    applied(lake, row(Op.TRUNCATE, 11, None))
    assert {one["id"]: one["name"] for one in read(lake, spark)} == {4: "new"}
    assert NAME.name == "name"
