"""A row has one digest: at MySQL and Postgres, in its mirror, and in Python."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from demo.mysql import MySQL
from demo.ports import free_ports
from demo.postgres import Postgres
from pipeline.changelog.table import build_app_id
from pipeline.errors import TooManyRowsError
from pipeline.model import Shard, Table
from pipeline.row_digest import (
    Bucketing,
    DigestColumn,
    Form,
    RangeDigest,
    digest_row,
    is_plain_value,
    list_keyed_rows,
    sum_buckets,
)
from pipeline.schema.decode import type_rows
from pipeline.sources.mysql.digest import value_form as mysql_form
from pipeline.sources.mysql.row_reader import MySqlRowReader
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.postgres.digest import value_form as postgres_form
from pipeline.sources.postgres.row_reader import PostgresRowReader
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.row_reader import RowReader, RowsAsked
from pipeline.tables.delta.reader import MirrorReader
from tests.builders.change_log import read_table
from tests.builders.values import source_settings

pytestmark = pytest.mark.stack
NAME = "digested"

MYSQL_COLUMNS = {
    "tiny": ("TINYINT", "-128", "127", "0"),
    "flag": ("TINYINT(1)", "1", "0", "-1"),
    "wide": ("BIGINT UNSIGNED", "0", "18446744073709551615", "9223372036854775808"),
    "padded": ("INT(6) ZEROFILL", "42", "4294967295", "0"),
    "big": ("BIGINT", "-9223372036854775808", "9223372036854775807", "0"),
    "price": ("DECIMAL(12,2)", "0", "-0.10", "9999999999.99"),
    "whole": ("DECIMAL(38,0)", "0", "-" + "9" * 38, "7"),
    "tail": ("DECIMAL(20,10)", "1.5", "0.0000000001", "-1"),
    "bit": ("BIT(1)", "b'0'", "b'1'", "b'1'"),
    "day": ("DATE", "'1582-10-15'", "'1970-01-01'", "'9999-12-30'"),
    "early": ("DATE", "'1000-01-01'", "'1582-10-14'", "'9999-12-31'"),
    "wall": ("DATETIME", "'1969-12-31 23:59:59'", "'2024-02-29 12:34:56'", "'9999-12-30 23:59:59'"),
    "wall3": (
        "DATETIME(3)",
        "'1970-01-01 00:00:00.001'",
        "'1900-02-28 23:59:59.999'",
        "'2038-01-19'",
    ),
    "wall6": (
        "DATETIME(6)",
        "'1969-12-31 23:59:59.999999'",
        "'1582-10-15'",
        "'2024-03-31 02:30:00'",
    ),
    "old": ("DATETIME(6)", "'1582-10-14 23:59:59'", "'1000-01-01'", "'9999-12-31 00:00:00'"),
    "instant": (
        "TIMESTAMP NULL",
        "'1970-01-01 00:00:01'",
        "'2024-10-27 01:30:00'",
        "'2038-01-19 03:14:07'",
    ),
    "instant6": (
        "TIMESTAMP(6) NULL",
        "'2001-02-03 04:05:06.000007'",
        "'1999-12-31 23:59:59.999999'",
        "'2024-01-01'",
    ),
    "span": ("TIME", "'-838:59:59'", "'00:00:00'", "'838:59:59'"),
    "span6": ("TIME(6)", "'-00:00:00.500000'", "'12:00:00.000001'", "'-01:00:00.25'"),
    "name": ("VARCHAR(40)", "''", "'N'", "'a|3|b'"),
    "emoji": ("TEXT CHARACTER SET utf8mb4", "'\U0001f600\u0301'", "'\u00e9'", "' '"),
    "latin": ("VARCHAR(40) CHARACTER SET latin1", "'caf\u00e9'", "'X'", "'|'"),
    "folded": ("VARCHAR(40) COLLATE utf8mb4_0900_ai_ci", "'A'", "'a'", "'\u00c4'"),
    "padchar": ("CHAR(10)", "'x  '", "''", "'  x'"),
    "word": ("ENUM('new','it''s')", "'new'", "'it''s'", "'new'"),
    "words": ("SET('a','b','c')", "'a,c'", "''", "'b'"),
    "blob": ("VARBINARY(20)", "x''", "x'00ff00'", "x'4e'"),
    "fixed": ("BINARY(4)", "x'00'", "x'0102'", "x'ff000000'"),
    "per%cent": ("VARCHAR(20)", "'%s'", "'%%'", "'50%'"),
    "b`tick": ("INT", "1", "2", "3"),
    "none": ("DATE", "'0000-00-00'", "'2026-03-00'", "'2026-02-30'"),
    "never": ("DATE NOT NULL", "'0000-00-00'", "'2024-00-00'", "'1970-01-01'"),
    "nowhen": ("DATETIME(6) NOT NULL", "'0000-00-00'", "'2026-02-30 01:02:03'", "'2026-02-28'"),
    "nostamp": (
        "TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00'",
        "'0000-00-00 00:00:00'",
        "'1970-01-01 00:00:01'",
        "'2024-10-27 01:30:00'",
    ),
    "undefined": (
        "VARCHAR(40) CHARACTER SET latin1",
        "_latin1 x'C381'",
        "_latin1 x'809F'",
        "_latin1 x'9D'",
    ),
    "latin_char": ("CHAR(9) CHARACTER SET latin1 NOT NULL", "'\u20ac '", "''", "'\u0178'"),
    "ascii": ("TEXT CHARACTER SET ascii", "'a\tb'", "x'00'", "'~'"),
    "wide2": ("VARCHAR(9) CHARACTER SET ucs2", "'\u00e9 '", "'\uffff'", "''"),
    "wide16": ("VARCHAR(9) CHARACTER SET utf16", "'\U0001f600'", "'a\u0301'", "' '"),
    "three": ("VARCHAR(9) CHARACTER SET utf8", "'\ufffd'", "'\u00e9|2|'", "'|'"),
    "odd_enum": ("ENUM('a','it''s','\u00e9','c\\\\d','N')", "'\u00e9'", "'no label'", "'c\\\\d'"),
    "latin_enum": ("ENUM('\u00e9','b') CHARACTER SET latin1", "'\u00e9'", "'b'", "'\u00e9'"),
    "odd_set": ("SET('\u00e9','x y')", "'\u00e9,x y'", "''", "'x y'"),
    "unsigned": ("DECIMAL(10,2) UNSIGNED ZEROFILL", "0", "0.10", "99999999.99"),
    "long": ("LONGTEXT", "REPEAT('\u00e9', 70000)", "''", "'\n'"),
    "blobs": ("MEDIUMBLOB", "REPEAT(x'00ff', 70000)", "''", "x'7c'"),
}
MYSQL_LEFT_OUT = {
    "float": ("FLOAT", "1.5", "0.1", "-0.0"),
    "double": ("DOUBLE", "1.5", "0.1", "-0.0"),
    "bits": ("BIT(9)", "b'1'", "b'0'", "b'111111111'"),
    "json": ("JSON", "'{}'", "'[1, 2]'", "'null'"),
    "year": ("YEAR", "0", "2024", "1901"),
    "place": ("POINT", "POINT(1,2)", "POINT(0,0)", "POINT(-1,-2)"),
    "gbk": ("VARCHAR(9) CHARACTER SET gbk", "'\u4e2d'", "'a'", "''"),
    "large": ("DECIMAL(40,10)", "1", "0.0000000001", "-1"),
    "virtual": ("INT AS (id + 1) VIRTUAL", "DEFAULT", "DEFAULT", "DEFAULT"),
    "stored": ("VARCHAR(9) AS (CONCAT(id, 'x')) STORED", "DEFAULT", "DEFAULT", "DEFAULT"),
    "outside": ("ENUM('\U0001f600','b')", "'b'", "'b'", "'b'"),
}
POSTGRES_COLUMNS = {
    "flag": ("boolean", "true", "false", "true"),
    "small": ("smallint", "-32768", "32767", "0"),
    "big": ("bigint", "-9223372036854775808", "9223372036854775807", "0"),
    "price": ("numeric(12,2)", "0", "-0.10", "9999999999.99"),
    "whole": ("numeric(38,0)", "0", "-" + "9" * 38, "7"),
    "tail": ("numeric(20,10)", "1.5", "0.0000000001", "-1"),
    "day": ("date", "'1582-10-15'", "'1970-01-01'", "'9999-12-30'"),
    "early": ("date", "'0001-01-01'", "'1582-10-14'", "'infinity'"),
    "wall": ("timestamp", "'1969-12-31 23:59:59.999999'", "'2024-02-29 12:34:56'", "'1582-10-15'"),
    "old": ("timestamp", "'1000-01-01'", "'1582-10-14 23:59:59'", "'infinity'"),
    "instant": (
        "timestamptz",
        "'2024-10-27 02:30:00+02'",
        "'1970-01-01 00:00:00+00'",
        "'2024-03-31 01:00:00.000001+00'",
    ),
    "clock": ("time", "'00:00:00'", "'23:59:59.999999'", "'24:00:00'"),
    "name": ("text", "''", "'N'", "'a|3|b'"),
    "emoji": ("text", "'\U0001f600\u0301'", "'\u00e9'", "' '"),
    "padchar": ("char(10)", "'x  '", "''", "'  x'"),
    "wordy": ("varchar(20)", "'x  '", "'X'", "'|'"),
    "id8": (
        "uuid",
        "'00000000-0000-0000-0000-000000000000'",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        "gen_random_uuid()",
    ),
    "mood": ("mood", "'sad'", "'so so'", "'sad'"),
    "blob": ("bytea", "'\\x'", "'\\x00ff00'", "'\\x4e'"),
    "per%cent": ("varchar(20)", "'%s'", "'%%'", "'50%'"),
    'q"uote': ("int", "1", "2", "3"),
    "worded": ("word", "'a  '", "''", "'\u00e9'"),
    "counted": ("counted", "7", "-1", "0"),
    "bit1": ("bit(1)", "B'0'", "B'1'", "B'1'"),
    "oid": ("oid", "0", "4294967295", "1"),
    "named": ("name", "'a'", "''", "'\u00e9'"),
    "toast": ("text", "repeat('\u00e9', 70000)", "''", "E'\\n'"),
    "stored": ('text COLLATE "C"', "'A'", "'a'", "'\u00c4'"),
}
POSTGRES_LEFT_OUT = {
    "real": ("real", "1.5", "'NaN'", "'-0'"),
    "double": ("double precision", "'Infinity'", "'-0'", "0.1"),
    "any": ("numeric", "1.50", "'NaN'", "1e-20"),
    "code": ("code", "'a'", "''", "'abc'"),
    "amount": ("amount", "1.50", "0", "-1"),
    "json": ("jsonb", "'{}'", "'[1]'", "'null'"),
    "list": ("int[]", "'{1,2}'", "'{}'", "'{NULL}'"),
    "span": ("interval", "'1 month'", "'0'", "'-1 day'"),
    "zoned": ("timetz", "'01:02:03+02'", "'00:00+00'", "'23:59:59-05'"),
    "money": ("money", "1", "0", "-1"),
    "bits": ("bit varying(9)", "B'01'", "B''", "B'1'"),
    "blank": ("bpchar", "'a '", "''", "'b'"),
    "computed": ("int GENERATED ALWAYS AS (id + 1) STORED", "DEFAULT", "DEFAULT", "DEFAULT"),
    "net": ("inet", "'10.0.0.1'", "'::1'", "'10.0.0.0/8'"),
}
POSTGRES_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'so so')",
    "CREATE DOMAIN word AS varchar(9)",
    "CREATE DOMAIN counted AS int",
    "CREATE DOMAIN code AS char(5)",
    "CREATE DOMAIN amount AS numeric(10,2)",
)


@dataclass(frozen=True)
class Digested:
    """A source's table, and the same rows in a mirror."""

    source: MySqlSource | PostgresSource
    mirror: MirrorReader
    shard: Shard
    columns: tuple[DigestColumn, ...]
    rows: pa.Table
    left_out: tuple[str, ...] = ()

    def differing(self, id_: int) -> list[str]:
        """Columns of a row whose digests are not the same three times; ``*`` is the whole row."""
        asked = {one.name: [one] for one in self.columns} | {"*": [*self.columns]}
        return [name for name, columns in asked.items() if len(self._digests(id_, columns)) != 1]

    def _digests(self, id_: int, columns: list[DigestColumn]) -> set[RangeDigest]:
        span = [(id_, id_ + 1)]
        (row,) = (row for row in self.rows.to_pylist() if row["id"] == id_)
        return {
            *self.source.digests(self.shard, "id", span, columns),
            *self.mirror.digests(self.shard, "id", span, columns),
            *self.source.id_digests(self.shard, "id", [id_], columns),
            *self.mirror.id_digests(self.shard, "id", [id_], columns),
            *(self._alone(self.source, id_, columns) if len(columns) == 1 else ()),
            *(self._alone(self.mirror, id_, columns) if len(columns) == 1 else ()),
            digest_row(columns, [row[one.name] for one in columns]),
        }

    def _alone(self, side: Any, id_: int, columns: list[DigestColumn]) -> tuple[RangeDigest, ...]:
        """The digest of one column, asked together with all others and with another row."""
        place, others = self.columns.index(columns[0]), [0, 1, 2, 3, 99]
        *found, nothing = side.column_digests(self.shard, "id", others, self.columns)
        assert {one.rows for one in nothing} == {0}
        return (found[id_][place],)


