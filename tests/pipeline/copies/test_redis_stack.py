"""A copy in a real Redis is, row by row and text by text, what the mirror is."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis as Client

from demo.processes import held, wait_until
from demo.redis import Redis
from pipeline.copies.copy import CopiedTable, CopyStep
from pipeline.copies.redis import OWN, RedisCopy, RedisTarget, split_rows
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.minute_counts import NO_MINUTE
from pipeline.model import Op, Order, Shard, Table
from pipeline.settings import TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.patience import SOON, answered
from tests.pipeline.copies.copied import Copied, left_of_two, made_anew

pytestmark = pytest.mark.stack
C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE


@pytest.fixture
def client(redis: Redis) -> Iterator[Client]:
    made = Client(port=redis.port, decode_responses=True)
    made.flushall()
    yield made
    made.close()


@pytest.fixture
def copied(tmp_path: Path, redis: Redis, client: Client) -> Iterator[Copied]:
    made = Copied(LocalLake(tmp_path), RedisCopy("127.0.0.1", redis.port))
    yield made
    made.target.close()


def copied_rows(client: Client, table: str = "db.t") -> dict[str, dict[str, str]]:
    """What the copy holds, by the last part of its keys, without what is kept beside it."""
    begin = f"sluice:{table}:"
    keys: Any = client.keys(f"{begin}*")
    found: dict[str, Any] = {key: client.hgetall(key) for key in keys}
    return {
        key.removeprefix(begin): {n: v for n, v in one.items() if n not in OWN}
        for key, one in found.items()
    }


def mirrored(copied: Copied) -> dict[str, dict[str, str]]:
    told = copied.mirrored().items()
    return {str(k): {n: str(v) for n, v in one.items() if v is not None} for k, one in told}


def test_rows_come_change_and_go(copied: Copied, client: Client) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(3)])
    copied.bring()
    assert copied_rows(client) == mirrored(copied)

    copied.play(row(U, 20, 1, None), row(D, 21, 2), row(C, 22, 9, 'it\'s "quoted", \x00 é'))
    assert copied_rows(client)["1"] == {"id": "1"}
    copied.play(row(C, 31, 2, ""))

    assert copied_rows(client) == mirrored(copied)


def test_rows_that_get_a_new_column_stay(copied: Copied, client: Client) -> None:
    """All are written anew, each at its own rank: they come, and go, alike."""
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(3)])
    copied.bring()
    more = Column("more", "INT", default="7", has_default=True)
    copied.lake.alter(ID, NAME, more, at=Order(1, 1, 20))

    copied.play(row(C, 21, 9, after='{"id": 9, "name": "nine", "more": 1}'))

    assert copied_rows(client) == mirrored(copied)
    assert copied_rows(client)["1"]["more"] == "7"


def test_more_rows_than_one_script_takes(copied: Copied, client: Client) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(1_203)])
    copied.bring()
    copied.play(*(row(D, 2_000 + n, n) for n in range(700)))

    assert copied_rows(client) == mirrored(copied)
    assert len(copied_rows(client)) == 503


def test_every_type_has_one_text(tmp_path: Path, redis: Redis, client: Client) -> None:
    columns = (
        ID,
        Column("flag", "TINYINT(1)"),
        Column("price", "DECIMAL", 12, 2),
        Column("ratio", "DOUBLE"),
        Column("day", "DATE"),
        Column("at", "DATETIME", 6),
        Column("moment", "TIMESTAMP", 6),
        Column("raw", "VARBINARY", 20),
    )
    copied = Copied(LocalLake(tmp_path, columns=columns), RedisCopy("127.0.0.1", redis.port))
    image = (
        '{"id": 1, "flag": 1, "price": "12.30", "ratio": 0.1, "day": 20454,'
        ' "at": 1767323045123456, "moment": "2026-01-02T03:04:05.123456Z", "raw": "AP8="}'
    )
    copied.lake.land(row(C, 10, 1, after=image))
    assert copied.lake.apply().hold is None

    copied.bring()

    assert copied_rows(client)["1"] == {
        "id": "1",
        "flag": "1",
        "price": "12.30",
        "ratio": "0.1",
        "day": "2026-01-01",
        "at": "2026-01-02 03:04:05.123456",
        "moment": "2026-01-02 03:04:05.123456Z",
        "raw": "AP8=",
    }


def test_a_key_of_parts_is_never_that_of_another(
    tmp_path: Path, redis: Redis, client: Client
) -> None:
    columns = (Column("a", "VARCHAR", 9), Column("b", "VARCHAR", 9))
    lake = LocalLake(tmp_path, columns=columns, key=("a", "b"))
    table = Table("db.t", (Shard("s", "db.t"),), ("a", "b"))
    copied = Copied(lake, RedisCopy("127.0.0.1", redis.port), table)
    for pos, (a, b) in enumerate([("x:", "y"), ("x", ":y"), ("x%3A", "y")], 10):
        image = f'{{"a": "{a}", "b": "{b}"}}'
        lake.land({**row(C, pos, None, after=image), "key": f'["s","db.t","{a}","{b}"]'})
    assert lake.apply().hold is None

    copied.bring()

    assert copied_rows(client).keys() == {"x%3A:y", "x:%3Ay", "x%253A:y"}


@pytest.mark.parametrize("before", range(4), ids=["rows", "keys", "position", "done"])
def test_a_kill_between_any_two_scripts_is_made_up_for(
    copied: Copied, client: Client, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(4)])
    first = copied.bring()
    copied.lake.play([row(U, 20, 1, "z"), row(D, 21, 2), row(C, 22, 7, "seven")])
    run, left = RedisTarget.run_script, iter(range(before))

    def cut_off(self: RedisTarget, *told: Any) -> int:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return run(self, *told)

    with monkeypatch.context() as patch:
        patch.setattr(RedisTarget, "run_script", cut_off)
        if before < 3:
            with pytest.raises(KeyboardInterrupt):
                copied.bring()
    assert copied.position == first
    copied.lake.play([row(U, 30, 2, "again"), row(D, 31, 7)])  # before anybody is there again
    copied.reopen()

    copied.bring()

    assert copied_rows(client) == mirrored(copied)


def test_a_step_whose_count_was_lost_is_counted_as_if_it_was_the_first(
    copied: Copied, client: Client
) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(4)])
    copied.bring()
    copied.play(row(U, 20, 1, "z"), row(D, 21, 2), row(C, 22, 7, "seven"))
    copied.reopen()

    copied.bring(counted=False)

    assert copied.done[-1] == copied.done[-2]
    assert copied_rows(client) == mirrored(copied)


def test_an_older_row_never_takes_the_place_of_a_newer(copied: Copied, client: Client) -> None:
    copied.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    copied.bring()
    newest = "9" * 120
    for key in ("1", "2"):
        client.hset(f"sluice:db.t:{key}", mapping={"name": "newer", "_sluice_rank": newest})
    copied.lake.play([row(U, 20, 1, "z"), row(D, 21, 2)])

    with pytest.raises(HeldError, match="copy_written"):
        copied.bring()

    assert {one["name"] for one in copied_rows(client).values()} == {"newer"}


def test_a_delete_of_an_older_row_leaves_a_newer(copied: Copied, client: Client) -> None:
    copied.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    copied.bring()
    client.hset("sluice:db.t:2", "_sluice_rank", "9" * 120)
    copied.lossy = True

    copied.play(row(D, 21, 2), row(D, 22, 1))

    assert copied_rows(client).keys() == {"2"}
    newest = copied.done[-1]
    assert (newest.changed, newest.taken) == ({NO_MINUTE: {"d": 2}}, {NO_MINUTE: {"d": 1}})


def test_whoever_was_overtaken_writes_nothing(copied: Copied, client: Client) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    first = copied.bring()
    copied.play(row(U, 20, 1, "z"))
    assert first is not None
    table = copied.written

    with pytest.raises(LostRaceError):
        copied.target.write(table, CopyStep(first, replace(first, version=99)))

    assert copied_rows(client) == mirrored(copied)


def test_one_that_was_emptied_is_loaded_again(copied: Copied, client: Client) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(3)])
    copied.bring()
    client.flushall()

    copied.bring()

    assert copied_rows(client) == mirrored(copied)


def test_a_position_of_an_earlier_version_is_followed_from(copied: Copied, client: Client) -> None:
    copied.lake.play([row(C, 10, 1, "one"), row(C, 11, 2, "two")])
    copied.bring()
    stored: Any = client.hget("sluice:copies", "db.t")
    fields = json.loads(stored)
    assert fields.pop("load_id")
    client.hset("sluice:copies", "db.t", json.dumps(fields, sort_keys=True))

    made = copied.play(row(U, 20, 1, "new"))

    assert made is not None
    assert (made.load, made.load_id) == (1, "")
    assert copied_rows(client) == mirrored(copied)


def test_a_mirror_made_anew_is_loaded_over_the_old_one(
    tmp_path: Path, copied: Copied, client: Client
) -> None:
    again = made_anew(copied, tmp_path / "anew")

    made = again.bring()

    assert copied_rows(client) == mirrored(again) == {"1": {"id": "1", "name": "new"}}
    assert made is not None
    assert made.load == 2


def test_shards_with_one_key_are_kept_apart(tmp_path: Path, redis: Redis, client: Client) -> None:
    left_of_two(tmp_path, RedisCopy("127.0.0.1", redis.port))

    assert copied_rows(client) == {"1:s:db.t": {"id": "1", "name": "t"}}


def test_rows_that_would_get_other_names_hold_the_copy(
    tmp_path: Path, redis: Redis, client: Client
) -> None:
    """A second shard, or another key: the old ones would stay, and each be there twice."""
    lake = LocalLake(tmp_path, rules=(TableRule(r"db\.[tu]", "db.t"),), shards=("db.t", "db.u"))
    copied = Copied(lake, RedisCopy("127.0.0.1", redis.port))
    lake.play([row(C, 10, 1, "t")])
    copied.bring()
    shards = (Shard("s", "db.t"), Shard("s", "db.u"))
    copied.table = replace(copied.table, shards=shards)
    lake.land(row(D, 20, 1), row(C, 21, 1, "u", shard="db.u"))
    assert lake.apply().hold is None

    with pytest.raises(HeldError, match="copy_key") as held:
        copied.bring()

    for key in client.keys("sluice:db.t:*"):  # as the message says
        client.delete(key)
    for name in ("sluice:copies", "sluice:named"):
        assert f"HDEL {name} db.t" in str(held.value)
        client.hdel(name, "db.t")
    copied.bring()
    assert copied_rows(client) == {"1:s:db.u": {"id": "1", "name": "u"}}


def test_a_table_whose_name_goes_on_with_a_colon_has_names_of_its_own() -> None:
    """A sweep of ``db.t`` goes through all that begins with ``sluice:db.t:``."""
    target = RedisTarget(RedisCopy("127.0.0.1"), "lake")

    assert target.key_prefix(CopiedTable("db.t:x", pa.schema([]), ("id",))) == "sluice:db.t%3Ax:"


def test_large_rows_go_a_few_at_a_time() -> None:
    rows_ = [["key", "s", "1", ["name", "x" * 2**20]] for _ in range(20)]

    sizes = [len(some) for some in split_rows(rows_)]

    assert sizes == [8, 8, 4]


def test_a_server_that_may_drop_rows_is_refused(copied: Copied, client: Client) -> None:
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(HeldError, match="copy_evicts"):
            copied.bring()
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "0")
    assert copied.target.positions() == {}


def test_what_is_no_row_is_not_written_over(copied: Copied, client: Client) -> None:
    client.set("sluice:db.t:1", "a text of somebody's")
    copied.lake.play([row(C, 10, 1, "a")])

    with pytest.raises(HeldError, match="copy_taken"):
        copied.bring()

    assert client.get("sluice:db.t:1") == "a text of somebody's"


def test_the_copy_of_another_lake_is_not_written_to(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()

    with pytest.raises(HeldError, match="copy_taken"):
        copied.copy.opened("another").positions()


def test_a_column_that_no_hash_can_hold_is_refused(copied: Copied) -> None:
    copied.lake.columns = (ID, NAME)
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()
    table = copied.written
    odd = table.columns.append(table.columns.field(0).with_name("_sluice_rank"))

    with pytest.raises(HeldError, match="copy_columns"):
        copied.target.shaped(replace(table, columns=odd))


def test_a_server_that_hangs_is_given_up(copied: Copied, redis: Redis) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()
    assert isinstance(copied.copy, RedisCopy)
    hasty = replace(copied.copy, patience=timedelta(seconds=0.3)).opened(copied.target.owner)  # type: ignore[attr-defined]
    assert answered(hasty.positions)
    process = redis.daemon.process
    assert process is not None
    process.signal(signal.SIGSTOP)

    try:
        wait_until(lambda: held(process.pid), SOON, "a standstill")
        with pytest.raises(UnreachableError, match="redis://"):
            hasty.positions()
    finally:
        process.signal(signal.SIGCONT)

    assert answered(hasty.positions)
