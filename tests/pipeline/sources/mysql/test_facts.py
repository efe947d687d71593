"""How long a server keeps its log, and how many rows it has."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import pytest

from pipeline.errors import ConfigError
from pipeline.model import Shard
from pipeline.sources.mysql.facts import (
    ServerFacts,
    ShardFacts,
    describe_source,
    read_log_facts,
    read_log_retention,
)
from pipeline.sources.mysql.session import Row, Session

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        pytest.param({"binlog_expire_logs_seconds": "3600"}, HOUR, id="seconds"),
        pytest.param({"expire_logs_days": "1"}, DAY, id="days, as older servers have them"),
        pytest.param({"expire_logs_days": "0.5"}, DAY / 2, id="parts of a day, as MariaDB"),
        pytest.param({"binlog_expire_logs_seconds": "0"}, None, id="never"),
        pytest.param(
            {"binlog_expire_logs_seconds": "3600", "binlog_expire_logs_auto_purge": "OFF"},
            None,
            id="a limit that nobody enforces",
        ),
    ],
)
def test_a_server_keeps_its_log_for_as_long_as_it_says(
    variables: dict[str, str], kept: timedelta | None
) -> None:
    assert read_log_retention(variables) == kept


def test_about_how_many_rows_a_table_has_is_told_where_the_server_knows() -> None:
    server = ServerFacts((8, 0), mariadb=False, grants=(), variables={})
    shards = (ShardFacts(Shard("shop", "a.b"), rows=0), ShardFacts(Shard("shop", "a.c")))

    assert describe_source(server, shards, ["a.b", "a.c"]).rows == {"a.b": 0}


@dataclass(eq=False)
class Asked:
    """A server that has the rows of *known* statements and refuses others about replicas."""

    mariadb: bool
    version: tuple[int, int]
    known: dict[str, list[Row]] = field(default_factory=dict)

    def ask(self, statement: str, *_: object) -> list[Row]:
        if "SLAVE" in statement or "REPLICA" in statement:
            if statement not in self.known:
                raise ConfigError("access denied")
            return self.known[statement]
        return []


@pytest.mark.parametrize(
    ("asked", "replica"),
    [
        pytest.param(
            Asked(True, (10, 11), {"SHOW ALL SLAVES STATUS": [{"connection_name": "east"}]}),
            True,
            id="MariaDB, by a connection with a name",
        ),
        pytest.param(Asked(True, (10, 11), {"SHOW ALL SLAVES STATUS": []}), False, id="no replica"),
        pytest.param(Asked(True, (10, 11)), None, id="without the right"),
        pytest.param(Asked(False, (8, 0), {"SHOW SLAVE STATUS": [{}]}), True, id="MySQL 8.0"),
        pytest.param(Asked(False, (8, 4), {"SHOW REPLICA STATUS": [{}]}), True, id="MySQL 8.4"),
    ],
)
def test_a_server_is_asked_for_all_connections_that_it_replicates_by(
    asked: Asked, replica: bool | None
) -> None:
    assert read_log_facts(cast(Session, asked), ["binlog_format"]).replica is replica
