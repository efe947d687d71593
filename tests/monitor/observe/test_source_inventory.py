"""Sources are asked rarely, keep their word until asked again; not to know is not to be ready."""

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from monitor.observe.source_inventory import InventoryAnswer, InventoryQuestion, SourceInventory
from monitor.store.alerts import Waiver
from monitor.store.history import CheckMemory
from monitor.store.store import ServiceStore
from pipeline.checkpoint import Existence
from pipeline.model import Missing, Order, Shard, Table
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.facts import Cascade
from pipeline.sources.source import SourceDescription
from tests.monitor.rig import NOON, ORDERS, SOURCE, USERS, FakeSchema, Rig
from tests.pipeline.hanging import Hanging

DAY = "2026-03-28"
CASCADE = Cascade("goes", "shop.teams", "ON DELETE CASCADE")
TABLE = Table(USERS, (Shard("shop", USERS),))
MORE = Table(ORDERS, (Shard("shop", ORDERS),))


def reason_codes(rig: Rig, table: str = USERS, cut: str = DAY) -> list[str]:
    return [reason["code"] for reason in rig.ask(table, cut=cut)[1]["tables"][0]["reasons"]]


def test_a_table_with_a_cascade_is_not_ready_until_it_is_waived(rig: Rig) -> None:
    rig.schema.cascades[USERS] = CASCADE
    rig.round(2)

    status, answer = rig.ask(cut=DAY)
    assert (status, answer["state"]) == (404, "unknown")
    told = answer["tables"][0]["reasons"][0]["id"]
    assert told.startswith(f"unproven:{USERS}@")
    assert rig.ask(ORDERS, cut=DAY)[0] == 200

    rig.store.waivers.add(Waiver(told, "teams are never deleted", "me", rig.now))

    assert rig.ask(cut=DAY)[0] == 200


def test_nobody_is_ready_before_the_sources_were_asked(rig: Rig) -> None:
    rig.schema.silent = True
    rig.round(2)

    assert reason_codes(rig) == ["not_described"]

    rig.schema.silent = False
    rig.second(61)
    rig.round(2)

    assert rig.ask(cut=DAY)[0] == 200


def test_a_certificate_answers_though_a_cascade_is_found_later(rig: Rig) -> None:
    rig.round(2)
    assert rig.ask(cut=DAY)[0] == 200

    rig.schema.cascades[USERS] = CASCADE
    rig.second(601)
    rig.round(2)

    assert rig.ask(cut=DAY)[0] == 200
    assert reason_codes(rig, cut="2026-03-29T12:10:00Z") == ["unproven"]


class Asked:
    """A census with hands on its clock, its roster, and the address that is followed."""

    def __init__(self, memory: CheckMemory) -> None:
        self.now, self.settings = NOON, SOURCE
        self.memory = memory
        self.tables: tuple[Table, ...] = (TABLE,)
        self.existing: dict[Shard, Existence] = {}
        self.bases: dict[Shard, Order] = {}
        self.schema = FakeSchema(grants=("GRANT SELECT ON *.* TO `sluice`@`%`",))
        self.begin()

    def begin(self) -> None:
        """As after a restart: nothing is known but what the store keeps."""
        self.census = SourceInventory(
            {"shop": lambda: self.settings},
            lambda: self.tables,
            lambda: self.existing,
            self.schema.describe,
            lambda: self.now,
            self.memory,
            bases=lambda: self.bases,
        )

    def after(self, seconds: float) -> int:
        """How often the source was asked, once that time has passed."""
        self.now += timedelta(seconds=seconds)
        self.census.ask()
        return self.schema.asked


@pytest.fixture
def unasked(tmp_path: Path) -> Iterator[Asked]:
    store = ServiceStore.open(tmp_path / "s.db")
    yield Asked(store.memory)
    store.close()


@pytest.fixture
def asked(unasked: Asked) -> Asked:
    asked = unasked
    assert asked.after(0) == 1
    return asked


def test_a_source_is_asked_every_ten_minutes(asked: Asked) -> None:
    assert [asked.after(seconds) for seconds in (5, 590, 5)] == [1, 1, 2]


def test_a_source_that_does_not_answer_is_asked_a_minute_later(asked: Asked) -> None:
    asked.schema.silent = True

    assert [asked.after(seconds) for seconds in (600, 5, 50, 5)] == [2, 2, 2, 3]


