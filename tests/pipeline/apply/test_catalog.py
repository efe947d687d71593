"""Shards of one table: their columns fit, they come and go, and there may be thousands."""

from collections import UserDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply.catalog import Catalog, refuse_odd
from pipeline.checkpoint import Existence, Gap
from pipeline.errors import HeldError
from pipeline.model import Op, Order, Shard, ShardId, Table
from pipeline.schema import history
from pipeline.schema.history import SchemaChange
from pipeline.schema.model import Effect, KnownTables, SchemaEvent, TableSchema
from pipeline.settings import Router, StandardRule, TableRule
from pipeline.sources.mysql import ddl_effects
from pipeline.sources.mysql.dialect import MySqlDialect
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mask import LetterMask
from pipeline.standards.standard import Standard
from pipeline.standards.table_standards import Standards
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.pipeline.apply.holds import assert_held
from tests.pipeline.apply.renames import NEW, SHADOW, C, Renames, S, new
from tests.pipeline.reading import readings
from tests.pipeline.schema_messages import described, message


def test_a_key_that_is_spelled_in_two_ways_holds_the_table(tmp_path: Path) -> None:
    """A snapshot sends ``d,e``, the log a comma with a backslash before it: two keys of one row."""
    label = Column("id", "ENUM", values=("d,e", "x"))
    lake = LocalLake(tmp_path, columns=(label, NAME))
    lake.land(row(Op.CREATE, 10, 1, "a"))

    hold = lake.apply().hold

    assert_held(hold, "key_kind", "key column id of db.t")


class Interrupted(Catalog):
    """While one line of merges asks for a table, another does, of the shards of *others*."""

    others: Mapping[Shard, str | None] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_folded" and self.others is not None:
            others, self.others = self.others, None
            self.table("t", others)


def test_two_lines_ask_for_a_table_each_with_the_shards_of_its_own_batch() -> None:
    catalog = Interrupted(Router(()), readings("s"))
    before = dict[Shard, str | None]({Shard("s", "db.t_1"): "t"})
    after = {**before, Shard("s", "db.t_2"): "t"}
    catalog.others = after

    assert catalog.table("t", before).shards == (Shard("s", "db.t_1"),)
    catalog.others = before
    assert len(catalog.table("t", after).shards) == 2


MADE = "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(80))"
COLUMNS = "id BIGINT, name VARCHAR:80"


def statement_message(text: str, *, made: bool = False) -> str:
    """A statement as the collector sends it; *made* if it describes db.t."""
    return message(text, *([described(text, "t", COLUMNS)] if made else []))


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([statement_message("TRUNCATE TABLE t")], id="a truncate without its row"),
        pytest.param(
            [statement_message("DROP DATABASE db"), statement_message(MADE, made=True)],
            id="a database dropped and made anew",
        ),
    ],
)
def test_rows_that_only_a_statement_took_away_hold_the_table_until_a_base(
    tmp_path: Path, statements: list[str]
) -> None:
    lake = LocalLake(tmp_path)
    lake.catalog.add([("s", Order(1, 1, 1), statement_message(MADE, made=True))])
    lake.land(row(Op.SETTLE, 1, None), row(Op.CREATE, 10, 1, "old"))
    before = lake.apply()
    places = range(20, 20 + len(statements))
    lake.catalog.add([("s", Order(1, 1, p), s) for p, s in zip(places, statements, strict=True)])
    lake.land(row(Op.CREATE, 30, 2, "new"))
    held = lake.apply().hold
    lake.land(row(Op.SETTLE, 31, None), row(Op.READ, 31, 2, "new"))
    lake.checkpoint = replace(lake.checkpoint, bases={Shard("s", "db.t"): Order(1, 1, 31)})

    after = lake.apply()

    assert before.hold is None
    assert_held(held, "emptied", "take a new base of db.t")
    assert after.hold is None
    assert lake.rows() == {2: "new"}


OTHER = {"shard": "db.t2", "topic": "s.db.t2"}


def _with_new(tmp_path: Path, *columns: Column) -> LocalLake:
    lake = LocalLake(tmp_path, shards=("db.t", "db.t2"))
    lake.land(row(Op.CREATE, 2, 1, "Ada"))
    assert lake.apply().hold is None
    lake.alter(*columns, at=Order(1, 1, 3), shard="db.t2")
    return lake


def test_a_new_shard_whose_columns_fit_is_folded(tmp_path: Path) -> None:
    lake = _with_new(tmp_path, ID, NAME, Column("city", "VARCHAR", 20))

    lake.land(row(Op.CREATE, 4, 2, "Bob", **OTHER))

    assert lake.apply().hold is None
    assert lake.rows() == {1: "Ada", 2: "Bob"}


