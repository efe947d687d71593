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
from pipeline.sources.postgres.slots import (
    COLUMNS,
    DIGEST,
    LEAF,
    NAMED,
    ODD,
    SCHEMAS,
    STORES,
    PublishedTables,
    WatchedSlot,
)

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


@dataclass(eq=False)
class Catalogue:
    """What the server says of publication ``p`` and of the tables that hold rows.

    ``named`` and ``stored`` have a number for each name; ``old``: a part has rows of before.
    """

    publication: list[Row] = field(default_factory=lambda: ALL)
    named: dict[str, int] = field(default_factory=dict)
    schemas: tuple[str, ...] = ()
    stored: dict[str, int] = field(default_factory=lambda: {"public.t": 1})
    file: int = 1
    columns: str = "c"
    part: bool = False
    old: bool = False

    def ask(self, statement: str, *arguments: object) -> list[Row]:
        answers: dict[str, list[Row]] = {
            NAMED: [{**_named(name), "entry": number} for name, number in self.named.items()],
            SCHEMAS: [{"schema": one} for one in self.schemas],
            DIGEST: [{"digest": f"{self.stored} {self.file} {self.columns}", "ended": "9"}],
            STORES: [self._store(name, oid) for name, oid in self.stored.items()],
            COLUMNS: [{"oid": oid, "columns": self.columns} for oid in self.stored.values()],
            LEAF: [_named("public.t_1")],
            ODD: [],
        }
        if "puballtables" in statement:
            return self.publication
        return answers[statement] if statement in answers else [{"old": 1}] * self.old

    def _store(self, name: str, oid: int) -> Row:
        written = f"{self.file} {self.columns}"
        return {
            **_named(name), "oid": oid, "file": self.file, "written": written, "part": self.part
        }  # fmt: skip

    def tables(self) -> PublishedTables:
        return PublishedTables(cast(PostgresSession, self), "p")


def _named(name: str) -> Row:
    schema, _, relation = name.partition(".")
    return {"schema": schema, "relation": relation}


SOME: list[Row] = [{**ALL[0], "every": False}]
BY_ROOT: list[Row] = [{**SOME[0], "root": True}]
T, ROOT = ShardId("public", "t"), ShardId("public", "root")


@pytest.mark.parametrize(
    ("catalogue", "sent"),
    [
        pytest.param(Catalogue(), {T}, id="all tables"),
        pytest.param(Catalogue([]), set(), id="there is no such publication"),
        pytest.param(Catalogue([{**ALL[0], "delete": False}]), set(), id="without deletes"),
        pytest.param(Catalogue(SOME), set(), id="it names none"),
        pytest.param(Catalogue(SOME, {"public.t": 5}), {T}, id="it names the table"),
        pytest.param(Catalogue(SOME, {}, ("public",)), {T}, id="it names the schema"),
        pytest.param(Catalogue(SOME, {}, ("other",)), set(), id="it names another schema"),
        pytest.param(Catalogue(SOME, {"public.t": 5}, (), {}), set(), id="it stores no rows"),
        pytest.param(
            Catalogue(SOME, {"public.root": 5}), set(), id="a root, and its parts are sent"
        ),
        pytest.param(Catalogue(BY_ROOT, {"public.root": 5}), {ROOT}, id="a root without parts"),
        pytest.param(
            Catalogue(BY_ROOT, {"public.root": 5}, ("public",)), {T, ROOT}, id="and its schema"
        ),
    ],
)
def test_a_table_is_sent_if_its_publication_has_it_and_it_is_there(
    catalogue: Catalogue, sent: set[ShardId]
) -> None:
    scope = catalogue.tables().capture()

    assert {one for one in (T, ROOT, ShardId("public", "x")) if scope(one)} == sent


@pytest.mark.parametrize(
    ("part", "columns", "old", "replaced"),
    [
        pytest.param(False, "c", False, False, id="VACUUM FULL or TRUNCATE"),
        pytest.param(False, "d", False, True, id="ALTER COLUMN TYPE"),
        pytest.param(True, "c", True, False, id="a part is rewritten with its rows"),
        pytest.param(True, "c", False, True, id="a part may have lost its rows"),
        pytest.param(True, "d", True, True, id="a part with other columns"),
    ],
)
def test_a_new_file_may_hold_other_rows_unless_the_old_ones_are_seen_in_it(
    *, part: bool, columns: str, old: bool, replaced: bool
) -> None:
    catalogue = Catalogue(part=part, old=old)
    tables = catalogue.tables()
    before = tables.capture()
    catalogue.file, catalogue.columns = 2, columns

    now = tables.capture()

    assert set(now.replaced) == ({T} if replaced else set())
    assert now.differs(before.remembered) == ({T} if replaced else set())


def test_what_is_remembered_of_tables_and_entries_is_the_same_after_a_restart() -> None:
    catalogue = Catalogue(SOME, {"public.t": 5})
    before = catalogue.tables().capture().remembered

    assert catalogue.tables().capture().differs(before) == frozenset()


def test_a_table_that_was_left_out_and_added_again_has_another_entry() -> None:
    catalogue = Catalogue(SOME, {"public.t": 5})
    tables = catalogue.tables()
    before = tables.capture().remembered
    catalogue.named = {"public.t": 6}

    now = tables.capture()

    assert set(now.replaced) == now.differs(before) == {T}
