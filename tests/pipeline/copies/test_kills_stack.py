"""`kill -9` of who copies and of the store, at any moment: in the end the copy is the mirror."""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
from redis import Redis as Client

from demo.daemon import Daemon
from demo.ports import free_ports
from demo.postgres import Postgres
from demo.processes import wait_until
from demo.redis import Redis
from pipeline.copies.copy import Copy, CopyTarget
from pipeline.copies.postgres import PostgresCopy
from pipeline.copies.redis import RedisCopy
from pipeline.model import Op
from tests.builders.lake import LocalLake, row
from tests.pipeline.copies import copier
from tests.pipeline.copies.copied import TABLE

pytestmark = pytest.mark.stack
SOON = timedelta(minutes=5)  # against hanging only
KEYS, ROWS = 2_000, 600


class Server(Protocol):
    """A store that can be killed, and comes back with what it had."""

    def start(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(eq=False)
class Stand:
    """A mirror that goes on, a process that copies it, and a store."""

    lake: LocalLake
    server: Server
    copy: Copy
    rows: Callable[[], dict[int, str]]
    process: Daemon
    words: tuple[str, ...]
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    there: set[int] = field(default_factory=set)
    pos: int = 10

    def __post_init__(self) -> None:
        self.target: CopyTarget = self.copy.opened(self.lake.settings.lake)

    def turn(self) -> None:
        """One batch of inserts, updates and deletes, merged into the mirror."""
        made = []
        for key in self.chance.sample(range(KEYS), ROWS):
            self.pos += 1
            if key not in self.there:
                made.append(row(Op.CREATE, self.pos, key, f"v{self.pos}"))
                self.there.add(key)
            elif self.chance.random() < 0.3:
                made.append(row(Op.DELETE, self.pos, key))
                self.there.discard(key)
            else:
                made.append(row(Op.UPDATE, self.pos, key, f"v{self.pos}"))
        self.lake.land(*made)
        turn = self.lake.apply()
        assert turn.hold is None, turn.hold

    def begin(self) -> None:
        self.process.start(self.words, lambda: True, SOON)

    def moved(self, since: int) -> Callable[[], bool]:
        """Whether the copy is beyond a version, so that it is in the middle of the next."""

        def seen() -> bool:
            at = self.target.positions().get(TABLE.name)
            return at is not None and at.version > since

        return seen

    @property
    def version(self) -> int:
        at = self.target.positions().get(TABLE.name)
        return -1 if at is None else at.version


@pytest.fixture(params=["postgres", "redis"])
def stand(
    request: pytest.FixtureRequest, tmp_path: Path, server_folder: Path, start_postgres: Any
) -> Iterator[Stand]:
    copy: Copy
    server: Server
    if request.param == "postgres":
        postgres: Postgres = start_postgres("15")
        server, port = postgres, postgres.port
        copy = PostgresCopy("127.0.0.1", "postgres", "postgres", port)

        def rows() -> dict[int, str]:
            return dict(postgres.execute("SELECT id, name FROM db.t"))
    else:
        (port,) = free_ports(1)
        server = Redis(server_folder / "killed_redis", port)
        server.start()
        copy = RedisCopy("127.0.0.1", port)

        def rows() -> dict[int, str]:
            with Client(port=port, decode_responses=True) as client:
                keys: Any = client.keys("sluice:db.t:*")
                found: list[Any] = [client.hgetall(key) for key in keys]
            return {int(one["id"]): one["name"] for one in found}

    lake = LocalLake(tmp_path / "lake")
    process = Daemon("copier", tmp_path / "copier.log")
    words = (sys.executable, "-m", copier.__name__, request.param, lake.settings.lake, str(port))
    made = Stand(lake, server, copy, rows, process, words)
    yield made
    process.kill()
    made.target.close()
    server.kill()


def test_the_copy_is_the_mirror_whenever_anybody_is_killed(stand: Stand) -> None:
    for _ in range(3):  # a load of some parts
        stand.turn()
    stand.begin()
    for number in range(5):
        since = stand.version
        for _ in range(2):
            stand.turn()
        wait_until(stand.moved(since), SOON, "a step")
        stand.process.kill()
        if number in (1, 3):
            stand.target.close()
            stand.server.kill()
            stand.server.start()
        stand.begin()

    newest = stand.lake.runner.mirrors.look("db.t")
    assert newest is not None
    wait_until(stand.moved(newest.version - 1), SOON, "the newest version")
    assert stand.rows() == stand.lake.rows()
    assert len(stand.lake.rows()) > ROWS
