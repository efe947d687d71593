"""What the stand-in for canal writes is what canal writes, as far as the format's reader tells."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from demo.canal import LoggedChange, TableTypes, flat, named, simple, text
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.format import RAW
from pipeline.formats.simple_binlog import SimpleBinlog, SimpleTable
from tests.pipeline.formats.canal_writer import CanalTable

TYPES = TableTypes({"id": "bigint(20)", "name": "varchar(9)"}, ("id",))
CANAL = CanalTable("shop", "users", TYPES.types, TYPES.key)
NOW, WAS = {"id": 7, "name": "new"}, {"id": 7, "name": "old"}
AT = 1_767_225_600_000


def logged_change(kind: str, before: Any, after: Any) -> LoggedChange:
    return LoggedChange(kind, "shop", "users", AT, ((before, after),))


@pytest.mark.parametrize(
    ("change", "canal"),
    [
        pytest.param(
            logged_change("INSERT", NOW, NOW), CANAL.insert({"id": "7", "name": "new"}), id="c"
        ),
        pytest.param(
            logged_change("DELETE", WAS, WAS), CANAL.delete({"id": "7", "name": "old"}), id="d"
        ),
        pytest.param(
            logged_change("UPDATE", WAS, NOW),
            CANAL.update(({"id": "7", "name": "old"}, {"id": "7", "name": "new"})),
            id="u",
        ),
    ],
)
def test_a_flat_message_says_the_same_as_canals(change: LoggedChange, canal: bytes) -> None:
    told = json.dumps(flat(change, TYPES, 1), separators=(",", ":")).encode()

    own, theirs = (decode_one(CanalJson("UTC"), value) for value in (told, canal))

    assert own.pop("at") == datetime.fromtimestamp(AT / 1000, UTC)
    assert theirs.pop("at") is not None
    assert own == theirs


def test_a_statement_is_one_without_rows() -> None:
    made = LoggedChange("CREATE", "shop", "users", AT, sql="CREATE TABLE users (id INT)")

    (row,) = (
        CanalJson("UTC").decode(raw_batch(json.dumps(flat(made, None, 1)).encode()), {}).to_pylist()
    )

    assert (row["op"], row["shard"]) == ("ddl", "shop.users")


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("ALTER TABLE shop.users ADD COLUMN a INT", ("shop", "users")),
        ("alter table `users` add column a int", ("here", "users")),
        ("CREATE TABLE IF NOT EXISTS `shop`.`users`(id INT)", ("shop", "users")),
        ("CREATE DATABASE shop", ("here", "")),
    ],
)
def test_a_statement_names_its_table_with_or_without_the_database(
    sql: str, names: tuple[str, str]
) -> None:
    assert named(sql, "here") == names


def test_a_simple_message_holds_the_row_and_its_offset() -> None:
    told = json.dumps(simple(logged_change("UPDATE", WAS, NOW), WAS, NOW, AT * 10**6 + 3)).encode()

    row = decode_one(SimpleBinlog({".*": SimpleTable(("id",))}), told)

    assert (row["key_values"], row["log"], row["pos"]) == ('["7"]', AT, 3)
    assert json.loads(row["after"]) == {"id": "7", "name": "new"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, None),
        (-5, "-5"),
        (Decimal("1.10"), "1.10"),
        (Decimal("1E+3"), "1000"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05"),  # noqa: DTZ001
        (date(2026, 1, 2), "2026-01-02"),
        (b"\x00\xff", "\x00ÿ"),
    ],
)
def test_values_are_the_servers_texts(value: object, told: str | None) -> None:
    assert text(value) == told


def raw_batch(value: bytes) -> pa.RecordBatch:
    row = {"value": value, "topic": "t", "partition": 0, "offset": 0}
    return pa.RecordBatch.from_pylist([row], RAW)


def decode_one(form: CanalJson | SimpleBinlog, value: bytes) -> dict[str, Any]:
    """The one change of a message, without the columns that it tells."""
    rows = form.decode(raw_batch(value), {}).to_pylist()
    found: dict[str, Any] = next(row for row in rows if row["op"] != "ddl")
    return found
