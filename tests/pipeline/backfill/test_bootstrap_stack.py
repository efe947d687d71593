"""Tables get a new base from real servers, beside writers, and whatever is killed meanwhile."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pipeline.backfill.task import ReadLimits
from pipeline.model import Origin, Shard
from tests.pipeline import every_type
from tests.pipeline.backfill.live_backfills import bootstrap, finished, origins, part, wish, writing
from tests.pipeline.live import Pipe

pytestmark = [
    *(pytest.mark.stack, pytest.mark.spark),
    pytest.mark.usefixtures("lists_settle_soon"),
]
T = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80))"


def test_a_table_added_later_is_read_beside_its_writers_and_after_each_kill(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe("added_again", connector=only("added_again", "t"))
    p.sql(T, T.replace("DB.t", "DB.u"))
    rows = ",".join(f"({n},'old')" for n in range(2000))
    p.sql(f"INSERT INTO DB.u VALUES {rows}", "INSERT INTO DB.t VALUES (1,'t')")
    p.start()
    p.catch_up()
    let_in(p, "t", "u")

    with writing(partial(write_somewhere, p)):
        for _ in range(3):
            p.until(lambda: part(p, wish(p, "u")) or finished(p, wish(p, "u")))
            p.open()  # all that is in memory is gone, as after kill -9
        done = bootstrap(p, "u", ReadLimits(rows=300, select=100))
    p.catch_up()

    assert done.rows > 1000
    assert p.pairs("u") == p.source_pairs("u")
    assert Shard.parse(f"{p.name}/{p.name}.u") in p.lane.checkpoint.bases
    assert not blocked(p)


def test_every_type_is_read_as_the_log_would_have_sent_it(pipe: Callable[..., Pipe]) -> None:
    p = pipe("types_again")
    p.sql(every_type.CREATE.format(table="DB.t"))
    p.sql(*(every_type.insert("DB.t", number) for number in every_type.ROWS))
    p.start()
    p.catch_up()
    p.sql("UPDATE DB.t SET id = id + 100")
    p.catch_up()
    live = [meant(row) for row in p.mirror("t")]

    bootstrap(p, "t")
    p.catch_up()

    again = [meant(row) for row in p.mirror("t")]
    unlike = {n for one, two in zip(live, again, strict=True) for n in one if one[n] != two[n]}
    assert len(live) == len(every_type.ROWS)
    assert unlike <= {"c_emoji"}  # a label that the server itself tells as ?
    assert origins(p, "t") == {Origin.SNAPSHOT}


def meant(row: dict[str, Any]) -> dict[str, Any]:
    """With JSON as what it means: the log and a query spell it in two ways."""
    return {**row, "c_json": row["c_json"] and json.loads(row["c_json"])}


def test_rows_that_went_without_a_word_in_the_log_go_with_the_new_base(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe("silent")
    p.sql(T, "INSERT INTO DB.t VALUES (1,'a'), (2,'b'), (3,'c')")
    p.start()
    p.catch_up()
    p.sql(
        "SET sql_log_bin = 0",
        "DELETE FROM DB.t WHERE id = 2",
        "UPDATE DB.t SET name = 'z' WHERE id = 3",
    )

    bootstrap(p, "t")
    p.catch_up()

    assert p.pairs() == p.source_pairs() == {1: "a", 3: "z"}


def only(database: str, *tables: str) -> dict[str, str]:
    """A collector's setting that lets in these, and the heartbeat."""
    own = ",".join(("sluice.heartbeat", *(f"{database}.{table}" for table in tables)))
    return {"table.include.list": own}


def let_in(p: Pipe, *tables: str) -> None:
    p.connector = only(p.name, *tables)
    p.register()
    p.until(lambda: p.lane.checkpoint.lists[p.name].above is not None)


def write_somewhere(p: Pipe, number: int) -> None:
    """Somewhere in DB.u."""
    key = number * 37 % 2100
    p.sql(
        f"INSERT INTO DB.u VALUES ({key},'new') ON DUPLICATE KEY UPDATE name = '{number}'",
        f"DELETE FROM DB.u WHERE id = {(key + 11) % 2100}",
        f"UPDATE DB.u SET id = id + 5000 WHERE id = {(key + 5) % 2100}",
    )


def blocked(p: Pipe) -> list[str]:
    return [
        *map(str, p.lane.checkpoint.gaps.values()),
        *(a.hold.detail for a in p.applied[-5:] if a.hold),
    ]
