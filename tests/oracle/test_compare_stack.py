"""The source side of the oracle, on a real server whose rows a faithful copy holds."""

from collections.abc import Iterator, Mapping
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from demo.mysql import MySQL
from demo.oracle.compare import Diff, compare, mirror_path
from demo.ports import free_ports
from demo.shop.ledger import Ledger
from demo.shop.link import Address
from demo.shop.schema import MIRRORS
from demo.shop.workload import Shop, Workload

pytestmark = pytest.mark.stack

TYPES = {
    "id": pa.int64(),
    "order_id": pa.int64(),
    "line": pa.int32(),
    "number": pa.int64(),
    "user_id": pa.int64(),
    "order_number": pa.int64(),
    "points": pa.int32(),
    "quantity": pa.int32(),
    "born": pa.date32(),
    "due": pa.date32(),
    "active": pa.bool_(),
    "gift": pa.bool_(),
    "approved": pa.bool_(),
    "joined": pa.timestamp("us"),
    "placed": pa.timestamp("us"),
    "paid": pa.timestamp("us"),
    "booked": pa.timestamp("us"),
    "changed": pa.timestamp("us", "UTC"),
    "created": pa.timestamp("us", "UTC"),
    "settled": pa.timestamp("us", "UTC"),
    "total": pa.decimal128(12, 2),
    "price": pa.decimal128(12, 4),
    "amount": pa.decimal128(12, 4),
    "rate": pa.decimal128(38, 10),
    "reference": pa.decimal128(20, 0),
    "mask": pa.binary(),
    "receipt": pa.binary(),
    "digest": pa.binary(),
    "open_for": pa.int64(),
    "vintage": pa.int32(),
    "attempts": pa.int32(),
    "score": pa.float64(),
    "ratio": pa.float32(),
    "touched": pa.int64(),
    "_sluice": pa.struct([("shard", pa.string())]),
}


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySQL]:
    server = MySQL(tmp_path_factory.mktemp("mysql"), free_ports(1)[0])
    server.start()
    yield server
    server.stop()


@pytest.fixture
def lake(mysql: MySQL, tmp_path: Path) -> str:
    """A shop, and mirrors made of it by the client's own idea of MySQL's types."""
    address = Address(mysql.host, mysql.port)
    Shop(address).create()
    ledger = Ledger(tmp_path / "ledger.jsonl")
    Workload(address, ledger, seed=2).fill(600)
    for mirror, shards in MIRRORS.items():
        rows = [row for shard in shards for row in copied(mysql, shard)]
        schema = pa.schema([(name, TYPES.get(name, pa.string())) for name in rows[0]])
        path = mirror_path(str(tmp_path), mirror)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_deltalake(path, pa.Table.from_pylist(rows, schema=schema))
    return str(tmp_path)


def copied(mysql: MySQL, shard: str) -> list[dict[str, Any]]:
    """Read *shard* as the client library reads it, and bring its values to the mirror's types."""
    with mysql.connect(init_command="SET time_zone = '+00:00'") as link, link.cursor() as cursor:
        exact = ", ratio * 1e0 AS ratio_" if shard == "shop.payments" else ""
        cursor.execute(f"SELECT *{exact} FROM {shard}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
    return [
        {name: typed(row, name) for name in row if name != "ratio_"} | sluice(shard) for row in rows
    ]


def sluice(shard: str) -> dict[str, Any]:
    return {"_sluice": {"shard": shard}}


def typed(row: Mapping[str, Any], name: str) -> Any:
    """Bring one value to the type that the mirror has for it."""
    value = row[name]
    if name == "ratio":
        return row["ratio_"]
    if name in {"active", "gift", "approved"} and value is not None:
        return value == b"\x01"
    if name in {"changed", "created", "settled"} and value is not None:
        return value.replace(tzinfo=UTC)
    if name == "reference" and value is not None:
        return Decimal(value)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value


def judged(mysql: MySQL, lake: str) -> dict[str, Diff]:
    return compare(Address(mysql.host, mysql.port), lake)


def test_a_faithful_copy_has_no_findings(mysql: MySQL, lake: str) -> None:
    diffs = judged(mysql, lake)

    assert {name: str(diff) for name, diff in diffs.items() if not diff.clean} == {}
    assert all(diff.rows > 50 for diff in diffs.values())


CHANGES = {
    "amount": "0.0001 + amount / 2",
    "rate": "0.0000000001 + rate / 2",
    "paid": "'2020-02-02 02:02:02.000001'",
    "booked": "'2020-02-02 02:02:02'",
    "created": "'2020-02-02 02:02:02'",
    "settled": "'2020-02-02 02:02:02.002'",
    "detail": """'{"a": [1, "2"]}'""",
    "method": "'voucher'",
    "marks": "'fraud,test'",
    "approved": "NOT approved",
    "mask": "mask ^ 257",
    "receipt": "CONCAT(receipt, 'x')",
    "digest": "'a new digest'",
    "reference": "reference ^ 1",
    "memo": "CONCAT(memo, ' ')",
    "open_for": "'-00:00:01'",
    "due": "'2001-01-01'",
    "vintage": "1999",
    "attempts": "attempts + 1",
    "score": "0.1 + 0.2",
    "ratio": "0.125 + ratio / 2",
}


def test_each_harm_done_at_the_source_is_found(mysql: MySQL, lake: str) -> None:
    first = "WHERE {0} IS NOT NULL ORDER BY id LIMIT 1"
    mysql.execute(
        "INSERT INTO shop_01.orders_01 (number, total, placed) VALUES (1, 1, NOW())",
        "DELETE FROM shop.order_items ORDER BY order_id LIMIT 1",
        "UPDATE shop.users SET touched = 1000000 ORDER BY id LIMIT 1",
        *(
            f"UPDATE shop.payments SET {column} = {value} {first.format(column)}"
            for column, value in CHANGES.items()
        ),
    )

    diffs = judged(mysql, lake)

    findings = {
        (mirror, finding)
        for mirror, diff in diffs.items()
        for finding, count in diff.counts.items()
        if count
    }
    assert findings == {
        ("shop.orders", "lost"),
        ("shop.order_items", "ghost"),
        ("shop.users", "regressed"),
        ("shop.payments", "changed"),
    }
    assert {value.column for value in diffs["shop.payments"].changed} == set(CHANGES)
