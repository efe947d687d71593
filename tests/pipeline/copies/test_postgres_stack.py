"""A copy in a real Postgres is, row by row and type by type, what the mirror is."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demo.postgres import Postgres
from pipeline.copies.copy import CopyStep
from pipeline.copies.postgres import PostgresCopy, PostgresTarget
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.minute_counts import NO_MINUTE
from pipeline.model import Op, Order
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.patience import answered
from tests.pipeline.copies.copied import Copied, left_of_two, made_anew

pytestmark = pytest.mark.stack
C, U, D, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.TRUNCATE
OWN = ("_sluice_source", "_sluice_shard", "_sluice_rank", "_sluice_version")


@pytest.fixture
def copy(postgres: Postgres, request: pytest.FixtureRequest) -> PostgresCopy:
    """A database of the test's own."""
    name = f"copy_{abs(hash(request.node.name)) % 10**8}"
    postgres.execute(f'CREATE DATABASE "{name}"')
    return PostgresCopy(postgres.host, name, "postgres", postgres.port)


@pytest.fixture
def copied(tmp_path: Path, copy: PostgresCopy) -> Iterator[Copied]:
    made = Copied(LocalLake(tmp_path), copy)
    yield made
    made.target.close()


@pytest.fixture
def rows(postgres: Postgres, copy: PostgresCopy) -> Callable[[], dict[Any, dict[str, Any]]]:
    """What the copy holds, by id, without what is kept beside it."""

    def read() -> dict[Any, dict[str, Any]]:
        with postgres.connect(copy.database) as link:
            cursor = link.execute('SELECT * FROM "db"."t"')
            found = [
                {d.name: v for d, v in zip(cursor.description or (), r, strict=True)}
                for r in cursor
            ]
        assert len({one["id"] for one in found}) == len(found)
        return {one["id"]: {n: v for n, v in one.items() if n not in OWN} for one in found}

    return read


def test_rows_come_change_and_go(copied: Copied, rows: Any) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(3)])
    copied.bring()
    assert rows() == copied.mirrored()

    copied.play(row(U, 20, 1, "z"), row(D, 21, 2), row(C, 22, 9, None))
    copied.play(row(U, 30, 9, 'it\'s "quoted",\n\\N and ,'), row(C, 31, 2, ""))

    assert rows() == copied.mirrored()
    assert rows()[9]["name"] == 'it\'s "quoted",\n\\N and ,'


def test_every_type_comes_through(tmp_path: Path, copy: PostgresCopy, rows: Any) -> None:
    columns = (
        ID,
        Column("small", "TINYINT"),
        Column("flag", "BIT", 1),
        Column("price", "DECIMAL", 12, 2),
        Column("huge", "BIGINT UNSIGNED"),
        Column("ratio", "DOUBLE"),
        Column("day", "DATE"),
        Column("at", "DATETIME", 6),
        Column("moment", "TIMESTAMP", 6),
        Column("raw", "VARBINARY", 20),
    )
    copied = Copied(LocalLake(tmp_path, columns=columns), copy)
    image = (
        '{"id": 1, "small": -7, "flag": true, "price": "12.30", "huge": "18446744073709551615",'
        ' "ratio": 0.1, "day": 20454, "at": 1767323045123456,'
        ' "moment": "2026-01-02T03:04:05.123456Z", "raw": "AP8="}'
    )
    nothing = '{"id": 2}'
    copied.lake.land(row(C, 10, 1, after=image), row(C, 11, 2, after=nothing))
    turn = copied.lake.apply()
    assert turn.hold is None, turn.hold

    copied.bring()

    assert rows() == copied.mirrored()
    assert rows()[1]["raw"] == b"\x00\xff"


def test_an_added_column_is_followed_and_another_type_holds_the_copy(
    copied: Copied, rows: Any, postgres: Postgres, copy: PostgresCopy
) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()
    more = Column("more", "INT", default="7", has_default=True)
    copied.lake.alter(ID, NAME, more, at=Order(1, 1, 20))
    copied.play(row(C, 21, 2, after='{"id": 2, "name": "b", "more": 9}'))
    assert rows() == copied.mirrored()

    copied.lake.alter(ID, NAME, replace(more, type="BIGINT"), at=Order(1, 1, 30))
    copied.lake.play([row(C, 31, 3, after='{"id": 3, "name": "c", "more": 5000000000}')])
    with pytest.raises(HeldError, match="copy_columns") as held:
        copied.bring()

    statement = held.value.detail.rpartition("; ")[2]
    postgres.execute(statement, database=copy.database)
    copied.bring()
    assert rows() == copied.mirrored()


def test_an_older_row_never_takes_the_place_of_a_newer(
    copied: Copied, rows: Any, postgres: Postgres, copy: PostgresCopy
) -> None:
    copied.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    copied.bring()
    postgres.execute(
        "UPDATE db.t SET name = 'newer', _sluice_rank = '{1,9,9,9,9,9}'", database=copy.database
    )
    copied.lake.play([row(U, 20, 1, "z"), row(D, 21, 2)])

    with pytest.raises(HeldError, match="copy_written"):
        copied.bring()

    assert {one["name"] for one in rows().values()} == {"newer"}
    assert copied.position is not None
    assert copied.position.batch == 0