def statements(table: str, columns: Mapping[str, tuple[str, ...]], quote: str) -> list[str]:
    """A table of *columns*: three rows of their values, and one of NULLs."""
    names = [f"{quote}{name.replace(quote, 2 * quote)}{quote}" for name in columns]
    types = ", ".join(f"{n} {one[0]}" for n, one in zip(names, columns.values(), strict=True))
    made = [f"CREATE TABLE {table} (id INT PRIMARY KEY, {types})"]
    listed = ", ".join(names)
    for row in range(3):
        values = ", ".join(one[row + 1] for one in columns.values())
        made.append(f"INSERT INTO {table} (id, {listed}) VALUES ({row}, {values})")
    return [*made, f"INSERT INTO {table} (id) VALUES (3)"]


def digested(
    source: Any,
    reader: RowReader,
    form: Any,
    shard: Shard,
    home: Path,
) -> Digested:
    """The mirror as a backfill would fill it."""
    source.prepare_heartbeat()
    fence = reader.fence(0, datetime.now(UTC))
    declared = source.columns(shard)
    assert declared
    read = reader.read(fence, RowsAsked(shard, ("id",), None, None, 10_000))
    typed = type_rows(read.rows["after"], declared)
    assert not any(typed.misread.to_pylist())
    write_deltalake(str(home), typed.rows)
    pinned = read_table(home)
    forms = {one.name: form(one) for one in declared}
    columns = tuple(DigestColumn(n, own) for n, own in forms.items() if isinstance(own, Form))
    left_out = tuple(name for name, own in forms.items() if not isinstance(own, Form))
    table = Table("t", (shard,), ("id",), "id")
    mirror = MirrorReader(pinned, table, build_app_id("main"))
    return Digested(source, mirror, shard, columns, typed.rows, left_out)