def test_a_source_that_does_not_answer_keeps_what_it_said_for_a_day(asked: Asked) -> None:
    asked.schema.silent = True

    asked.after(601)
    assert asked.census.unproven(TABLE) == ""

    asked.after(86_400)
    assert isinstance(asked.census.unproven(TABLE), Missing)


def test_a_new_shard_is_unknown_until_it_was_asked_about(asked: Asked) -> None:
    asked.tables = (TABLE, MORE)
    assert isinstance(asked.census.unproven(MORE), Missing)
    assert asked.census.unproven(TABLE) == ""

    assert asked.after(1) == 2
    assert asked.census.unproven(MORE) == ""


def test_what_was_said_before_a_statement_landed_says_nothing_of_the_table_after_it(
    asked: Asked,
) -> None:
    """It may have added a cascade, whose changes no log shows."""
    asked.tables = (TABLE, MORE)
    asked.existing = {Shard("shop", USERS): Existence(Order(1, 1, 100), there=True)}
    asked.after(1)
    asked.schema.cascades[USERS] = CASCADE
    asked.existing = {Shard("shop", USERS): Existence(Order(1, 1, 900), there=True)}
    before = asked.census.unproven(TABLE), asked.census.unproven(MORE)

    count = asked.after(1)

    assert (count, isinstance(before[0], Missing), before[1]) == (3, True, "")
    assert CASCADE.parent in str(asked.census.unproven(TABLE))


@pytest.mark.parametrize(
    ("changed", "unproven"),
    [
        pytest.param(None, False, id="no statement is known"),
        pytest.param(Order(1, 1, 100), False, id="it came with the base"),
        pytest.param(Order(1, 1, 101), True, id="a column was added since"),
    ],
)
def test_a_default_that_filled_old_rows_counts_until_a_base_has_read_them(
    asked: Asked, changed: Order | None, unproven: bool
) -> None:
    filled = SourceDescription(None, filled={USERS: "now() may have filled at"})
    asked.census.describe = lambda _settings, _shards: filled
    asked.bases = {Shard("shop", USERS): Order(1, 1, 100)}
    asked.existing = {Shard("shop", USERS): Existence(changed, there=True)} if changed else {}
    asked.after(601)

    assert asked.census.unproven(TABLE) == ("now() may have filled at" if unproven else "")

    asked.bases = {Shard("shop", USERS): Order(1, 1, 200)}

    assert asked.census.unproven(TABLE) == ""


def test_columns_of_dates_are_those_of_the_last_answer_about_the_shard_as_it_is(
    asked: Asked,
) -> None:
    shard = Shard("shop", USERS)
    dated = SourceDescription(None, dated={USERS: ("created_at",)})
    asked.census.describe = lambda _settings, _shards: dated
    asked.after(601)

    assert asked.census.dated(shard) == ("created_at",)

    asked.existing = {shard: Existence(Order(1, 1, 900), there=True)}

    assert asked.census.dated(shard) == Missing(f"it was not asked about {USERS} as it is now")


@pytest.mark.parametrize(("took", "asked_again"), [(0, 3), (1, 3), (4, 1), (100, 0)])
def test_a_migration_of_thousands_of_tables_keeps_no_source_busy(
    asked: Asked, took: int, asked_again: int
) -> None:
    """Each statement asks anew, of all tables, which takes a source of many some seconds."""
    described = asked.census.describe

    def slow(settings: SourceSettings, shards: Collection[str]) -> SourceDescription:
        asked.now += timedelta(seconds=took)
        return described(settings, shards)

    asked.census.describe = slow
    asked.after(600)
    began = asked.schema.asked
    for second in (10, 10, 40):
        asked.existing = {
            Shard("shop", USERS): Existence(Order(1, 1, int(asked.now.timestamp())), there=True)
        }
        asked.after(second)

    assert asked.schema.asked - began == asked_again


def test_a_silent_source_is_spared_though_statements_land(asked: Asked) -> None:
    asked.schema.silent = True
    asked.after(600)

    asked.existing = {Shard("shop", USERS): Existence(Order(1, 1, 900), there=True)}

    assert [asked.after(seconds) for seconds in (5, 50, 5)] == [2, 2, 3]


