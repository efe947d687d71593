"""`sluice compare` against a real MySQL whose rows change, and a mirror that follows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from demo.servers import Servers
from monitor.__main__ import sluice
from tests.pipeline.backfill.live_backfills import writing
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
TABLE = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2), x DOUBLE)"
CONFIG = """
lake: {lake}
kafka: {kafka}
sources:
  - name: {name}
    host: {host}
    port: {port}
    user: sluice
    password: {{file: {password}}}
    prefix: {name}
    follow_collector: false
    collector: {{url: {connect}, connector: {name}}}
readiness: {{heartbeat_age: 40s}}
"""


@pytest.fixture
def pipe(servers: Servers, spark: SparkSession, tmp_path: Path) -> Iterator[Pipe]:
    """A table of 400 rows, all of them in its mirror."""
    del spark  # the lane takes up the session that is there
    made = Pipe(servers, tmp_path / "compared", "compared")
    rows = ",".join(f"({n}, 'name {n}', {n}.25, {n})" for n in range(1, 401))
    made.sql(TABLE, f"INSERT INTO DB.t VALUES {rows}")
    made.start()
    made.catch_up()
    yield made
    made.end()


def compare(pipe: Pipe) -> tuple[int, dict[str, Any]]:
    """Exit status and answer of the verb."""
    path, password = pipe.home / "sluice.yaml", pipe.home / "password"
    password.write_text("sluice", encoding="utf-8")
    password.chmod(0o600)
    text = CONFIG.format(
        lake=pipe.home,
        kafka=pipe.servers.kafka.bootstrap,
        name=pipe.name,
        host=pipe.mysql.host,
        port=pipe.mysql.port,
        connect=pipe.servers.connect.url,
        password=password,
    )
    path.write_text(text, encoding="utf-8")
    words = ["compare", f"{pipe.name}.t", "--config", str(path), "--json"]
    ended = CliRunner().invoke(sluice, words)
    return ended.exit_code, json.loads(ended.stdout)


def change(pipe: Pipe, number: int, waived: frozenset[str] = frozenset()) -> None:
    """Change rows that are right, and let the mirror follow; as a service would."""
    pipe.sql(
        f"UPDATE DB.t SET name = 'now {number}' WHERE id = {number % 200 + 1}",
        f"UPDATE DB.t SET price = price + 1 WHERE id BETWEEN {number % 40} AND {number % 40 + 9}",
        f"INSERT INTO DB.t VALUES ({1000 + number}, 'new', 1, 1)",
        f"DELETE FROM DB.t WHERE id = {990 + number}",
    )
    pipe.round(waived)


def delete_in_mirror(pipe: Pipe, id_: int) -> str:
    """As another writer does; what somebody waives, so that merges go on."""
    table = DeltaTable(pipe.lane.runner.settings.mirror(pipe.named("t")))
    assert table.delete(f"id = {id_}")["num_deleted_rows"] == 1
    return f"foreign_write:{pipe.named('t')}:{table.version()}"


def test_exactly_the_wrong_rows_are_named_while_others_change(pipe: Pipe) -> None:
    with writing(lambda number: change(pipe, number), pause=0.3):
        status, equal = compare(pipe)
    assert (status, equal["outcome"], equal["differences"]) == (0, "equal", [])
    (left,) = equal["not_compared"].values()
    assert left == {"x": "systems print the same number differently"}

    pipe.sql("SET sql_log_bin = 0", "UPDATE DB.t SET price = 0.5, x = 7 WHERE id = 250")
    waived = frozenset({delete_in_mirror(pipe, 300)})
    with writing(lambda number: change(pipe, number + 1_000, waived), pause=0.3):
        status, found = compare(pipe)

    shard = f"{pipe.name}/{pipe.name}.t"
    assert (status, found["outcome"], found["undecided"]) == (1, "different", [])
    assert found["differences"] == [
        {"shard": shard, "id": 250, "what": "different", "columns": ["price"]},
        {"shard": shard, "id": 300, "what": "missing", "columns": []},
    ]