@pytest.fixture(scope="module")
def mysql(server_folder: Path) -> Iterator[MySQL]:
    home, (port,) = Path(tempfile.mkdtemp(dir=server_folder, prefix="digest-")), free_ports(1)
    server = MySQL(home, port, 12)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def of_mysql(mysql: MySQL, tmp_path: Path) -> Iterator[Digested]:
    made = statements(f"{NAME}.t", MYSQL_COLUMNS | MYSQL_LEFT_OUT, "`")
    begun = (f"DROP DATABASE IF EXISTS {NAME}", f"CREATE DATABASE {NAME}")
    mysql.execute("SET sql_mode = 'ALLOW_INVALID_DATES'", *begun, *made)
    settings = source_settings(mysql, user="root")
    with closing(MySqlSource(settings)) as source, closing(MySqlRowReader(settings)) as rows:
        yield digested(source, rows, mysql_form, Shard("shop", f"{NAME}.t"), tmp_path / "m")


@pytest.fixture
def of_postgres(postgres: Postgres, tmp_path: Path) -> Iterator[Digested]:
    postgres.execute(f"DROP DATABASE IF EXISTS {NAME}")
    made = statements("t", POSTGRES_COLUMNS | POSTGRES_LEFT_OUT, '"')
    postgres.create_database(NAME, *POSTGRES_TYPES, *made)
    settings = source_settings(postgres, user="postgres", options={"database": NAME})
    with (
        closing(PostgresSource(settings, NAME)) as source,
        closing(PostgresRowReader(settings)) as rows,
    ):
        yield digested(source, rows, postgres_form, Shard("shop", "public.t"), tmp_path / "m")


