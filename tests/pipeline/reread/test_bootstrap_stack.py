"""Tables get a new base from real servers, beside writers, and whatever is killed meanwhile."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline.landing import collector_lists
from pipeline.model import Origin
from pipeline.reread.task import ReadLimits
from pipeline.rereads import RereadState, WishedReread
from tests.pipeline import every_type
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
T = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80))"


@pytest.fixture(autouse=True)
def lists_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_lists, "GRACE", timedelta(seconds=1))


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

    with writing(p):
        for _ in range(3):
            p.until(lambda: part(p, wish(p, "u")) or finished(p, wish(p, "u")))
            p.open()  # all that is in memory is gone, as after kill -9
        done = bootstrap(p, "u", ReadLimits(rows=300, select=100))
    p.catch_up()

    assert done.rows > 1000
    assert p.pairs("u") == p.source_pairs("u")
    assert f"{p.name}/{p.name}.u" in p.lane.mark.bases
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
    assert {row["origin"] for row in sluice(p, "t")} == {Origin.SNAPSHOT}


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


def wish(p: Pipe, table: str) -> WishedReread:
    return WishedReread(f"{p.name}-{table}", f"{p.name}.{table}")


def bootstrap(p: Pipe, table: str, limits: ReadLimits | None = None) -> RereadState:
    p.lane.rereading.limits = limits or p.lane.rereading.limits
    p.until(lambda: finished(p, wish(p, table)))
    (state,) = p.lane.reread((wish(p, table),))
    return state


def finished(p: Pipe, wanted: WishedReread) -> bool:
    (state,) = p.lane.reread((wanted,))
    assert not state.refused, state.why
    return state.done is not None


def part(p: Pipe, wanted: WishedReread) -> bool:
    """Read a few rows; whether some are landed."""
    p.lane.rereading.limits = replace(p.lane.rereading.limits, rows=100, select=50)
    (state,) = p.lane.reread((wanted,))
    return state.rows > 0


def only(database: str, *tables: str) -> dict[str, str]:
    """A collector's setting that lets in these, and the heartbeat."""
    own = ",".join(("sluice.heartbeat", *(f"{database}.{table}" for table in tables)))
    return {"table.include.list": own}


def let_in(p: Pipe, *tables: str) -> None:
    p.connector = only(p.name, *tables)
    p.register()
    p.until(lambda: p.lane.mark.lists[p.name].above is not None)


@contextmanager
def writing(p: Pipe) -> Iterator[None]:
    """Somebody writes to all of DB.u, all the time."""
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            key = number * 37 % 2100
            p.sql(
                f"INSERT INTO DB.u VALUES ({key},'new') ON DUPLICATE KEY UPDATE name = '{number}'",
                f"DELETE FROM DB.u WHERE id = {(key + 11) % 2100}",
                f"UPDATE DB.u SET id = id + 5000 WHERE id = {(key + 5) % 2100}",
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def blocked(p: Pipe) -> list[str]:
    return [*p.lane.mark.gaps.values(), *(a.hold.detail for a in p.applied[-5:] if a.hold)]


def sluice(p: Pipe, table: str) -> list[dict[str, object]]:
    path = p.lane.passes.settings.mirror(f"{p.name}.{table}")
    rows = p.session.read.format("delta").load(path).select("_sluice.*").collect()
    return [row.asDict() for row in rows]