def test_what_another_server_said_counts_no_more(asked: Asked) -> None:
    asked.settings = replace(SOURCE, host="elsewhere")
    assert isinstance(asked.census.unproven(TABLE), Missing)

    assert asked.after(1) == 2
    assert asked.census.unproven(TABLE) == ""


def test_a_source_without_tables_is_spared(unasked: Asked) -> None:
    unasked.tables = ()

    assert unasked.after(0) == 0


def test_f23_what_a_source_said_survives_a_restart_though_it_is_silent_then(asked: Asked) -> None:
    asked.schema.cascades[USERS] = CASCADE
    asked.tables = (TABLE, MORE)
    asked.existing = {Shard("shop", ORDERS): Existence(Order(1, 1, 100), there=True)}
    asked.after(600)
    told = asked.census.answer("shop")
    asked.schema.silent = True

    asked.begin()

    assert asked.census.answer("shop") == told
    assert "shop.teams" in str(asked.census.unproven(TABLE))
    assert asked.census.unproven(MORE) == ""
    assert [asked.after(seconds) for seconds in (5, 590, 5)] == [2, 2, 3]
    assert asked.census.unproven(MORE) == ""


@pytest.mark.parametrize(
    "since",
    [
        pytest.param({"settings": replace(SOURCE, host="elsewhere")}, id="another server"),
        pytest.param({"settings": replace(SOURCE, port=1)}, id="another port"),
        pytest.param({"settings": replace(SOURCE, user="reader")}, id="another user"),
        pytest.param({"now": NOON + timedelta(days=1, seconds=1)}, id="too old"),
        pytest.param(
            {"existing": {Shard("shop", USERS): Existence(Order(1, 1, 900), there=True)}},
            id="a statement landed since",
        ),
        pytest.param({"tables": (MORE,)}, id="a shard nobody asked about"),
    ],
)
def test_f23_what_no_longer_holds_is_forgotten_by_a_restart_too(
    asked: Asked, since: dict[str, Any]
) -> None:
    for name, value in since.items():
        setattr(asked, name, value)

    asked.begin()

    assert isinstance(asked.census.unproven(asked.tables[0]), Missing)
    assert asked.after(0) == 2
    assert asked.census.unproven(asked.tables[0]) == ""


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(None, id="without end"),
        pytest.param(timedelta(hours=30), id="for a while"),
        pytest.param(Missing("it does not say"), id="not told"),
    ],
)
def test_an_answer_is_read_back_as_it_was_and_holds_no_secret(
    kept: timedelta | Missing | None,
) -> None:
    settings = replace(SOURCE, password="hush")
    described = SourceDescription(
        kept,
        frozenset({"shop.hidden"}),
        {USERS: "a cascade"},
        filled={USERS: "a default"},
        dated={USERS: ("created_at", "day")},
    )
    question = InventoryQuestion(settings, frozenset({USERS}), frozenset({(USERS, Order(1, 2, 3))}))
    answer = InventoryAnswer(question, described, NOON, NOON + timedelta(seconds=2))

    text = json.dumps(answer.dumps())

    assert InventoryAnswer.loads(json.loads(text), settings) == answer
    assert "hush" not in text


def test_f21_of_three_sources_one_hangs_for_ever_and_the_others_describe_themselves(
    tmp_path: Path,
) -> None:
    store, hanging = ServiceStore.open(tmp_path / "s.db"), Hanging()
    described = SourceDescription(None, frozenset(), {}, {})

    def describe(settings: SourceSettings, _: Collection[str]) -> SourceDescription:
        return hanging() if settings.name == "b" else described

    tables = tuple(Table(f"{name}.t", (Shard(name, f"{name}.t"),)) for name in "abc")
    followed = {name: partial(replace, SOURCE, name=name) for name in "abc"}
    census = SourceInventory(followed, lambda: tables, dict, describe, lambda: NOON, store.memory)
    hanging.watched(census.asking)

    census.ask()
    census.ask()

    told = {name: census.answer(name) for name in "abc"}
    assert [isinstance(one, Missing) for one in told.values()] == [False, True, False]
    assert hanging.stuck == ["census of b"]
    hanging.release()
    store.close()