def test_a_new_shard_of_other_columns_is_told_and_nothing_of_it_is_folded(tmp_path: Path) -> None:
    lake = _with_new(tmp_path, ID, Column("name", "DATE"))

    lake.land(row(Op.CREATE, 4, 2, "Bob", **OTHER))

    told = lake.apply().hold
    assert_held(
        told, "shards_differ", "name is VARCHAR(80) in db.t and DATE in db.t2; make them alike"
    )
    assert lake.rows() == {1: "Ada"}


@pytest.mark.parametrize("key", [("id", "name"), ()])
def test_shards_whose_rules_name_other_keys_are_held_before_a_row_replaces_another(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    rules = (TableRule(r"db\.t", "db.t", key=("id",)), TableRule(r"db\.t2", "db.t", key=key))
    lake = LocalLake(tmp_path, rules=rules, shards=("db.t", "db.t2"), key=())

    lake.land(row(Op.CREATE, 2, 1, "Ada"))

    told = f"db.t has the key (id), db.t2 ({', '.join(key)}); name one `key` in all rules of db.t"
    assert_held(lake.apply().hold, "shards_differ", told)


FOLDED = (TableRule(r"db\..*", "db.t"),)


@pytest.fixture
def two(tmp_path: Path) -> Renames:
    """Both shards of one table, with a row each."""
    told = Renames(tmp_path, FOLDED, shards=("db.t", NEW))
    told.begin()
    told.lake.land(*({**one, "table": "db.t"} for one in SHADOW))
    told.apply()
    return told


OF_BOTH = [(1, "changed"), (1, "old"), (2, "goes"), (3, "three")]


def pairs(told: Renames) -> list[tuple[int, str]]:
    return sorted((r["id"], r["name"]) for r in told.lake.mirror())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("DROP TABLE _t_new", [(1, "old"), (2, "goes")], id="one of two"),
        pytest.param("DROP TABLE t", [(1, "changed"), (3, "three")], id="the other"),
        pytest.param("RENAME TABLE db._t_new TO x.y", [(1, "old"), (2, "goes")], id="moved away"),
        pytest.param("DROP TABLE t, _t_new", OF_BOTH, id="a table without a shard keeps them"),
    ],
)
def test_f26_rows_of_a_dropped_shard_leave_those_of_the_others(
    two: Renames, text: str, left: list[tuple[int, str]]
) -> None:
    before = pairs(two)
    two.tell(100, text)

    turn = two.apply()

    assert before == OF_BOTH
    assert (turn.hold, turn.account.residual) == (None, 0)
    assert pairs(two) == left


def test_f26_a_mirror_whose_shards_went_with_their_database_is_left_as_it_was(two: Renames) -> None:
    two.tell(100, "DROP DATABASE db")
    gone = Existence(Order(1, 1, 100), there=False)
    two.lake.checkpoint = replace(
        two.lake.checkpoint, existing={Shard.parse("s/db.t"): gone, Shard("s", NEW): gone}
    )

    turns = two.lake.run()

    assert turns == ()
    assert pairs(two) == OF_BOTH


def test_f26_rows_of_a_dropped_shard_that_are_still_on_their_way_are_waited_for(
    two: Renames,
) -> None:
    two.sent(100)
    two.tell(100, "DROP TABLE _t_new")
    waiting = two.lake.run()
    two.sent(101)
    two.lake.land(new(C, 99, 9, "late", table="db.t"), row(C, 110, 5, "five"))

    two.apply()

    assert waiting == ()
    assert pairs(two) == [(1, "old"), (2, "goes"), (5, "five")]


def test_f26_what_was_lost_of_a_shard_holds_its_table_no_more_once_it_is_dropped(
    two: Renames,
) -> None:
    gap = Gap("g", f"s.{NEW}", 0, 5, 8, "deleted", shards=(f"s/{NEW}",))
    two.lake.checkpoint = replace(two.lake.checkpoint, gaps={gap.id: gap})
    two.lake.land(row(C, 90, 5, "five"))
    held = two.apply().hold
    two.tell(100, "DROP TABLE _t_new")
    gone = {Shard("s", NEW): Existence(Order(1, 1, 100), there=False)}
    two.lake.checkpoint = replace(two.lake.checkpoint, existing=gone)

    turn = two.apply()

    assert_held(held, "gap")
    assert turn.hold is None
    assert pairs(two) == [(1, "old"), (2, "goes"), (5, "five")]


