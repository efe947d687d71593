"""The same rows come to the same tallies in MySQL, in Postgres, in a mirror, and one by one."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from demo.mysql import MySQL
from demo.postgres import Postgres
from demo.servers import Servers
from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan, add_up
from pipeline.errors import ProofError, TooManyRowsError
from pipeline.model import Shard, Table
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.source import Limits
from pipeline.tables.delta.reader import MirrorReader
from tests.builders.change_log import read_table
from tests.builders.values import source_settings

pytestmark = pytest.mark.stack

M, P = Shard("shop", "tallied.o"), Shard("shop", "public.o")
NIGHT = datetime(2026, 3, 2)  # noqa: DTZ001  - a wall's
SECOND = timedelta(seconds=1)
FIELDS = (AggregatedColumn("n"), AggregatedColumn("price"), AggregatedColumn("na%me", text=True))
COLUMNS = "(id INT PRIMARY KEY, made {0}, placed {1}, day DATE, n BIGINT, price DECIMAL(12,2), "
ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "made": NIGHT + SECOND * (number - 20) / 2,
        "placed": (NIGHT + SECOND * (number - 20)).replace(tzinfo=UTC),
        "day": date(2026, 3, 1) if number < 20 else date(2026, 3, 2),
        "n": None if number == 7 else (-1) ** number * 2**61,
        "price": Decimal(number * 33 - 400) / 100,
        "na%me": [None, "", "a", "é", "漢字 🙂", "x" * 5000][number % 6],
    }
    for number in range(1, 41)
]
PLACES = "(%s, %s, %s, %s, %s, %s, %s)"
SPANS: dict[str, Sequence[TimeSpan]] = {
    "made": [(NIGHT - SECOND * 5, NIGHT), (NIGHT, NIGHT + SECOND * 60), (NIGHT, NIGHT)],
    "placed": [
        (NIGHT.replace(tzinfo=UTC) - SECOND * 5, NIGHT.replace(tzinfo=UTC)),
        (NIGHT.replace(tzinfo=UTC), NIGHT.replace(tzinfo=UTC) + SECOND * 60),
    ],
    "day": [(date(2026, 3, n), date(2026, 3, n + 1)) for n in (1, 2, 3)],
}


@pytest.fixture(scope="module")
def in_mysql(servers: Servers) -> MySQL:
    mysql = servers.mysql
    mysql.execute("DROP DATABASE IF EXISTS tallied", "CREATE DATABASE tallied")
    times = COLUMNS.format("DATETIME(6)", "TIMESTAMP(6)")
    mysql.execute(f"CREATE TABLE tallied.o {times} `na%me` TEXT, KEY (made), j JSON, f DOUBLE)")
    named = "INSERT INTO tallied.o (id, made, placed, day, n, price, `na%%me`) VALUES "
    rows = [{**row, "placed": row["placed"].replace(tzinfo=None)} for row in ROWS]
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for row in rows:
            cursor.execute(named + PLACES, tuple(row.values()))
        connection.commit()
    mysql.execute("ANALYZE TABLE tallied.o")
    return mysql


@pytest.fixture(scope="module")
def in_postgres(postgres: Postgres) -> Postgres:
    times = COLUMNS.format("timestamp", "timestamptz")
    postgres.create_database("tallied", f'CREATE TABLE o {times} "na%me" text, f float8)')
    postgres.execute("CREATE TABLE owned (day DATE, n OID)", database="tallied")
    postgres.execute("INSERT INTO owned VALUES ('2026-03-01', 4294967295)", database="tallied")
    with postgres.connect("tallied") as connection, connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO o VALUES {PLACES}", [[*row.values()] for row in ROWS])
        connection.commit()
    postgres.execute("ANALYZE o", database="tallied")
    return postgres


def mysql_source(mysql: MySQL, **limits: Any) -> MySqlSource:
    told = source_settings(mysql, password="sluice")
    return MySqlSource(told, Limits(**limits))


def write_mirror(folder: Path) -> MirrorReader:
    rows = pa.Table.from_pylist(ROWS).cast(
        pa.schema(
            [
                ("id", pa.int32()),
                ("made", pa.timestamp("us")),
                ("placed", pa.timestamp("us", "UTC")),
                ("day", pa.date32()),
                ("n", pa.int64()),
                ("price", pa.decimal128(12, 2)),
                ("na%me", pa.string()),
            ]
        )
    )
    write_deltalake(str(folder), rows)
    return MirrorReader(read_table(folder), Table("o", (M,), ("id",)), "sluice:main")


def one_by_one(column: str) -> tuple[RangeAggregate, ...]:
    return tuple(add_up(ROWS, column, span, FIELDS) for span in SPANS[column])


@pytest.mark.parametrize("column", SPANS)
def test_mysql_a_mirror_and_rows_one_by_one_agree(
    in_mysql: MySQL, tmp_path: Path, column: str
) -> None:
    with closing(mysql_source(in_mysql)) as shop:
        asked = shop.tallies(M, column, SPANS[column], FIELDS)

    assert asked == one_by_one(column)
    assert {M: asked} == write_mirror(tmp_path).tallies([M], column, SPANS[column], FIELDS)
    assert sum(one.rows for one in asked) > 10


@pytest.mark.parametrize("column", SPANS)
def test_postgres_and_rows_one_by_one_agree(in_postgres: Postgres, column: str) -> None:
    told = source_settings(in_postgres, password="sluice")
    with closing(PostgresSource(told, "tallied")) as shop:
        assert shop.tallies(P, column, SPANS[column], FIELDS) == one_by_one(column)


@pytest.mark.parametrize(
    ("column", "field", "told"),
    [
        pytest.param(
            "gone", AggregatedColumn("n"), "no column 'gone'; it has id, made", id="absent"
        ),
        pytest.param("n", AggregatedColumn("n"), "is no date or time", id="no date"),
        pytest.param(
            "day", AggregatedColumn("f"), "is neither an integer nor a decimal", id="inexact"
        ),
        pytest.param("day", AggregatedColumn("n", text=True), "is no text", id="no text"),
    ],
)
def test_what_is_not_added_up_is_said(
    in_mysql: MySQL, in_postgres: Postgres, column: str, field: AggregatedColumn, told: str
) -> None:
    postgres = source_settings(in_postgres, password="sluice")
    for shop, shard in ((mysql_source(in_mysql), M), (PostgresSource(postgres, "tallied"), P)):
        with closing(shop), pytest.raises(ProofError, match=told):
            shop.tallies(shard, column, [(date(2026, 3, 1), date(2026, 3, 2))], [field])


def test_a_span_that_would_read_too_much_is_refused(in_mysql: MySQL) -> None:
    with closing(mysql_source(in_mysql, rows=10)) as shop:
        assert shop.tallies(M, "made", [(NIGHT, NIGHT + SECOND)], ())[0].rows == 2
        with pytest.raises(TooManyRowsError):
            shop.tallies(M, "day", SPANS["day"], ())


def test_a_span_of_few_rows_is_refused_where_all_are_read_to_find_them(
    in_postgres: Postgres,
) -> None:
    told, second = (
        source_settings(in_postgres, password="sluice"),
        [(NIGHT, NIGHT)],
    )
    with closing(PostgresSource(told, "tallied", limits=Limits(rows=10))) as shop:
        with pytest.raises(TooManyRowsError, match="about 40 rows"):
            shop.tallies(P, "made", second, ())
        in_postgres.execute("CREATE INDEX ON o (made)", database="tallied")
        in_postgres.execute(
            "INSERT INTO o (id) SELECT generate_series(100, 9000)", database="tallied"
        )
        in_postgres.execute("ANALYZE o", database="tallied")
        assert shop.tallies(P, "made", second, ())[0].rows == 0


def test_a_day_that_does_not_exist_belongs_to_none_that_does(in_mysql: MySQL) -> None:
    in_mysql.execute("CREATE TABLE tallied.z (id INT PRIMARY KEY, day DATE, made DATETIME)")
    with in_mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for number, day in enumerate(("2026-02-28", "2026-03-00", "2026-03-01"), start=1):
            cursor.execute("INSERT INTO tallied.z VALUES (%s, %s, %s)", (number, day, day))
        connection.commit()
    zero, days = Shard("shop", "tallied.z"), [(date(2026, 2, 28), date(2026, 3, 1))]
    walls = [(NIGHT - SECOND * 86400 * 2, NIGHT - SECOND * 86400)]

    with closing(mysql_source(in_mysql)) as shop:
        assert shop.tallies(zero, "day", days, ())[0].rows == 1
        assert shop.tallies(zero, "made", walls, ())[0].rows == 1


def test_oids_are_added_up(in_postgres: Postgres) -> None:
    told = source_settings(in_postgres, password="sluice")
    with closing(PostgresSource(told, "tallied")) as shop:
        owned, days = Shard("shop", "public.owned"), [(date(2026, 3, 1), date(2026, 3, 2))]
        assert shop.tallies(owned, "day", days, [AggregatedColumn("n")])[0].sums == (
            Decimal(2**32 - 1),
        )
