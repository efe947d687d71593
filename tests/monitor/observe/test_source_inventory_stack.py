"""A real MySQL tells the service of its cascades, within the rights that the docs ask for."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from demo.mysql import MySQL
from monitor.clients import describe_source
from monitor.observe.source_inventory import SourceInventory
from monitor.store.history import CheckMemory
from monitor.store.store import ServiceStore
from pipeline.model import Missing, Shard, Table
from tests.builders.values import source_settings

pytestmark = pytest.mark.stack

NAMES = ("shop.teams", "shop.people", "shop.gone")
TEAMS, PEOPLE, GONE = (Table(name, (Shard("shop", name),)) for name in NAMES)
REFERENCE = "CONSTRAINT goes FOREIGN KEY (team) REFERENCES shop.teams (id)"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[CheckMemory]:
    with closing(ServiceStore.open(tmp_path / "s.db")) as store:
        yield store.memory


def taken_inventory(mysql: MySQL, user: str, memory: CheckMemory) -> SourceInventory:
    one = source_settings(mysql, user=user, password="sluice")
    census = SourceInventory(
        {"shop": lambda: one},
        lambda: (TEAMS, PEOPLE, GONE),
        dict,
        describe_source,
        lambda: datetime.now(UTC),
        memory,
    )
    census.ask()
    return census


def test_a_cascade_is_seen_with_select_alone_and_a_hidden_table_is_not_proven(
    start_mysql: Callable[[int], MySQL], memory: CheckMemory
) -> None:
    mysql = start_mysql(31)
    mysql.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.teams (id INT PRIMARY KEY)",
        f"CREATE TABLE shop.people (id INT PRIMARY KEY, team INT, {REFERENCE} ON DELETE CASCADE)",
        "CREATE USER 'reads'@'%' IDENTIFIED BY 'sluice'",
        "GRANT SELECT ON shop.* TO 'reads'@'%'",
        "CREATE USER 'one'@'%' IDENTIFIED BY 'sluice'",
        "GRANT SELECT ON shop.teams TO 'one'@'%'",
    )

    reads, one = taken_inventory(mysql, "reads", memory), taken_inventory(mysql, "one", memory)

    assert reads.unproven(TEAMS) == ""
    assert "shop.teams ON DELETE CASCADE (goes)" in str(reads.unproven(PEOPLE))
    assert reads.unproven(GONE) == ""  # it would be seen
    assert reads.rows("shop") == {"shop.teams": 0, "shop.people": 0}
    assert one.unproven(TEAMS) == ""
    assert isinstance(one.unproven(PEOPLE), Missing)

    mysql.execute(
        "ALTER TABLE shop.people DROP FOREIGN KEY goes",
        f"ALTER TABLE shop.people ADD {REFERENCE}",
    )

    reads.every = timedelta(0)
    reads.ask()
    assert reads.unproven(PEOPLE) == ""
