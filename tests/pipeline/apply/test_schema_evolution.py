"""A mirror follows its source's columns, and every row has what the source has in them."""

import json
import random
import re
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.apply.mirror import Commit, schemas_of
from pipeline.delta.commit import commit_actions, create_table
from pipeline.delta.log import Snapshot
from pipeline.delta.store import open_store
from pipeline.errors import LostRaceError
from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.model import Op, Order, Shard
from pipeline.schema.model import arrow_type
from pipeline.settings import RegistrySettings, TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.rewrite import REWRITES
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.example_count import examples
from tests.pipeline.formats.dbevents_writer import Event
from tests.pipeline.formats.test_dbevents_avro import SCHEMAS
from tests.pipeline.formats.test_formats_in_mirrors import Applied, value

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
BORN, LATER = Order(1, 1, 15), Order(1, 1, 35)
EXTRA = Column("extra", "INT")
SEVEN = Column("extra", "INT", default="7", has_default=True)


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """One row, in a mirror of ``id`` and ``name``."""
    made = LocalLake(tmp_path)
    made.play([row(C, 10, 1, "a")])
    return made


def image_change(op: Op, pos: int, key: int, at: str = "db.t", /, **columns: Any) -> dict[str, Any]:
    """A change of shard *at* with these columns beside the id."""
    text = json.dumps({"id": key, **columns})
    made = row(op, pos, key, shard=at, topic=f"s.{at}")
    return {**made, "before" if op is D else "after": text}


def snapshot(lake: LocalLake) -> Snapshot:
    found: Snapshot | None = lake.runner.mirrors.look("db.t")
    assert found is not None
    return found


def commits(lake: LocalLake) -> list[Commit]:
    return list(lake.runner.mirrors.commits("db.t", snapshot(lake).version))[::-1]


def values(lake: LocalLake, name: str) -> dict[int, Any]:
    return {r["id"]: r[name] for r in lake.mirror()}


def reshapings(lake: LocalLake) -> int:
    return [one.operation for one in commits(lake)].count(REWRITES)


# an adopted table whose key has another type
def adopted(lake: LocalLake, *keys: Any, kind: pa.DataType) -> str | None:
    """Why a table with these keys is held; None if it is merged into."""
    rows = pa.table({"id": pa.array(keys, kind), "name": ["a"] * len(keys)})
    path = lake.settings.mirror("db.t")
    create_table(open_store(path), rows.schema, clock=lake.now)
    write_deltalake(path, rows, mode="append")
    lake.land(row(U, 10, 1, "b"))
    hold = lake.apply(waived=["foreign_write:db.t:1"]).hold
    return None if hold is None else hold.reason


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        pytest.param(("01", "1"), pa.string(), id="text: two of them are one number"),
        pytest.param((b"0", b"1"), pa.binary(), id="bytes"),
        pytest.param((Decimal("1.25"),), pa.decimal128(20, 2), id="a fraction is none"),
        pytest.param((Decimal(2**64),), pa.decimal128(20, 0), id="too large a number is none"),
        pytest.param((date(2026, 1, 2),), pa.date32(), id="a date"),
    ],
)
def test_a_key_of_another_type_than_the_source_s_is_held(
    tmp_path: Path, keys: tuple[Any, ...], kind: pa.DataType
) -> None:
    lake = LocalLake(tmp_path)

    assert adopted(lake, *keys, kind=kind) == "key_kind"
    assert {one["name"] for one in lake.mirror()} == {"a"}


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64()], ids=str)
def test_a_key_whose_every_value_fits_is_widened_with_its_table(
    tmp_path: Path, kind: pa.DataType
) -> None:
    lake = LocalLake(tmp_path)

    assert adopted(lake, 0, 1, kind=kind) is None
    assert lake.rows() == {0: "a", 1: "b"}


# columns that are added
def test_an_added_column_is_null_in_rows_that_were_there(lake: LocalLake) -> None:
    lake.alter(ID, NAME, EXTRA, at=BORN)

    lake.play([image_change(C, 20, 2, name="b", extra=5)])

    assert values(lake, "extra") == {1: None, 2: 5}
    changing = [one.data_changing for one in commits(lake) if one.operation == REWRITES]
    assert changing == [False], "no file was written anew for it"


