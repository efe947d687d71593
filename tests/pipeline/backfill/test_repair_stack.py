"""Mirrors that lost rows, kept ghosts and hold old values are repaired under load; live rows win.

Rows are changed at the source without a word in its log, so that the mirror is wrong in each way.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from pipeline.backfill_state import (
    BackfillRequest,
    BackfillState,
    RowSelection,
    SelectedKey,
    SelectedRange,
)
from pipeline.model import Origin
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.row_reader import MySqlRowReader
from tests.pipeline.backfill.live_backfills import again, finished, part, wish, writing
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
T = "CREATE TABLE DB.t (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(80))"
W = "CREATE TABLE DB.w (k VARCHAR(20), n INT, name VARCHAR(80), PRIMARY KEY (n, k))"


def test_missing_extra_and_different_rows_are_repaired_under_load_and_after_each_kill(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe("mended")
    p.sql(T, W, "INSERT INTO DB.w VALUES ('a', 1, 'x'), ('B''s', 1, 'x'), ('gone', 2, 'x')")
    p.sql("INSERT INTO DB.t VALUES " + ",".join(f"({n},'old')" for n in range(500)))
    p.start()
    p.catch_up()
    silently(
        p,
        "DELETE FROM DB.t WHERE id BETWEEN 100 AND 109",
        "INSERT INTO DB.t VALUES " + ",".join(f"({n},'never seen')" for n in range(600, 620)),
        "UPDATE DB.t SET name = 'changed' WHERE id BETWEEN 300 AND 320",
        "DELETE FROM DB.w WHERE k = 'gone'",
        "UPDATE DB.w SET name = 'y' WHERE k = 'B''s'",
    )
    wrong = p.pairs() != p.source_pairs()
    ranges = (SelectedRange(90, 330), SelectedRange(590, 700))
    rows = repair(p, "t", RowSelection(ranges=ranges, most=241 + 111))  # as an automatic repair
    words = RowSelection(keys=(SelectedKey('["2","gone"]'), SelectedKey('["1","B\'s"]')), most=2)

    with writing(partial(write_somewhere, p)):
        for _ in range(2):
            p.until(lambda: again(p, rows).rows > 0 or finished(p, rows))
            p.open()  # all that is in memory is gone, as after kill -9
        p.until(lambda: finished(p, rows))
    p.until(lambda: finished(p, repair(p, "w", words)))
    p.catch_up()

    assert wrong
    assert p.pairs() == p.source_pairs()
    theirs = set(p.sql("SELECT k, n, name FROM DB.w"))
    assert {(r["k"], r["n"], r["name"]) for r in p.mirror("w", "k")} == theirs


def test_what_is_deleted_after_the_fence_stays_so_and_what_comes_after_it_wins(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe("outlived")
    p.sql(T, "INSERT INTO DB.t VALUES (1,'a'), (2,'b'), (3,'c'), (4,'d')")
    p.start()
    p.catch_up()
    rows = repair(p, "t", RowSelection(ranges=(SelectedRange(1, 4),)))
    p.until(lambda: bool(p.lane.backfill_runner.offer.news().rows) or again(p, rows).rows > 0)
    silently(p, "INSERT INTO DB.t VALUES (5,'ghost of nobody')")
    p.sql("DELETE FROM DB.t WHERE id = 1", "UPDATE DB.t SET name = 'later' WHERE id = 2")
    p.catch_up()  # the changes land, and are merged, perhaps before the rows that were read

    p.until(lambda: finished(p, rows))
    p.catch_up()

    assert p.pairs() == {2: "later", 3: "c", 4: "d"}


def test_a_replay_brings_the_rows_that_meet_a_condition_and_no_others_under_load_and_kills(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe("replayed")
    p.sql("CREATE TABLE DB.t (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(80), day DATE)")
    days = ("2026-03-01", "2026-03-02")
    p.sql("INSERT INTO DB.t VALUES " + ",".join(f"({n},'old','{days[n % 2]}')" for n in range(600)))
    p.start()
    p.catch_up()
    silently(
        p,
        "UPDATE DB.t SET name = 'changed' WHERE id < 400",
        "DELETE FROM DB.t WHERE id = 401",
        "INSERT INTO DB.t VALUES (701, 'never seen', '2026-03-02')",
    )
    rows = RowSelection(where="day >= '2026-03-02' AND id <> 5")
    wanted = replace(wish(p, "t"), origin=Origin.REPLAY, rows=rows)

    with writing(lambda n: p.sql(f"UPDATE DB.t SET name = 'live' WHERE id = {n * 2 % 100 + 1}")):
        p.until(lambda: part(p, wanted) or finished(p, wanted))
        p.open()  # all that is in memory is gone, as after kill -9
        p.until(lambda: finished(p, wanted))
    p.catch_up()

    found, theirs = p.pairs(), p.source_pairs()
    replayed = {n for n in range(1, 600, 2) if n not in (5, 401)} | {701}
    assert {n: found[n] for n in replayed} == {n: theirs[n] for n in replayed}
    untouched = {n for n in range(0, 600, 2) if found[n] == "old"}
    assert untouched == {*range(0, 600, 2)}
    assert found[401] == "old"  # a replay takes no row away
    assert found[5] in ("old", "live")


def test_f108_rows_of_an_xa_transaction_outlive_a_repair_and_a_base_that_began_meanwhile(
    pipe: Callable[..., Pipe],
) -> None:
    """They are sent at XA PREPARE; a read that does not see them yet would delete them for good."""
    p = pipe("xa")
    p.sql(T, "INSERT INTO DB.t VALUES (1,'a'), (2,'b'), (3,'c')", T.replace("DB.t ", "DB.u "))
    p.start()
    p.catch_up()
    p.sql(
        "XA START 'y'",
        "UPDATE DB.t SET name = 'new' WHERE id = 2",
        "INSERT INTO DB.t VALUES (4, 'd')",
        "INSERT INTO DB.u VALUES (1, 'd')",
        "XA END 'y'",
        "XA PREPARE 'y'",
    )
    p.catch_up()
    sent = p.pairs()  # before it is committed
    p.lane.backfill_runner.open_rows = impatient
    rows, base = repair(p, "t", RowSelection(ranges=(SelectedRange(1, 9),))), wish(p, "u")

    def states() -> tuple[BackfillState, ...]:
        return p.lane.run_backfills((rows, base))

    p.until(lambda: all("XA" in one.why for one in states()))
    waited = states()
    p.sql("XA COMMIT 'y'")
    p.until(lambda: all(one.done is not None for one in states()))
    p.catch_up()

    assert sent == {1: "a", 2: "new", 3: "c", 4: "d"}
    assert all("0x79,0x,1" in one.why and not one.refused for one in waited)
    assert p.pairs() == p.source_pairs() == sent
    assert p.pairs("u") == p.source_pairs("u") == {1: "d"}


def impatient(settings: SourceSettings) -> MySqlRowReader:
    return MySqlRowReader(settings, xa_patience=timedelta(milliseconds=200))


def repair(p: Pipe, table: str, rows: RowSelection) -> BackfillRequest:
    return replace(wish(p, table), origin=Origin.REPAIR, rows=rows)


def silently(p: Pipe, *statements: str) -> None:
    """Without a word in the log; the session ends with it."""
    p.sql("SET sql_log_bin = 0", *statements)


def write_somewhere(p: Pipe, number: int) -> None:
    """Delete, insert anew and change rows of all kinds."""
    at = 95 + number * 7 % 240
    p.sql(
        f"DELETE FROM DB.t WHERE id = {at}",
        f"INSERT INTO DB.t VALUES ({at},'new {number}')",
        f"UPDATE DB.t SET name = 'w{number}' WHERE id = {(at * 3) % 330}",
        f"DELETE FROM DB.t WHERE id = {600 + number % 20}",
    )
