"""How long a server keeps its log, and how many rows it has."""

from datetime import timedelta

import pytest

from pipeline.model import Shard
from pipeline.sources.mysql.facts import (
    ServerFacts,
    ShardFacts,
    describe_source,
    read_log_retention,
)

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