def test_a_default_is_in_rows_that_were_there_and_null_stays_null_in_later_ones(
    lake: LocalLake,
) -> None:
    lake.alter(ID, NAME, SEVEN, at=BORN)

    lake.play(
        [image_change(C, 20, 2, name="b", extra=None), image_change(C, 21, 3, name="c", extra=9)]
    )

    assert values(lake, "extra") == {1: 7, 2: None, 3: 9}


def test_a_change_of_before_the_column_that_comes_after_it_has_the_default(lake: LocalLake) -> None:
    """One batch holds rows on both sides of the statement."""
    lake.alter(ID, NAME, SEVEN, at=BORN)

    lake.play([row(C, 12, 2, "before"), image_change(C, 20, 3, name="after", extra=None)])

    assert values(lake, "extra") == {1: 7, 2: 7, 3: None}


def test_a_deleted_row_does_not_come_back_with_the_columns(lake: LocalLake) -> None:
    lake.play([row(C, 11, 2, "b"), row(C, 12, 3, "c")], [row(D, 13, 2)])
    assert any(file.vector for file in snapshot(lake).files.values())
    lake.alter(ID, NAME, SEVEN, at=BORN)

    lake.play([image_change(U, 20, 3, name="c", extra=8)])

    assert values(lake, "extra") == {1: 7, 3: 8}


def test_columns_of_several_statements_come_in_one_commit(lake: LocalLake) -> None:
    lake.alter(ID, NAME, SEVEN, at=BORN)
    lake.alter(ID, NAME, SEVEN, Column("more", "VARCHAR", 9), at=LATER)

    lake.play([image_change(C, 40, 2, name="b", extra=1, more="x")])

    assert reshapings(lake) == 1
    assert values(lake, "extra") == {1: 7, 2: 1}
    assert values(lake, "more") == {1: None, 2: "x"}


def test_a_column_in_the_middle_goes_to_the_end_and_holds_its_own_values(lake: LocalLake) -> None:
    lake.alter(ID, Column("title", "VARCHAR", 9), NAME, at=BORN)

    lake.play(
        [image_change(C, 20, 2, title="Dr", name="b")],
        [image_change(U, 30, 1, title="Mr", name="z")],
    )

    assert [(r["id"], r["name"], r["title"]) for r in lake.mirror()] == [
        (1, "z", "Mr"),
        (2, "b", "Dr"),
    ]


def test_a_schema_that_only_says_the_same_again_writes_nothing_but_where_it_stands(
    lake: LocalLake,
) -> None:
    files = snapshot(lake).files
    lake.alter(ID, NAME, at=BORN)

    lake.play([row(C, 10, 1, "a")])
    version = snapshot(lake).version
    lake.play([row(C, 10, 1, "a")])

    assert snapshot(lake).files == files
    assert schemas_of(snapshot(lake)) == {"s/db.t": BORN}
    assert snapshot(lake).version == version + 1, "and once"


# F13: shards that add a column at orders, and with defaults, of their own
@pytest.fixture
def shards(tmp_path: Path) -> LocalLake:
    """A row of each of two shards."""
    lake = LocalLake(tmp_path, (TableRule(r"db\.t_\d", "db.t"),), shards=("db.t_0", "db.t_1"))
    lake.play(
        [image_change(C, 10, 1, "db.t_0", name="a"), image_change(C, 10, 2, "db.t_1", name="b")]
    )
    return lake


def test_f13_a_shards_rows_get_its_own_default_when_it_adds_the_column(shards: LocalLake) -> None:
    eight = Column("extra", "INT", default="8", has_default=True)
    shards.alter(ID, NAME, SEVEN, at=BORN, shard="db.t_0")
    shards.play([image_change(C, 20, 3, "db.t_0", name="c", extra=None)])
    first = values(shards, "extra")
    shards.alter(ID, NAME, eight, at=LATER, shard="db.t_1")
    shards.play([image_change(C, 40, 4, "db.t_1", name="d", extra=None)])

    assert first == {1: 7, 2: None, 3: None}
    assert values(shards, "extra") == {1: 7, 2: 8, 3: None, 4: None}


