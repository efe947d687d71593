"""Tables of a real Postgres get a new base beside their writers, whatever is killed meanwhile."""

from collections.abc import Callable
from functools import partial

import pytest

from pipeline.backfill.task import ReadLimits
from pipeline.model import Origin, Shard
from tests.pipeline.backfill.live_backfills import bootstrap, finished, origins, part, wish, writing
from tests.pipeline.every_postgres_type import CREATE, MADE, ROWS, insert
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [
    *(pytest.mark.stack, pytest.mark.spark),
    pytest.mark.usefixtures("lists_settle_soon"),
]
T = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))"
UNCOMPARED = {"c_box"}  # the log has its corners as WKB; no probe compares it
ODD = {"c_num": "'123.4500'", "c_date": "'infinity'", "c_tstz": "'-infinity'"}


def test_a_table_added_to_the_publication_later_is_read_beside_its_writers_and_after_kills(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    p = postgres_pipe("added_again")
    p.begin()
    p.sql(
        T,
        "INSERT INTO t VALUES (1, 't')",
        "DROP PUBLICATION sluice",
        "CREATE PUBLICATION sluice FOR TABLE t, sluice.heartbeat",
    )
    p.register()
    p.open()
    p.catch_up()
    p.sql(
        T.replace(" t ", " u "),
        "INSERT INTO u SELECT n, 'old' FROM generate_series(0, 1999) n",
    )
    refused = p.lane.run_backfills((wish(p, "u"),))
    p.sql("ALTER PUBLICATION sluice ADD TABLE u")

    p.until(lambda: part(p, wish(p, "u")) or finished(p, wish(p, "u")))
    p.open()  # all that is in memory is gone, as after kill -9
    with writing(partial(write_somewhere, p), pause=0.01):
        done = bootstrap(p, "u", ReadLimits(rows=300, select=100))
    p.catch_up()

    assert "publication sluice does not contain it" in refused[0].why
    assert done.rows > 1000
    assert p.pairs("u") == p.source_pairs("u")
    assert Shard.parse(f"{p.name}/public.u") in p.lane.checkpoint.bases
    assert not p.lane.checkpoint.gaps
    assert [one.hold for one in p.applied[-5:] if one.hold is not None] == []


def test_a_table_that_is_empty_gets_a_base_and_a_mirror_without_rows(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    """Nothing that lands tells of it before."""
    p = postgres_pipe("hollow")
    p.sql(T, T.replace(" t ", " u "), "INSERT INTO u VALUES (1, 'u')")
    p.start()
    p.catch_up()
    assert Shard(p.name, "public.t") not in p.lane.checkpoint.shards

    assert bootstrap(p, "t").rows == 0
    p.catch_up()
    assert Shard.parse(f"{p.name}/public.t") in p.lane.checkpoint.bases
    assert p.mirror("t") == []

    p.sql("INSERT INTO t VALUES (2, 'new')")
    p.catch_up()
    assert p.pairs("t") == {2: "new"}


def test_every_type_is_read_as_the_log_would_have_sent_it(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    p = postgres_pipe("types_again")
    p.sql(
        *MADE, CREATE.format(table="every"), *(insert("every", number) for number in (1, 2, 3, 4))
    )
    p.sql(f"INSERT INTO every (id, {', '.join(ODD)}) VALUES (5, {', '.join(ODD.values())})")
    p.start()
    p.catch_up()
    p.sql("UPDATE every SET id = id + 100")
    p.catch_up()
    live = texts(p, "every")

    bootstrap(p, "every")
    p.catch_up()

    again = texts(p, "every")
    unlike = {
        (n, one["id"]): (one[n], two[n])
        for one, two in zip(live, again, strict=True)
        for n in one.keys() - UNCOMPARED
        if one[n] != two[n]
    }
    assert len(live) == len(ROWS)
    assert unlike == {}
    assert origins(p, "every") == {Origin.SNAPSHOT}


def write_somewhere(p: PostgresPipe, number: int) -> None:
    """Somewhere in u."""
    key = number * 37 % 2100
    p.sql(
        f"INSERT INTO u VALUES ({key}, 'new') ON CONFLICT (id) DO UPDATE SET name = '{number}'",
        f"DELETE FROM u WHERE id = {(key + 11) % 2100}",
        f"UPDATE u SET id = id + 5000 WHERE id = {(key + 5) % 2100}"
        f" AND NOT EXISTS (SELECT 1 FROM u WHERE id = {(key + 5) % 2100 + 5000})",
    )


def texts(p: PostgresPipe, table: str) -> list[dict[str, str]]:
    """The mirror's rows as Spark prints them: its first days are none that Python has."""
    rows = p.rows(table).drop("_sluice").orderBy("id")
    own = [f"CAST(`{name}` AS STRING) AS `{name}`" for name in rows.columns]
    return [row.asDict() for row in rows.selectExpr(*own).collect()]