def test_f26_a_dropped_shard_that_is_made_again_begins_empty(two: Renames) -> None:
    two.tell(100, "DROP TABLE _t_new")
    two.tell(120, "CREATE TABLE _t_new LIKE t", "_t_new")
    rows = (new(S, 120, None), new(C, 130, 7, "seven"))
    two.lake.checkpoint = replace(
        two.lake.checkpoint, bases={Shard.parse(f"s/{NEW}"): Order(1, 1, 120)}
    )
    two.lake.land(*({**one, "table": "db.t"} for one in rows))

    turn = two.apply()

    assert turn.hold is None
    assert pairs(two) == [(1, "old"), (2, "goes"), (7, "seven")]


def test_a_swap_with_a_shadow_of_the_same_table_leaves_one_of_each_row(two: Renames) -> None:
    """The shadow's own rows go with its name, those of the original with the old one's."""
    two.lake.checkpoint = replace(
        two.lake.checkpoint,
        shards={**two.lake.checkpoint.shards, Shard.parse("s/db._t_old"): "db.t"},
    )
    two.swap()
    two.tell(105, "DROP TABLE _t_old")
    two.lake.land(row(C, 110, 5, "five"))

    turn = two.apply()

    assert (turn.hold, turn.account.residual) == (None, 0)
    assert pairs(two) == [(1, "changed"), (3, "three"), (5, "five")]


def test_what_a_shard_gained_is_found_without_going_through_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, id_, more = (
        Catalog(Router(), readings("s")),
        Column("id", "BIGINT"),
        Column("n", "BIGINT", nullable=False, default="7", has_default=True),
    )
    names = [f"db.t{number}" for number in range(100)]
    for name in names:
        for place, columns in ((1, (id_,)), (2, (id_, more))):
            at = Order(1, 1, place)
            kind = "create" if place == 1 else "alter"
            schema = TableSchema(name, at, columns, ("id",))
            catalog.learn([("s", SchemaChange(kind, name, at, schema, ""))])
    catalog.fills(f"s/{names[0]}")
    named: list[ShardId] = []
    told = ShardId.__str__

    def counted(shard: ShardId) -> str:
        named.append(shard)
        return told(shard)

    monkeypatch.setattr(ShardId, "__str__", counted)

    found = [catalog.fills(f"s/{name}") for name in names]

    assert [[fill.column for fill in own] for own in found] == [["n"]] * len(names)
    assert len(named) <= len(names)  # its own name, and no other


def create_statements(first: int, last: int) -> list[tuple[str, Order, str]]:
    names = [f"t{n}" for n in range(first, last)]
    texts = [f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)" for name in names]
    told = zip(range(first, last), texts, names, strict=True)
    return [
        ("s", Order(1, 1, n), message(text, described(text, name, "id BIGINT")))
        for n, text, name in told
    ]


