"""A record that the broker refuses as too large, in the middle of a transaction (F140)."""

from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from demo.processes import wait_until
from tests.pipeline.live import PATIENCE, Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
TABLES = ("t", "u", "v")
ROWS, REFUSED = 1_000, 500
LARGE = 3 * 2**20
LIMIT = str(16 * 2**20)


def test_f140_rows_behind_a_refused_record_land_by_themselves_once_the_limit_is_raised(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe("refused", connector={"producer.override.max.request.size": LIMIT})
    for table in TABLES:
        p.sql(f"CREATE TABLE DB.{table} (id INT PRIMARY KEY, name LONGTEXT)")
        p.sql(f"INSERT INTO DB.{table} VALUES (0, 'first'), (1, 'goes')")
    p.start()
    p.catch_up()
    write(p)
    wait_until(lambda: failed(p), PATIENCE, "the failure of the task")
    before = count_landed(p)
    fence = p.round()
    while p.landed[-1].batch is not None:
        p.round()
    passed, early = count_landed(p) - before, p.lane.checkpoint.covers(fence)

    raise_limit(p)
    p.servers.connect.revive(p.name)
    p.catch_up()

    behind = ROWS - REFUSED
    assert passed > behind, "little passed behind the refused record: the test shows nothing"
    assert p.landed[-1].gaps == ()
    assert not early
    assert [hold for one in p.landed for hold in one.holds] == []
    assert [one.hold for one in p.applied if one.hold is not None] == []
    assert not p.lane.checkpoint.gaps
    for table in TABLES:
        mirror, source = p.mirror(table), p.source_pairs(table)
        assert len(mirror) == len(source)
        assert {row["id"]: row["name"] for row in mirror} == source


def write(p: Pipe) -> None:
    """Change three tables in one transaction, and some of the same rows after it."""
    with p.mysql.connect(autocommit=False) as link, link.cursor() as cursor:
        for number in range(2, ROWS + 2):
            large = number == REFUSED
            table = TABLES[0] if large else TABLES[number % len(TABLES)]
            name = "x" * LARGE if large else f"row {number}"
            cursor.execute(f"INSERT INTO {p.name}.{table} VALUES (%s, %s)", (number, name))
        for table in TABLES:
            cursor.execute(f"DELETE FROM {p.name}.{table} WHERE id = 1")
        link.commit()


def failed(p: Pipe) -> bool:
    return any(task["state"] == "FAILED" for task in p.servers.connect.status(p.name)["tasks"])


def count_landed(p: Pipe) -> int:
    """Rows of the change log."""
    path = f"{p.home}/changes"
    return p.session.read.format("delta").load(path).where("op IN ('c', 'u', 'd')").count()


def raise_limit(p: Pipe) -> None:
    admin = KafkaAdminClient(bootstrap_servers=p.servers.kafka.bootstrap)
    topics = [f"{p.name}.{p.name}.{table}" for table in TABLES]
    settings = {"max.message.bytes": LIMIT}
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings) for topic in topics]
    )
    admin.close()