def test_f13_rows_between_the_two_statements_are_old_in_one_shard_and_new_in_the_other(
    shards: LocalLake,
) -> None:
    shards.alter(ID, NAME, SEVEN, at=BORN, shard="db.t_0")
    shards.alter(ID, NAME, SEVEN, at=LATER, shard="db.t_1")

    shards.play(
        [
            image_change(C, 20, 3, "db.t_0", name="c", extra=None),
            image_change(C, 20, 4, "db.t_1", name="d"),
        ]
    )

    assert values(shards, "extra") == {1: 7, 2: 7, 3: None, 4: 7}


def test_a_new_shard_is_followed_without_touching_the_rows_of_the_others(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, (TableRule(r"db\.t_\d", "db.t"),), shards=("db.t_0",))
    lake.play([image_change(C, 10, 1, "db.t_0", name="a")])
    files = set(snapshot(lake).files)
    lake.checkpoint = replace(
        lake.checkpoint, shards={**lake.checkpoint.shards, Shard.parse("s/db.t_1"): "db.t"}
    )
    lake.alter(ID, NAME, SEVEN, at=BORN, shard="db.t_1")

    lake.play([image_change(C, 20, 2, "db.t_1", name="b", extra=1)])

    assert files < set(snapshot(lake).files)
    assert values(lake, "extra") == {1: None, 2: 1}
    assert schemas_of(snapshot(lake)).keys() == {"s/db.t_0", "s/db.t_1"}


# types that grow
@pytest.mark.parametrize(
    ("narrow", "wide", "old", "new"),
    [
        pytest.param(
            Column("v", "DECIMAL", 5, 2),
            Column("v", "DECIMAL", 9, 2),
            ("123.45", Decimal("123.45")),
            ("1234567.89", Decimal("1234567.89")),
            id="more digits",
        ),
        pytest.param(
            Column("v", "SMALLINT"), Column("v", "BIGINT"), (-5, -5), (2**40, 2**40), id="integers"
        ),
        pytest.param(
            Column("v", "INT UNSIGNED"),
            Column("v", "BIGINT UNSIGNED"),
            (2**32 - 1, 2**32 - 1),
            (2**64 - 1, Decimal(2**64 - 1)),
            id="integers without sign",
        ),
        pytest.param(
            Column("v", "VARCHAR", 2), Column("v", "VARCHAR", 9), ("ab", "ab"), ("abc", "abc"),
            id="longer text",
        ),
        pytest.param(
            Column("v", "ENUM", values=("a",)),
            Column("v", "ENUM", values=("a", "b")),
            ("a", "a"),
            ("b", "b"),
            id="another label",
        ),
    ],
)  # fmt: skip
def test_a_wider_type_keeps_every_row(
    tmp_path: Path, narrow: Column, wide: Column, old: tuple[Any, Any], new: tuple[Any, Any]
) -> None:
    lake = LocalLake(tmp_path, columns=(ID, narrow))
    lake.land(
        image_change(C, 10, 1, v=old[0]),
        image_change(C, 11, 2, v=old[0]),
        image_change(C, 12, 3, v=None),
    )
    lake.apply()
    lake.land(image_change(D, 13, 2, v=old[0]))
    lake.apply()
    lake.alter(ID, wide, at=BORN)
    lake.land(image_change(C, 20, 4, v=new[0]))

    turn = lake.apply()

    assert turn.hold is None, turn.hold
    assert values(lake, "v") == {1: old[1], 3: None, 4: new[1]}
    paths = [Path(lake.settings.mirror("db.t"), one.path) for one in snapshot(lake).files.values()]
    assert {pq.read_schema(path).field("v").type for path in paths} == {arrow_type(wide)}