def test_what_a_collector_sends_again_is_not_worked_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(Router(), readings("s"))
    catalog.add(create_statements(0, 50))
    worked: list[int] = []
    follow = MySqlDialect.follow

    def counted(
        told: Sequence[SchemaEvent], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        worked.append(len(told))
        return follow(told, known)

    monkeypatch.setattr(MySqlDialect, "follow", staticmethod(counted))

    again = catalog.reading(create_statements(10, 30))

    assert sum(worked) == 0
    assert again.newest("s", "db.t20") == catalog.newest("s", "db.t20") is not None


class WalkedShards(UserDict[Shard, str | None]):
    """Shards that count how often somebody goes through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[Shard]:
        self.walks += 1
        return super().__iter__()


def test_tables_are_found_without_going_through_all_shards_for_each() -> None:
    catalog = Catalog(Router(), readings("s"))
    shards = WalkedShards({Shard("s", f"db.t{n}"): f"db.t{n % 10}" for n in range(50)})

    tables = [catalog.table(f"db.t{n}", shards) for n in range(10)]

    assert [len(table.shards) for table in tables] == [5] * 10
    assert shards.walks == 1


INT_ID = Column("id", "INT")
TABLE = Table("db.t", (Shard("s", "db.t"),), key=("id",))


def _refuse(column: Column, standard: Standard) -> None:
    rule = StandardRule("db.*", ("id",), (("own", standard),))
    schema = TableSchema("db.t", Order(1, 1, 1), (INT_ID, column), ("id",))
    refuse_odd(Standards((rule,)).of("db.t"), TABLE, schema)


HASH, MASK = KeyedHash(("a",), "0123456789abcdef"), LetterMask(("a",))


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(Column("a", "JSON"), id="json"),
        pytest.param(Column("a", "FLOAT"), id="float"),
        pytest.param(Column("A", "FLOAT"), id="float_in_capitals"),
        pytest.param(Column("a", "ENUM", 1, values=("x,y",)), id="a_label_with_a_comma"),
    ],
)
def test_one_value_in_two_spellings_would_have_two_answers(column: Column) -> None:
    """The log and a snapshot spell it in two ways, and who joins would find two people."""
    with pytest.raises(
        HeldError, match="may arrive in two spellings, and its standard makes two"
    ) as told:
        _refuse(column, HASH)

    assert told.value.reason == "standards"
    _refuse(column, MASK)


@pytest.mark.parametrize(
    "column",
    [Column("a", "DOUBLE"), Column("a", "VARCHAR", 9), Column("a", "ENUM", 1, values=("x", "y"))],
    ids=["double", "text", "enum"],
)
def test_what_has_one_spelling_has_one_answer(column: Column) -> None:
    _refuse(column, HASH)


@pytest.mark.parametrize(("name", "there"), [("A", True), ("b", False)])
def test_a_column_that_the_config_names_must_be_there_in_whichever_letters(
    name: str, *, there: bool
) -> None:
    rule = StandardRule("db.t", ("id",), (("own", KeyedHash((name,), "0123456789abcdef")),))
    schema = TableSchema("db.t", Order(1, 1, 1), (INT_ID, Column("a", "VARCHAR", 9)), ("id",))
    own = Standards((rule,)).of("db.t")

    if there:
        refuse_odd(own, TABLE, schema)
    else:
        with pytest.raises(HeldError, match="has no column b, which"):
            refuse_odd(own, TABLE, schema)


def test_tables_without_standards_are_not_looked_at() -> None:
    refuse_odd(None, TABLE, TableSchema("db.t", Order(1, 1, 1), (Column("a", "JSON"),), ("id",)))


def statements_in(order: str) -> list[tuple[str, Order, str]]:
    """CREATEs of 20 tables, then statements that add, move and drop; *order* of arrival."""
    made = create_statements(0, 20)
    texts = (
        ("ALTER TABLE t1 ADD v INT NOT NULL DEFAULT 7", "t1", "id BIGINT, v INT! 7"),
        ("CREATE TABLE IF NOT EXISTS t2 LIKE t1", "t2", "id BIGINT, v INT"),
        ("ALTER TABLE t3 ADD w INT NOT NULL DEFAULT 8", "t3", "id BIGINT, w INT! 8"),
    )
    made += [
        ("s", Order(1, 1, at), message(text, described(text, name, columns)))
        for at, (text, name, columns) in enumerate(texts, 20)
    ]
    return made if order == "in order" else [*made[:10], *made[11:], made[10]]


@pytest.mark.parametrize("order", ["in order", "one comes late"])
def test_statements_one_by_one_make_the_catalog_that_they_make_at_once(order: str) -> None:
    rows = statements_in(order)
    whole = Catalog(Router(), readings("s"))
    whole.add(rows)
    found = Catalog(Router(), readings("s"))
    for one in rows:
        found = found.reading([one])
        found.history("s")  # as a merge asks between them
        found.fills("s/db.t1")

    for name in (f"db.t{n}" for n in range(20)):
        assert found.newest("s", name) == whole.newest("s", name) is not None
        assert found.fills(f"s/{name}") == whole.fills(f"s/{name}")
    assert [fill.column for fill in found.fills("s/db.t3")] == ["w"]


def test_a_statement_does_not_go_through_all_that_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(Router(), readings("s"))
    catalog.add(create_statements(0, 50))
    catalog.fills("s/db.t0")
    catalog.newest("s", "db.t0")
    steps, rows = list[object](), list[object]()
    ordered, held = history.in_log_order, ddl_effects.HeldRows

    def counted(change: SchemaChange) -> tuple[Order, bool]:
        steps.append(change)
        return ordered(change)

    def made(*parts: Any) -> ddl_effects.HeldRows:
        rows.append(parts)
        return held(*parts)

    monkeypatch.setattr(history, "in_log_order", counted)
    monkeypatch.setattr(ddl_effects, "HeldRows", made)

    for one in create_statements(50, 53):
        catalog = catalog.reading([one])
        assert catalog.newest("s", "db.t50") is not None
        assert catalog.fills("s/db.t50") == ()

    assert len(steps) < 20
    assert len(rows) < 20