def test_a_delete_of_an_older_row_leaves_a_newer(
    copied: Copied, rows: Any, postgres: Postgres, copy: PostgresCopy
) -> None:
    copied.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    copied.bring()
    postgres.execute(
        "UPDATE db.t SET _sluice_rank = '{1,9,9,9,9,9}' WHERE id = 2", database=copy.database
    )
    copied.lossy = True

    copied.play(row(D, 21, 2), row(D, 22, 1))

    assert set(rows()) == {2}
    newest = copied.done[-1]
    assert (newest.changed, newest.taken) == ({NO_MINUTE: {"d": 2}}, {NO_MINUTE: {"d": 1}})


def test_a_killed_step_leaves_nothing_and_is_done_again(
    copied: Copied, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied.lake.play([row(C, 10 + n, n, f"n{n}") for n in range(3)])
    copied.bring()
    copied.lake.play([row(U, 20, 1, "z"), row(D, 21, 2), row(C, 22, 7, "seven")])
    before = rows()

    def cut_off(self: PostgresTarget, *_: Any) -> None:
        self.close()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTarget, "take_rows", cut_off)
        with pytest.raises(KeyboardInterrupt):
            copied.bring()
    assert rows() == before
    copied.reopen()

    copied.bring()
    assert rows() == copied.mirrored()


def test_whoever_was_overtaken_writes_nothing(copied: Copied, rows: Any) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    first = copied.bring()
    copied.play(row(U, 20, 1, "z"))
    assert first is not None
    made = copied.written

    with pytest.raises(LostRaceError):
        copied.target.write(made, CopyStep(first, replace(first, version=99)))

    assert rows() == copied.mirrored()


def test_a_mirror_made_anew_is_loaded_over_the_old_one(
    tmp_path: Path, copied: Copied, rows: Any
) -> None:
    again = made_anew(copied, tmp_path / "anew")

    made = again.bring()

    assert rows() == again.mirrored() == {1: {"id": 1, "name": "new"}}
    assert made is not None
    assert (made.load, made.whole) == (2, True)


def test_shards_with_one_key_are_kept_apart(
    tmp_path: Path, copy: PostgresCopy, postgres: Postgres
) -> None:
    left_of_two(tmp_path, copy)

    kept = "SELECT id, name, _sluice_shard FROM db.t"
    assert postgres.execute(kept, database=copy.database) == [(1, "t", "db.t")]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "after a restart"])
@pytest.mark.parametrize("statement", ["DROP TABLE db.t", "TRUNCATE db.t", "VACUUM FULL db.t"])
def test_a_table_that_somebody_emptied_is_loaded_again(
    copied: Copied, postgres: Postgres, rows: Any, statement: str, *, restarted: bool
) -> None:
    copied.lake.play([row(C, 10, 1, "one"), row(C, 11, 2, "two")])
    copied.bring()
    postgres.execute(statement, database=copied.copy.database)  # type: ignore[attr-defined]
    if restarted:
        copied.target.close()
        copied.reopen()

    before, made = copied.position, copied.play(row(U, 20, 1, "new"))

    assert before is not None
    assert made is not None
    assert (before.whole, made.whole, made.load) == (False, True, 2)
    assert rows() == copied.mirrored()


def test_a_position_of_an_earlier_version_is_followed_from(
    copied: Copied, postgres: Postgres, copy: PostgresCopy, rows: Any
) -> None:
    copied.lake.play([row(C, 10, 1, "one"), row(C, 11, 2, "two")])
    copied.bring()
    postgres.execute("ALTER TABLE sluice.copies DROP COLUMN load_id", database=copy.database)
    before = copied.position
    assert before is not None
    assert (before.whole, before.load_id) == (True, "")

    made = copied.play(row(U, 20, 1, "new"))

    assert made is not None
    assert (made.version, made.load, made.load_id) == (before.version + 1, 1, "")
    assert rows() == copied.mirrored()


def test_what_postgres_cannot_hold_is_told_without_the_value(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "secret\x00word")])

    with pytest.raises(HeldError, match="copy_value") as held:
        copied.bring()

    assert "secret" not in str(held.value)


def test_a_table_of_somebody_else_is_not_written_to(
    copied: Copied, postgres: Postgres, copy: PostgresCopy
) -> None:
    postgres.execute("CREATE SCHEMA db", "CREATE TABLE db.t (id int)", database=copy.database)
    copied.lake.play([row(C, 10, 1, "a")])

    with pytest.raises(HeldError, match="copy_taken"):
        copied.bring()


def test_the_copy_of_another_lake_is_not_written_to(copied: Copied) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()

    with pytest.raises(HeldError, match="copy_taken"):
        copied.copy.opened("another").positions()


def test_a_server_that_hangs_is_given_up(copied: Copied, postgres: Postgres) -> None:
    copied.lake.play([row(C, 10, 1, "a")])
    copied.bring()
    assert isinstance(copied.copy, PostgresCopy)
    hasty = replace(copied.copy, patience=timedelta(seconds=1)).opened(copied.lake.settings.lake)
    with postgres.connect(copied.copy.database) as link, link.transaction():
        link.execute("LOCK TABLE sluice.copies")
        with pytest.raises(UnreachableError):
            hasty.positions()
    assert answered(hasty.positions)


def test_a_server_that_is_not_there_is_told_by_its_place() -> None:
    target = PostgresCopy("127.0.0.1", "none", "nobody", 1).opened("lake")

    with pytest.raises(UnreachableError, match=r"postgres://127\.0\.0\.1:1/none"):
        target.positions()
