"""The toy's rows in copies of every kind, with the service as a process that is killed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg.errors import UndefinedTable
from redis import Redis as Client

from demo.ports import free_ports
from demo.postgres import Postgres
from demo.processes import wait_until
from demo.redis import Redis
from tests.toy.copy import FileCopy
from tests.toy.stand import LINES, SOON, TABLE, Stand, now, without_kafka

COPIES = """
copies:
  diary: {{kind: tests.toy.copy, tables: "shop.*", path: {file}}}
  cache: {{kind: redis, tables: shop.orders, host: 127.0.0.1, port: {cache}}}
  serving:
    {{kind: postgres, tables: shop.orders, host: 127.0.0.1, port: {port}, database: {database},
      user: postgres, patience: PT10S}}
alerts:
  routes: [{{kinds: [service], hold: PT10S, keep: PT5S}}]
"""
KEPT = 'SELECT id, name FROM "shop"."orders"'

pytestmark = [pytest.mark.stack, pytest.mark.spark]


class Copies:
    """What each copy holds, by id."""

    def __init__(self, stand: Stand, postgres: Postgres, redis: Redis, file: Path) -> None:
        self.stand, self.postgres, self.redis, self.file = stand, postgres, redis, file

    def diary(self) -> dict[int, dict[str, Any]]:
        rows = FileCopy(str(self.file)).rows(TABLE).values()
        return {int(one["id"]): {"id": int(one["id"]), "name": one["name"]} for one in rows}

    def serving(self) -> dict[int, dict[str, Any]]:
        try:
            rows = self.postgres.execute(KEPT, database="serving")
        except UndefinedTable:
            return {}
        return {id_: {"id": id_, "name": name} for id_, name in rows}

    def cache(self) -> dict[int, dict[str, Any]]:
        with Client(port=self.redis.port, decode_responses=True) as client:
            keys: Any = client.keys("sluice:shop.orders:*")
            rows: list[Any] = [client.hgetall(key) for key in keys]
        return {int(one["id"]): {"id": int(one["id"]), "name": one["name"]} for one in rows}

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """All of Postgres stands still: who asks is not answered, nor refused."""
        server = self.postgres.daemon.process
        assert server is not None
        stopped = [server]
        try:
            server.hold()  # it starts no more
            for one in self.postgres.children():
                stopped.append(one)
                one.signal(signal.SIGSTOP)
            yield
        finally:
            for one in stopped:
                one.signal(signal.SIGCONT)

    def hold(self, what: dict[int, dict[str, Any]]) -> bool:
        return self.stand.mirrored() == self.diary() == self.serving() == self.cache() == what


@pytest.fixture
def copies(server_folder: Path, start_postgres: Any) -> Iterator[Copies]:
    postgres, file = start_postgres("15"), server_folder / "toy_copies" / "away" / "copy.json"
    postgres.execute("CREATE DATABASE serving")
    redis = Redis(server_folder / "toy_redis", free_ports(1)[0])
    redis.start()
    told = COPIES.format(file=file, port=postgres.port, database="serving", cache=redis.port)
    try:
        with without_kafka(server_folder / "toy_copies", {LINES: f"{LINES}{told}"}) as stand:
            yield Copies(stand, postgres, redis, file)
    finally:
        redis.stop()


def test_copies_are_their_mirrors_in_the_end_whoever_is_killed(copies: Copies) -> None:
    stand, database = copies.stand, copies.stand.database
    database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(1, 101)))
    assert stand.ready(now())
    wait_until(
        lambda: "copy:diary" in incident_subjects(stand), SOON, "an incident of a copy that is down"
    )
    assert "copy:serving" not in incident_subjects(stand)

    copies.file.parent.mkdir()
    wait_until(lambda: copies.hold(database.rows(TABLE)), SOON, "all copies")
    for round_ in range(2):
        database.put(TABLE, *({"id": n, "name": f"{round_}.{n}"} for n in range(50, 130)))
        database.delete(TABLE, round_ + 1)
        stand.kill()
        if round_:
            for server in (copies.postgres, copies.redis):
                server.kill()
                server.start()
        stand.revive()
    with copies.hanging():
        database.put(TABLE, {"id": 7, "name": "while it hung"})
        cut = now()
        assert stand.ready(cut)
        wait_until(
            lambda: "copy:serving" in incident_subjects(stand),
            SOON,
            "an incident of one that hangs",
        )
        assert stand.ask(cut, stage="copy", copy="serving")[0] == 404

    assert stand.ready(cut, stage="copy", copy="serving")
    assert copies.serving()[7]["name"] == "while it hung"
    wait_until(lambda: copies.hold(database.rows(TABLE)), SOON, "all copies once more")
    wait_until(lambda: not incident_subjects(stand), SOON, "the end of all incidents")


def incident_subjects(stand: Stand) -> set[str]:
    return {one["about"] for one in stand.incidents()}