def test_a_row_of_mysql_has_one_digest_everywhere(of_mysql: Digested) -> None:
    """Four rows: the edges of every type, and NULLs."""
    assert [of_mysql.differing(row) for row in range(4)] == [[], [], [], []]
    assert of_mysql.left_out == tuple(MYSQL_LEFT_OUT)


def test_modes_of_a_mysql_server_change_no_digest(mysql: MySQL, of_mysql: Digested) -> None:
    modes = "PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT"
    (before,) = mysql.execute("SELECT @@GLOBAL.sql_mode")
    mysql.execute(f"SET GLOBAL sql_mode = '{modes},TRADITIONAL'")
    of_mysql.source.session.close()
    try:
        assert [of_mysql.differing(row) for row in range(4)] == [[], [], [], []]
    finally:
        mysql.execute(f"SET GLOBAL sql_mode = '{before[0]}'")


def test_a_row_of_postgres_has_one_digest_everywhere(of_postgres: Digested) -> None:
    assert [of_postgres.differing(row) for row in range(4)] == [[], [], [], []]
    assert of_postgres.left_out == tuple(POSTGRES_LEFT_OUT)


@pytest.mark.parametrize("key", ["d", "id", "n", "c", "d0", "k", "s"])
def test_the_lowest_rows_are_listed_whatever_the_key_is_called(
    mysql: MySQL, postgres: Postgres, key: str
) -> None:
    """Their digests are in another order than their ids."""
    rows = ", ".join(f"({id_})" for id_ in range(100))
    created, filled = f"TABLE t ({key} INT PRIMARY KEY)", f"INTO t VALUES {rows}"
    made, dropped = (f"CREATE {created}", f"INSERT {filled}"), f"DROP DATABASE IF EXISTS {NAME}"
    mysql.execute(dropped, f"CREATE DATABASE {NAME}", f"USE {NAME}", *made)
    postgres.execute(dropped)
    postgres.create_database(NAME, *made)
    columns, lowest = (DigestColumn(key, Form.INTEGER),), [*range(10)]
    with (
        closing(MySqlSource(source_settings(mysql, user="root"))) as first,
        closing(PostgresSource(source_settings(postgres, user="postgres"), NAME)) as second,
    ):
        for source, name in ((first, f"{NAME}.t"), (second, "public.t")):
            shard = Shard("shop", name)
            listed = source.row_digests(shard, key, (0, 100), columns, 10)
            each = source.id_digests(shard, key, lowest, columns)
            assert listed == tuple(zip(lowest, [one.sum for one in each], strict=True))
            assert source.ids(shard, key, (0, 100), 10) == (*lowest,)


