"""Tests whether a real promoted server reports that it has all its predecessor wrote."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from demo.ports import free_ports
from demo.postgres import Postgres
from demo.processes import wait_until
from pipeline.model import Head
from pipeline.sources.positions import explain_missing_log
from pipeline.sources.postgres.source import PostgresSource
from tests.patience import SOON
from tests.pipeline.sources.patience import PATIENT
from tests.pipeline.sources.postgres.test_source_stack import shop_settings

pytestmark = pytest.mark.stack


def head(server: Postgres) -> Head:
    with closing(PostgresSource(shop_settings(server), "asked", limits=PATIENT)) as source:
        return source.head()


@pytest.mark.parametrize("version", ["15", "18"])
def test_what_a_promoted_server_never_had_is_told_until_it_is_started_again(
    start_postgres: Callable[..., Postgres], tmp_path: Path, version: str
) -> None:
    primary = start_postgres(version)
    primary.create_database("asked", "CREATE TABLE t (id INT PRIMARY KEY)")
    replica = primary.replica(tmp_path / "replica", *free_ports(1))
    try:
        had = head(primary)
        end = f"SELECT pg_last_wal_replay_lsn() >= '{had.position.words}'"
        wait_until(lambda: replica.execute(end) == [(True,)], SOON, "the replica")
        following = head(replica)
        primary.cut_off_replicas()
        primary.execute("INSERT INTO t VALUES (1)", database="asked")
        lost = head(primary)
        primary.kill()
        replica.promote()
        replica.execute("INSERT INTO t VALUES (2)", database="asked")
        promoted = head(replica)
        replica.restart()
        started = head(replica)
    finally:
        replica.remove()

    assert (had.parted, following.parted) == (None, None)
    assert following.identity == had.identity
    assert promoted.identity != had.identity
    assert explain_missing_log(had, promoted) is None
    assert "the promoted server left the log of its predecessor at" in (
        explain_missing_log(lost, promoted) or ""
    )
    assert started.identity == promoted.identity
    assert "does not report where" in (explain_missing_log(had, started) or "")