def test_a_wider_type_and_a_default_come_in_one_commit(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, columns=(ID, Column("v", "DECIMAL", 5, 2)))
    lake.land(image_change(C, 10, 1, v="1.50"))
    lake.apply()
    lake.alter(ID, Column("v", "DECIMAL", 9, 2), SEVEN, at=BORN)
    lake.land(image_change(C, 20, 2, v="1234567.89", extra=1))

    turn = lake.apply()

    assert turn.hold is None, turn.hold
    found = [(r["id"], str(r["v"]), r["extra"]) for r in lake.mirror()]
    assert found == [(1, "1.50", 7), (2, "1234567.89", 1)]
    assert reshapings(lake) == 1
    assert turn.version == snapshot(lake).version


# what cannot be followed
@pytest.mark.parametrize(
    ("columns", "detail"),
    [
        pytest.param((ID,), r"name is gone \(as of ALTER TABLE db\.t\); ", id="a column is gone"),
        pytest.param(
            (ID, Column("name", "VARCHAR", 20)),
            r"VARCHAR\(80\) to VARCHAR\(20\) \(as of .*\); undo it: ALTER TABLE `db`.`t` MODIFY",
            id="a type is narrower",
        ),
        pytest.param(
            (ID, Column("name", "INT")), "name changed from VARCHAR", id="a type is another"
        ),
        pytest.param(
            (ID, NAME, Column("at", "TIMESTAMP", default="CURRENT_TIMESTAMP", generated=True)),
            "column at was added and old rows cannot be filled",
            id="nobody knows what old rows hold",
        ),
        pytest.param(
            (ID, NAME, Column("NAME", "INT")), "NAME", id="a name that differs in case only"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_holds_the_table_and_names_the_way_out(
    lake: LocalLake, columns: tuple[Column, ...], detail: str
) -> None:
    before = snapshot(lake)
    lake.alter(*columns, at=BORN)
    lake.land(image_change(C, 20, 2, name="b"))

    turn = lake.apply()

    assert turn.hold is not None
    assert turn.hold.reason == "schema"
    assert turn.hold.id == "schema:db.t"
    assert re.search(detail, turn.hold.detail), turn.hold.detail
    assert snapshot(lake) == before, "nothing was committed"
    assert lake.rows() == {1: "a"}


def test_a_table_goes_on_once_the_statement_is_undone(lake: LocalLake) -> None:
    lake.alter(ID, at=BORN)
    lake.land(row(C, 20, 2, "b"))
    held = lake.apply()
    lake.alter(ID, NAME, at=LATER)

    freed = lake.apply()

    assert held.hold is not None
    assert freed.hold is None, freed.hold
    assert lake.rows() == {1: "a", 2: "b"}


UNREPORTED = Column("extra", "INT", nullable=False)  # who sends rows alone tells no default


@pytest.mark.parametrize(
    ("base", "columns", "free"),
    [
        pytest.param(Order(1, 1, 30), (ID, NAME, UNREPORTED), True, id="read since"),
        pytest.param(BORN, (ID, NAME, UNREPORTED), True, id="read as of it"),
        pytest.param(Order(1, 1, 14), (ID, NAME, UNREPORTED), False, id="read before"),
        pytest.param(Order(1, 1, 30), (ID, UNREPORTED), False, id="a column is gone, too"),
    ],
)
def test_a_base_has_what_nobody_can_fill_old_rows_with(
    lake: LocalLake, base: Order, columns: tuple[Column, ...], *, free: bool
) -> None:
    lake.alter(*columns, at=BORN)
    lake.land(image_change(C, 20, 2, name="b", extra=5))
    held = lake.apply()
    read = [image_change(Op.READ, base.pos, key, name="r", extra=key) for key in (1, 2, 3)]
    lake.land(*read, row(Op.SETTLE, base.pos, None))
    lake.checkpoint = replace(lake.checkpoint, bases={Shard("s", "db.t"): base})

    turn = lake.apply()

    assert held.hold is not None
    assert (turn.hold is None) is free, turn.hold
    if free:
        assert values(lake, "extra")[1] == 1
        assert values(lake, "extra")[3] == 3


def test_a_column_with_the_name_of_sluices_own_is_held(lake: LocalLake) -> None:
    lake.alter(ID, NAME, Column("_sluice", "INT"), at=BORN)
    lake.land(image_change(C, 20, 2, name="b", _sluice=1))

    turn = lake.apply()

    assert turn.hold is not None
    assert turn.hold.detail
    assert lake.rows() == {1: "a"}


# names that are odd
@pytest.mark.parametrize(
    "name",
    [
        "two words",
        "a.b",
        "back`tick",
        'a "quoted" one',
        "größe",
        "a,b;{c}=(d)",
        "order",
        "x'y",
        "_",
    ],
)
def test_a_column_may_have_any_name(tmp_path: Path, name: str) -> None:
    odd = Column(name, "INT", default="3", has_default=True)
    lake = LocalLake(tmp_path, columns=(ID, odd))
    lake.land(image_change(C, 10, 1, **{name: 5}))
    lake.apply()
    lake.land(image_change(U, 20, 1, **{name: 6}), image_change(C, 21, 2, **{name: None}))

    turn = lake.apply()

    assert turn.hold is None, turn.hold
    assert values(lake, name) == {1: 6, 2: None}


@pytest.mark.parametrize("name", ["two words", "a.b", "back`tick", "a,b;{c}=(d)"])
def test_a_column_of_any_name_may_be_added(lake: LocalLake, name: str) -> None:
    """Files that are there keep their columns' names; a table without odd names needs no others."""
    lake.alter(ID, NAME, Column(name, "INT", default="3", has_default=True), at=BORN)

    lake.play(
        [image_change(C, 20, 2, name="b", **{name: 4})],
        [image_change(U, 30, 1, name="z", **{name: 5})],
    )

    assert values(lake, name) == {1: 5, 2: 4}
    assert lake.rows() == {1: "z", 2: "b"}


# somebody else
def test_somebody_who_comes_between_makes_it_start_over(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[int] = []

    def late(*arguments: Any, **more: Any) -> Any:
        if not raced:
            raced.append(1)
            raise LostRaceError("somebody came between")
        return commit_actions(*arguments, **more)

    monkeypatch.setattr("pipeline.tables.delta.rewrite.commit_actions", late)
    lake.alter(ID, NAME, SEVEN, at=BORN)
    lake.land(image_change(C, 20, 2, name="b", extra=1))

    turns = [lake.run(), lake.run()]

    assert turns[0] == (), "no hold: the next pass begins with what is there then"
    assert [(turn.table, turn.hold) for turn in turns[1]] == [("db.t", None)]
    assert values(lake, "extra") == {1: 7, 2: 1}


def test_a_process_that_ends_between_the_columns_and_the_rows_loses_neither(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.alter(ID, NAME, SEVEN, at=BORN)
    lake.land(image_change(C, 20, 2, name="b", extra=None))
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.tables.delta.table_format.commit_actions", _killed)
        with pytest.raises(KeyboardInterrupt):
            lake.apply()
    between = values(lake, "extra")
    lake.reopen()

    turn = lake.apply()

    assert between == {1: 7}
    assert turn.hold is None
    assert values(lake, "extra") == {1: 7, 2: None}
    assert reshapings(lake) == 1


def _killed(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


NAMES = ("id", "fare", "note")
Versioned = dict[str, tuple[int, Any]]


def applied(home: Path) -> Applied:
    return Applied(home, DbEventsAvro(RegistrySettings("http://r")), SCHEMAS)


def rows_by_key(made: Applied) -> dict[str, dict[str, Any]]:
    return {row["row_key"]: {name: row[name] for name in NAMES} for row in made.mirror()}


def send(made: Applied, *events: Event) -> None:
    assert made.send(*(value(one.value) for one in events)) is None


def versions(made: Applied) -> Any:
    (row,) = made.mirror()
    return json.loads(row["_column_versions"] or "null")


def test_a_column_that_comes_late_in_an_older_version_is_passed_over(tmp_path: Path) -> None:
    """The row is of another version by then: only that of the column says that it is old."""
    made = applied(tmp_path)
    send(made, Event("k", 5, {"id": 1, "fare": 0.5, "note": "a"}))
    send(made, Event("k", 10, {"fare": 2.5}, [(10, ["fare"])]))

    send(made, Event("k", 12, {"note": "b", "fare": 1.5}, [(12, ["note"]), (7, ["fare"])]))

    assert rows_by_key(made) == {"k": {"id": 1, "fare": 2.5, "note": "b"}}
    assert versions(made) == {"id": 5, "fare": 10, "raw": 5, "tags": 5}


def test_one_that_comes_late_and_is_newer_than_what_stands_counts(tmp_path: Path) -> None:
    made = applied(tmp_path)
    send(made, Event("k", 5, {"id": 1, "fare": 0.5, "note": "a"}))
    send(made, Event("k", 10, {"note": "b"}, [(10, ["note"])]))

    send(made, Event("k", 12, {"fare": 1.5}, [(7, ["fare"])]))

    assert rows_by_key(made) == {"k": {"id": 1, "fare": 1.5, "note": "b"}}


@pytest.mark.parametrize("apart", [False, True], ids=["in one slice", "in two"])
def test_what_was_deleted_tells_no_value_of_the_row_that_came_after(
    tmp_path: Path, apart: bool
) -> None:
    made, names = applied(tmp_path), ["id", "fare", "raw", "tags"]
    send(made, Event("k", 5, {"id": 1, "fare": 5.5, "note": "of before"}))
    gone = Event("k", 6, {}, deleted=True)
    again = Event("k", 8, {"id": 8, "fare": 8.5, "note": "now"}, [(8, names), (4, ["note"])])

    for events in ((gone,), (again,)) if apart else ((gone, again),):
        send(made, *events)

    assert rows_by_key(made) == {"k": {"id": 8, "fare": 8.5, "note": "now"}}


def test_what_a_base_says_is_of_its_own_version(tmp_path: Path) -> None:
    made = applied(tmp_path)
    send(made, Event("seen", 1, {}))
    image = {"id": 1, "fare": 9.5, "note": "base", "row_key": "k", "hadoop_metadata": {}}
    base = {"key": '["s","db.t","k"]', "order": Order(1, 0, 20), "after": json.dumps(image)}
    made.lake.land(row(Op.READ, 20, None) | base)
    assert made.lake.apply().hold is None

    old, new = [(18, ["fare"])], [(21, ["note"])]
    send(made, Event("k", 22, {"fare": 1.5, "note": "new"}, [*old, *new]))

    assert rows_by_key(made)["k"] == {"id": 1, "fare": 9.5, "note": "new"}


@dataclass
class Story:
    """Events as their sender makes them, and what a plain model says that they come to."""

    dice: random.Random
    ref: int = 0
    unused: list[int] = field(default_factory=list)
    model: dict[str, Versioned] = field(default_factory=dict)

    def event(self) -> Event:
        step = self.dice.randint(1, 4)
        self.unused += range(self.ref + 1, self.ref + step)
        self.ref += step
        key = self.dice.choice("ab")
        row = {"id": self.ref, "fare": self.ref + 0.5, "note": f"n{self.ref}"}
        pick = self.dice.random()
        if key not in self.model or pick < 0.15:
            self.model[key] = {name: (self.ref, row[name]) for name in NAMES}
            return Event(key, self.ref, row)
        if pick < 0.25:
            del self.model[key]
            return Event(key, self.ref, {}, deleted=True)
        return Event(key, self.ref, row, self._some(key, row))

    def _some(self, key: str, row: dict[str, Any]) -> list[tuple[int, list[str]]]:
        named = []
        for name in self.dice.sample(NAMES, self.dice.randint(1, 3)):
            version = self.ref
            if self.unused and self.dice.random() < 0.6:
                version = self.unused.pop(self.dice.randrange(len(self.unused)))
            named.append((version, [name]))
            if version > self.model[key][name][0]:
                self.model[key][name] = version, row[name]
        return named


@settings(max_examples=examples(40, brief=5))
@given(st.integers(0, 2**32))
def test_any_slices_come_to_what_a_plain_model_says(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    made, story = applied(tmp_path_factory.mktemp("lake")), Story(dice)
    for _ in range(dice.randint(1, 6)):
        some = [story.event() for _ in range(dice.randint(1, 6))]
        send(made, *some)
        if dice.random() < 0.3:
            send(made, *some)

        assert rows_by_key(made) == {
            key: {name: found for name, (_, found) in row.items()}
            for key, row in story.model.items()
        }
