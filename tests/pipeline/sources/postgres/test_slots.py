"""A slot that is gone at a look is told with the time, and so it stays; also what was replaced."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from pipeline.finding import Effect
from pipeline.model import Break, Head, ShardId
from pipeline.sources.postgres.position import log_position
from pipeline.sources.postgres.replication import Row
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.postgres.slots import PublishedTables, WatchedSlot

SEEN = {"restart": "0/16", "reader": "", "decoded": 1, "counted": "", "begun": 9}
KEPT: list[Row] = [{"kept": True, **SEEN}]
HEAD = Head("7/1/5", log_position(0x20))
UNREAD: list[Row] = [{"kept": False}]
NONE: list[Row] = []
WHY = "slot s {}: changes before it was created again are never sent"
GONE, LOST = WHY.format("did not exist"), WHY.format("retained nothing (lost, or being created)")


@dataclass(eq=False)
class Session:
    """Answers what it was given, one answer for each question."""

    answers: list[list[Row]] = field(default_factory=list)

    def ask(self, statement: str, *arguments: object) -> list[Row]:
        return self.answers.pop(0)


def ticks() -> Iterator[float]:
    number = 0.0
    while True:
        number += 1
        yield number


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        pytest.param([KEPT, KEPT], None, id="there all the while"),
        pytest.param([NONE], Break(GONE, 1), id="not there at first"),
        pytest.param([KEPT, NONE, NONE], Break(GONE, 1), id="dropped: since then"),
        pytest.param([KEPT, UNREAD], Break(LOST, 1), id="lost, or not made yet"),
        pytest.param([NONE, UNREAD, KEPT], Break(GONE, 1, over=True), id="made anew"),
        pytest.param([NONE, KEPT, KEPT], Break(GONE, 1, over=True), id="and there since"),
        pytest.param([NONE, KEPT, NONE], Break(GONE, 2), id="dropped again"),
    ],
)
def test_when_a_slot_was_gone_is_told(seen: list[list[Row]], told: Break | None) -> None:
    clock = ticks()
    session = cast(PostgresSession, Session(seen.copy()))
    slot = WatchedSlot(session, "s", lambda: next(clock))

    looks = [slot.look(HEAD) for _ in seen]

    assert looks[-1][0] == told
    assert [one is not None for _, one in looks] == [rows is KEPT for rows in seen]


def test_what_is_told_of_a_slot_is_its_server_and_where_its_log_ended_before() -> None:
    session = cast(PostgresSession, Session([KEPT]))

    _, keeper = WatchedSlot(session, "s").look(HEAD)

    assert keeper is not None
    assert (keeper.kind, keeper.begins) == ("postgres", log_position(0x16))
    assert json.loads(keeper.words) == {
        "name": "s", "server": "7/1", "end": "0/20", "restart": "0/16", "reader": "",
        "decoded": 1, "counted": "", "begun": 9,
    }  # fmt: skip


PUBLICATION = {"every": True, "root": False, "insert": True, "update": True}
ALL: list[Row] = [{**PUBLICATION, "delete": True, "truncate": True}]


def stores(oid: int) -> list[list[Row]]:
    told = {
        "oid": oid,
        "schema": "public",
        "relation": "t",
        "file": 1,
        "written": "1",
        "part": False,
    }
    digest = {"digest": str(oid), "ended": "9"}
    return [ALL, [digest], [told], [{"oid": oid, "columns": "c"}], []]


def test_rows_that_policies_hide_from_the_slots_reader_are_a_hazard() -> None:
    hidden = {
        "oid": 1,
        "schema": "public",
        "relation": "t",
        "identity": "d",
        "named": False,
        "hidden_from": "debezium",
        "reader": 16_001,
        "filter": None,
        "left_out": None,
    }
    told = cast(PostgresSession, Session([*stores(1)[:-1], [hidden]]))

    (found,) = PublishedTables(told, "p", slot="s").capture().hazards

    assert (found.code, found.effect, found.fix) == (
        "row_security",
        Effect.DROPS,
        'ALTER ROLE "debezium" BYPASSRLS, then a new base of public.t',
    )
    assert found.affects("public.t")
    assert not found.affects("public.u")


def test_a_replaced_table_is_told_with_the_time_of_the_look_that_saw_it_last() -> None:
    same: list[list[Row]] = [ALL, [{"digest": "2", "ended": "9"}], []]
    answers = [*stores(1), *stores(2), *same, *stores(3)]
    clock = ticks()
    session = cast(PostgresSession, Session(answers))
    tables = PublishedTables(session, "p", lambda: next(clock))

    told = [tables.capture().replaced for _ in range(4)]

    table = ShardId("public", "t")
    assert told[0] == {}
    assert told[1] == told[2]
    assert told[2][table] < told[3][table]