KEYS = {
    "mysql": [
        ("b`tick", "tiny"),
        ("name",),
        ("folded", "word"),
        ("price",),
        ("wide",),
        ("never", "nowhen"),
        ("fixed", "blob"),
        ("undefined", "padchar"),
        ("undefined",),
        ("span6", "instant6"),
    ],
    "postgres": [
        ('q"uote', "small"),
        ("name",),
        ("mood", "padchar"),
        ("price",),
        ("id8",),
        ("day", "instant"),
        ("blob",),
    ],
}


PLAIN = {'q"uote', "small", "undefined", "name", "mood", "padchar", "id8"}
"""Columns whose values are integers or texts: rows are found by them."""


def grouped(one: Digested, key: tuple[str, ...]) -> list[Any]:
    """What source, mirror and Python say of the rows by *key*: all three must be equal."""
    forms = {column.name: column for column in one.columns}
    by = Bucketing(tuple(forms[name] for name in key), 4)
    rows = list_keyed_rows(one.rows.to_pylist(), by, one.columns)
    sums = [side.bucket_digests(one.shard, by, one.columns) for side in (one.source, one.mirror)]
    chosen = sorted({by.bucket_of(row.key) for row in rows})[:2]
    expected = {(r.key, r.digest) for r in rows if by.bucket_of(r.key) in chosen}
    asked = (one.shard, by, one.columns, chosen, 100)
    found = [side.bucket_rows(*asked) for side in (one.source, one.mirror)]
    assert found[0]
    assert all(row.name for side in found for row in side)
    listed = [{(row.key, row.digest) for row in side} for side in found]
    keys = {row.key for row in rows if by.bucket_of(row.key) in chosen[:1]}
    expected_columns = {
        (row.key, tuple(digest_row([c], [raw[c.name]]).sum for c in one.columns))
        for row, raw in zip(rows, one.rows.to_pylist(), strict=True)
        if row.key in keys
    }
    for side in (one.source, one.mirror):
        each = side.keyed_columns(one.shard, by, one.columns, keys, 100)
        assert {(row.key, row.columns) for row in each} == expected_columns
    values = {
        row.key: tuple(raw[name] for name in key)
        for row, raw in zip(rows, one.rows.to_pylist(), strict=True)
    }
    plain = {k: own for k, own in values.items() if all(map(is_plain_value, own))}
    assert plain or not {*key} & PLAIN
    for side in (one.source, one.mirror):
        there = {
            (row.key, row.digest) for row in side.rows_by_key(one.shard, by, one.columns, plain)
        }
        assert there == {(row.key, row.digest) for row in rows if row.key in plain}
    return [sums[0] == sums[1] == sum_buckets(rows, by), listed == [expected] * 2]


@pytest.mark.parametrize("key", KEYS["mysql"], ids="-".join)
def test_mysql_and_its_mirror_agree_on_the_buckets_of_any_key(
    of_mysql: Digested, key: tuple[str, ...]
) -> None:
    assert grouped(of_mysql, key) == [True, True]


@pytest.mark.parametrize("key", KEYS["postgres"], ids="-".join)
def test_postgres_and_its_mirror_agree_on_the_buckets_of_any_key(
    of_postgres: Digested, key: tuple[str, ...]
) -> None:
    assert grouped(of_postgres, key) == [True, True]


def test_a_table_with_more_rows_than_the_limits_allow_is_not_scanned(of_mysql: Digested) -> None:
    of_mysql.source.limits = replace(of_mysql.source.limits, rows=1)
    by = Bucketing(of_mysql.columns[:1], 4)

    with pytest.raises(TooManyRowsError, match=r"limits\.rows is 1"):
        of_mysql.source.bucket_digests(of_mysql.shard, by, of_mysql.columns)


RELATIONS = (
    "CREATE TABLE parent (id int PRIMARY KEY, v text)",
    "CREATE TABLE child (w text) INHERITS (parent)",
    "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (9)",
    "INSERT INTO root VALUES (1, 'caf\u00e9'), (2, NULL)",
)


@pytest.mark.parametrize(
    ("encoding", "compared"),
    [("UTF8", ["id", "v"]), ("LATIN1", ["id", "v"]), ("SQL_ASCII", ["id"])],
)
def test_a_partitioned_table_is_compared_in_any_encoding_that_is_one(
    postgres: Postgres, tmp_path: Path, encoding: str, compared: list[str]
) -> None:
    """And a table that others inherit from is not: its statements return their rows, too."""
    name = f"in_{encoding.lower()}"
    options = f"ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres.execute(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} {options}")
    postgres.execute("SET client_encoding = 'UTF8'", *RELATIONS, database=name)
    settings = source_settings(postgres, user="postgres", options={"database": name})
    with (
        closing(PostgresSource(settings, name)) as source,
        closing(PostgresRowReader(settings)) as rows,
    ):
        found = digested(source, rows, postgres_form, Shard("shop", "public.root"), tmp_path / "m")
        assert [one.name for one in found.columns] == compared
        assert [found.differing(id_) for id_ in (1, 2)] == [[], []]
        parent = source.columns(Shard("shop", "public.parent"))
        reasons = {one.name: postgres_form(one) for one in parent}
    assert set(reasons) == {"id", "v"}
    assert all("inherit" in why for why in reasons.values())
