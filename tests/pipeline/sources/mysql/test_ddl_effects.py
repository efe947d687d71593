"""Every statement and what becomes of mirrors' rows.

A case is written as a statement, the tables told with it, and the effects: ``d.t keep``.
The tables before are always ``d.t`` and ``d.u`` with whole mirrors; see TABLES.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.model import Order, ShardId
from pipeline.schema.model import (
    BaseNeeded,
    Effect,
    Empty,
    Keep,
    KnownTables,
    Replace,
    SchemaEvent,
    TableSchema,
)
from pipeline.sources.mysql.ddl_effects import (
    creates_empty_table,
    follow_statements,
    leaves_values,
)
from pipeline.sources.mysql.ddl_parser import parse_statement
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.pipeline.effect_words import written

HERE = Order(1, 1, 100)


def effects(told: Sequence[SchemaEvent], known: KnownTables) -> tuple[Effect, ...]:
    return follow_statements(told, known)[0]


TABLE = "id INT!, v INT, s VARCHAR:10"


def parse_schema(shard: str, columns: str, key: str = "id") -> TableSchema:
    """Columns as ``name TYPE:length=default``, ``!`` for NOT NULL, ``()`` for computed."""
    made = []
    for number, text in enumerate(columns.split(", "), 1):
        name, _, kind = text.partition(" ")
        kind, _, default = kind.partition("=")
        kind, _, length = kind.strip("!()").partition(":")
        made.append(
            Column(
                name,
                kind,
                int(length) if length else None,
                nullable="!" not in text,
                default=default or None,
                generated="()" in text,
                position=number,
            )
        )
    return TableSchema(shard, HERE, tuple(made), tuple(key.split()))


def schema_event(
    text: str,
    described: str = "",
    *,
    database: str | None = "d",
    order: Order = HERE,
    key: str = "id",
) -> SchemaEvent:
    """*described*: ``d.t: columns`` each on a line; no columns for one dropped."""
    tables = []
    for line in filter(None, described.split("\n")):
        shard, _, columns = line.strip().partition(":")
        own = parse_schema(shard, columns.strip(), key) if columns else None
        tables.append((ShardId.parse(shard), own))
    return SchemaEvent(order, text, database, tuple(tables))


def known_tables(*shards: str, based: Sequence[str] | None = None, missed: str = "") -> KnownTables:
    tables = {ShardId.parse(shard): parse_schema(shard, TABLE) for shard in shards}
    whole = tables if based is None else [ShardId.parse(shard) for shard in based]
    return KnownTables(lambda shard: str(shard) != missed, tables, frozenset(whole))


def all_written(found: Sequence[Effect]) -> list[str]:
    return sorted(written(effect) for effect in found)


BOTH = known_tables("d.t", "d.u")
SAME = f"d.t:{TABLE}"

ALTERS = [
    ("ADD n INT", f"{TABLE}, n INT", "keep"),
    ("ADD n INT NOT NULL DEFAULT 7 AFTER id", "id INT!, n INT!=7, v INT, s VARCHAR:10", "keep"),
    ("ADD n INT NOT NULL", f"{TABLE}, n INT!", "hold schema"),
    ("ADD n INT NULL AUTO_INCREMENT UNIQUE", f"{TABLE}, n INT", "hold statement"),
    ("ADD n TIMESTAMP", f"{TABLE}, n TIMESTAMP", "hold statement"),
    ("ADD n TIMESTAMP NULL", f"{TABLE}, n TIMESTAMP", "keep"),
    ("ADD n INT AS (id * 2)", f"{TABLE}, n INT()", "hold schema"),
    ("MODIFY v BIGINT", "id INT!, v BIGINT, s VARCHAR:10", "keep"),
    ("MODIFY v BIGINT FIRST", "v BIGINT, id INT!, s VARCHAR:10", "keep"),
    ("MODIFY v SMALLINT", "id INT!, v SMALLINT, s VARCHAR:10", "hold schema"),
    ("MODIFY v INT NOT NULL", "id INT!, v INT!, s VARCHAR:10", "hold schema"),
    ("MODIFY s VARCHAR(50)", "id INT!, v INT, s VARCHAR:50", "keep"),
    ("MODIFY s VARCHAR(5)", "id INT!, v INT, s VARCHAR:5", "hold schema"),
    ("MODIFY s VARCHAR(10) CHARACTER SET latin1", TABLE, "hold statement"),
    ("MODIFY v INT AS (id) STORED", TABLE, "hold statement"),
    ("MODIFY v INT ON UPDATE CURRENT_TIMESTAMP", TABLE, "keep"),
    ("CHANGE v v BIGINT", "id INT!, v BIGINT, s VARCHAR:10", "keep"),
    ("CHANGE v w INT", "id INT!, w INT, s VARCHAR:10", "hold schema"),
    ("CHANGE v V INT", "id INT!, V INT, s VARCHAR:10", "hold schema"),
    ("RENAME COLUMN v TO w", "id INT!, w INT, s VARCHAR:10", "hold schema"),
    ("DROP v", "id INT!, s VARCHAR:10", "hold schema"),
    ("ALTER v SET DEFAULT 5", TABLE, "keep"),
    ("ADD INDEX (v), ADD FOREIGN KEY (v) REFERENCES u (id), ADD CHECK (v > 0)", TABLE, "keep"),
    ("DROP INDEX i, DROP FOREIGN KEY f, DROP CHECK c", TABLE, "keep"),
    ("CONVERT TO CHARACTER SET utf8mb4", TABLE, "keep"),
    ("CONVERT TO CHARACTER SET latin1", TABLE, "hold statement"),
    ("ENGINE=InnoDB, COMMENT='DROP COLUMN v, RENAME TO u', AUTO_INCREMENT=9", TABLE, "keep"),
    ("ENGINE=BLACKHOLE", TABLE, "hold statement"),
    ("WOBBLE", TABLE, "hold statement"),
    ("ADD PARTITION (PARTITION p VALUES LESS THAN (9))", TABLE, "keep"),
    ("REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (9))", TABLE, "keep"),
    ("REBUILD PARTITION p, q", TABLE, "keep"),
    ("COALESCE PARTITION 2", TABLE, "keep"),
    ("REMOVE PARTITIONING", TABLE, "keep"),
    ("TRUNCATE PARTITION ALL", TABLE, "empty"),
    (
        "ADD n INT, MODIFY s VARCHAR(60), ADD INDEX (n)",
        "id INT!, v INT, s VARCHAR:60, n INT",
        "keep",
    ),
    ("ADD n INT, DROP v", "id INT!, s VARCHAR:10, n INT", "hold schema"),
]


@pytest.mark.parametrize(
    ("clauses", "columns", "effect"), [pytest.param(*case, id=case[0]) for case in ALTERS]
)
def test_an_alter_keeps_only_what_is_known_to_stay(clauses: str, columns: str, effect: str) -> None:
    found = effects([schema_event(f"ALTER TABLE t {clauses}", f"d.t:{columns}")], BOTH)

    assert all_written(found) == [f"d.t {effect}"]


@pytest.mark.parametrize(
    "clauses",
    ["DROP PARTITION p0", "TRUNCATE PARTITION p0, p1", "EXCHANGE PARTITION p WITH TABLE x"],
)
def test_f08_rows_of_a_partition_that_go_hold_the_table(clauses: str) -> None:
    (found,) = (
        e
        for e in effects([schema_event(f"ALTER TABLE t {clauses}", SAME)], BOTH)
        if e.shard.relation == "t"
    )

    assert isinstance(found, BaseNeeded)
    assert clauses in found.detail
    assert "new base of d.t" in found.detail


@pytest.mark.parametrize(
    "clauses",
    [
        "DROP COLUMN v, ADD COLUMN v INT",
        "DROP v, ADD v INT DEFAULT 3",
        "CHANGE v w INT, CHANGE w v INT",
        "RENAME COLUMN v TO id, RENAME COLUMN id TO v",
        "DROP v, RENAME COLUMN s TO v, ADD s VARCHAR(10)",
    ],
)
def test_f08_a_column_dropped_and_added_anew_holds_though_all_columns_look_alike(
    clauses: str,
) -> None:
    (found,) = effects([schema_event(f"ALTER TABLE t {clauses}", SAME)], BOTH)

    assert isinstance(found, BaseNeeded)
    assert "was dropped or renamed" in found.detail


GROWN = f"{TABLE}, n INT"
STATEMENTS = {
    "truncate": ("TRUNCATE t", "", ["d.t empty"]),
    "truncate elsewhere": ("TRUNCATE TABLE e.t", "", ["e.t empty"]),
    "drop two": ("DROP TABLE t, u", "d.t:\nd.u:", ["d.t drop", "d.u drop"]),
    "drop what was never there": ("DROP TABLE IF EXISTS x", "d.x:", []),
    "drop database": ("DROP DATABASE d", "", ["d.t drop", "d.u drop"]),
    "in other letters": ("DROP DATABASE D", "", ["d.t hold statement", "d.u hold statement"]),
    "another database": ("DROP DATABASE e", "", []),
    "create": ("CREATE TABLE x (id INT)", "d.x: id INT", ["d.x empty"]),
    "create like": ("CREATE TABLE x LIKE t", f"d.x:{TABLE}", ["d.x empty"]),
    "drop not told": ("CREATE TABLE t (id INT)", "d.t: id INT", ["d.t hold created"]),
    "columns as before": ("CREATE TABLE t (id INT)", SAME, ["d.t hold created"]),
    "replace": ("CREATE OR REPLACE TABLE t (id INT)", "d.t: id INT", ["d.t empty"]),
    "if not exists, and it does": ("CREATE TABLE IF NOT EXISTS t (id INT)", "", []),
    "select": ("CREATE TABLE x AS SELECT * FROM t", "d.x: id INT", ["d.x hold statement"]),
    "create not read": ("CREATE TABLE x (id INT)", "", ["d.x hold statement"]),
    "index": ("CREATE INDEX i ON t (v)", "", []),
    "index, described": ("CREATE INDEX i ON t (v)", SAME, ["d.t keep"]),
    "view": ("CREATE VIEW w AS SELECT * FROM t", "", []),
    "rename a view": ("RENAME TABLE w TO w2", "", []),
    "flush": ("FLUSH TABLES", "", []),
    "grant": ("GRANT SELECT ON t TO joe", "", []),
    "not read, harmless": ("ALTER TABLE t ADD PARTITION PARTITIONS 2", "", ["d.t keep"]),
    "not read, columns": ("ALTER TABLE t ADD n INT", "", ["d.t hold statement"]),
    "unknown": ("ALTER TABLE x ADD n INT", "d.x: id INT", ["d.x hold statement"]),
    "ignore": ("ALTER IGNORE TABLE t ADD UNIQUE (v)", SAME, ["d.t hold statement"]),
    "exchange holds both": (
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
        SAME,
        ["d.t hold statement", "d.u hold statement"],
    ),
    "exchange with a table of the session's database": (
        "ALTER TABLE d.t EXCHANGE PARTITION p WITH TABLE u",
        SAME,
        ["d.t hold statement", "d.u hold statement"],
    ),
    "statement format": ("INSERT INTO t VALUES (1)", "", ["d.t hold statement"]),
    "by some versions": ("/*!50000 DROP TABLE t */", "", ["d.t hold statement"]),
    "unread": ("WOBBLE u", SAME, ["d.t hold statement", "d.u hold statement"]),
    "event": ("CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO TRUNCATE t", "", []),
    "text and description disagree": (
        "ALTER TABLE t ADD n INT",
        f"d.u:{TABLE}, n INT",
        ["d.t hold statement", "d.u hold statement"],
    ),
    "a name that the collector misread": (
        "ALTER TABLE t RENAME TO `x``y`",
        f"d.x``y:{TABLE}",
        ["d.t drop", "d.x``y hold statement", "d.x`y hold statement"],
    ),
    "other letters": ("ALTER TABLE T ADD n INT", f"d.t:{TABLE}, n INT", ["d.t keep"]),
    "index of an unknown": ("CREATE INDEX i ON x (v)", f"d.x:{TABLE}", ["d.x hold statement"]),
    "made over, not read": ("CREATE TABLE t (id INT)", "", ["d.t hold statement"]),
    "perhaps made": ("CREATE TABLE IF NOT EXISTS x (id INT)", "", ["d.x hold statement"]),
    "grown and renamed": (
        "ALTER TABLE t ADD n INT, RENAME TO x",
        f"d.x:{GROWN}",
        ["d.t drop", "d.x of d.t"],
    ),
    "numbers given that no row event tells, and renamed": (
        "ALTER TABLE t ADD n INT AUTO_INCREMENT UNIQUE, RENAME TO x",
        f"d.x:{GROWN}",
        ["d.t drop", "d.x hold statement"],
    ),
    "altered, of no table that is known": ("ALTER TABLE x ADD n INT", "", []),
    "unknown over what is there": ("RENAME TABLE y TO t", "", ["d.t hold renamed"]),
    "a DROP told as another table's": (
        "DROP TABLE t",
        f"d.z:{TABLE}",
        ["d.t hold statement", "d.z hold statement"],
    ),
    "a column dropped that was not there": (
        "ALTER TABLE t DROP COLUMN IF EXISTS z, ADD n INT",
        f"d.t:{GROWN}",
        ["d.t keep"],
    ),
    "a column made that was not there, dropped first": (
        "ALTER TABLE t DROP COLUMN IF EXISTS n, ADD n INT",
        f"d.t:{GROWN}",
        ["d.t keep"],
    ),
}


@pytest.mark.parametrize(("text", "described", "expected"), STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_has_its_effects(text: str, described: str, expected: list[str]) -> None:
    assert all_written(effects([schema_event(text, described)], BOTH)) == expected


def test_columns_that_rows_tell_are_kept_and_make_no_base() -> None:
    fresh = schema_event("", "d.fresh: id INT!")
    wider = schema_event("", f"d.t: {TABLE}, more INT")
    other = schema_event("", "d.t: id INT!, v VARCHAR:9, s VARCHAR:10")

    found, after = follow_statements([fresh], BOTH)

    assert all_written(found) == ["d.fresh keep"]
    assert ShardId("d", "fresh") not in after.based
    assert all_written(effects([wider], BOTH)) == ["d.t keep"]
    assert [type(one) for one in effects([other], BOTH)] == [BaseNeeded]


def test_f07_create_table_if_not_exists_like_leaves_rows_as_they_are() -> None:
    """MySQL logs it though the table is there, and Debezium sends a CREATE."""
    like = schema_event("CREATE TABLE IF NOT EXISTS t LIKE u", SAME)

    assert effects([like], BOTH) == ()


def test_f07_a_collector_that_took_other_columns_for_the_tables_own_holds_it() -> None:
    (found,) = effects([schema_event("CREATE TABLE IF NOT EXISTS t LIKE u", "d.t: id INT!")], BOTH)

    assert isinstance(found, BaseNeeded)
    assert found.schema == parse_schema("d.t", TABLE)
    assert "docs/runbooks/blocked.md#connector" in found.detail


def rename(pair: str, *, described: bool = True, database: str | None = "d") -> SchemaEvent:
    old, new = pair.split(">")
    target = new if "." in new else f"d.{new}"
    return schema_event(
        f"RENAME TABLE {old} TO {new}", f"{target}:{TABLE}" if described else "", database=database
    )


SWAPS = {
    "moved away": (["t>x"], ["d.t drop", "d.x of d.t"]),
    "gh-ost": (["t>old", "u>t"], ["d.old of d.t", "d.t of d.u", "d.u drop"]),
    "change places": (["t>a", "u>t", "a>u"], ["d.t of d.u", "d.u of d.t"]),
    "passed through": (["t>a", "a>b", "b>c"], ["d.c of d.t", "d.t drop"]),
    "and back": (["t>a", "a>t"], ["d.t keep"]),
    "database not told": (["t>e.x"], ["d.t hold renamed", "e.x hold renamed"]),
    "to another database": (["d.t>e.x"], ["d.t drop", "e.x of d.t"]),
    "from a named database": (["d.t>x"], ["d.t drop", "d.x of d.t"]),
    "from what was never seen": (["y>x"], ["d.x hold renamed"]),
    "unknown over what is there": (["y>t"], ["d.t hold renamed"]),
    "over what is there": (["u>t"], ["d.t hold renamed", "d.u drop"]),
}


@pytest.mark.parametrize(("pairs", "expected"), SWAPS.values(), ids=SWAPS)
def test_f08_renames_of_one_order_say_whose_rows_are_whose(
    pairs: list[str], expected: list[str]
) -> None:
    apart = [rename(pair, described=pair != "t>a") for pair in pairs]

    assert all_written(effects(apart, BOTH)) == expected


def test_renames_in_one_text_mean_the_same_as_one_message_each() -> None:
    text = "RENAME TABLE t TO a, u TO t, a TO u"

    together = effects([schema_event(text, f"d.t:{TABLE}\nd.u:{TABLE}")], BOTH)

    assert all_written(together) == ["d.t of d.u", "d.u of d.t"]


def test_messages_sent_twice_count_once() -> None:
    pairs = [rename("t>old"), rename("u>t")]

    assert effects([*pairs, *pairs], BOTH) == effects(pairs, BOTH)


@given(moves=st.lists(st.integers(0, 3), max_size=4))
def test_a_chain_of_renames_undone_in_the_same_statement_changes_nothing(moves: list[int]) -> None:
    """Each move takes the table of one of four places to the free one."""
    places, free = ["t", "u", "v", "w"], "x"
    chain: list[tuple[str, str]] = []
    for place in moves:
        chain.append((places[place], free))
        places[place], free = free, places[place]
    undone = [(new, old) for old, new in reversed(chain)]
    assume(len({*chain, *undone}) == 2 * len(chain))  # the same twice is taken for sent twice
    four = known_tables("d.t", "d.u", "d.v", "d.w")

    found = effects([rename(f"{old}>{new}") for old, new in (*chain, *undone)], four)

    assert {type(effect) for effect in found} <= {Keep}


UNFIT = {
    "no base": ({"based": ["d.t"]}, TABLE, "hold renamed"),
    "a table the collector leaves out": ({"missed": "d.u"}, TABLE, "hold renamed"),
    "a column less": ({}, "id INT!, s VARCHAR:10", "hold schema"),
    "a column more": ({}, f"{TABLE}, n INT", "of d.u"),
}


@pytest.mark.parametrize(("facts", "columns", "effect"), UNFIT.values(), ids=UNFIT)
def test_rows_are_taken_over_only_from_a_whole_mirror_that_fits(
    facts: dict[str, str], columns: str, effect: str
) -> None:
    before = known_tables("d.t", "d.u", **facts)
    new = parse_schema("d.u", columns)
    before = replace(before, schemas={**before.schemas, ShardId("d", "u"): new})
    swap = [rename("t>old"), schema_event("RENAME TABLE u TO t", f"d.t:{columns}")]

    assert f"d.t {effect}" in all_written(effects(swap, before))


def test_a_ghost_table_grows_from_its_create_to_the_swap() -> None:
    at = [Order(1, 1, pos) for pos in range(5)]
    grown = f"{TABLE}, n INT"
    story = [
        schema_event("CREATE TABLE _t LIKE t", f"d._t:{TABLE}", order=at[0]),
        schema_event("ALTER TABLE _t ADD n INT", f"d._t:{grown}", order=at[1]),
        schema_event("RENAME TABLE t TO _o", f"d._o:{TABLE}", order=at[2]),
        schema_event("RENAME TABLE _t TO t", f"d.t:{grown}", order=at[2]),
        schema_event("DROP TABLE _o", "d._o:", order=at[3]),
        schema_event("CREATE TABLE _t (id INT)", "d._t: id INT", order=at[4]),
    ]

    found = effects(story, BOTH)

    assert [(e.order.pos, written(e)) for e in found] == [
        (0, "d._t empty"),
        (1, "d._t keep"),
        (2, "d.t of d._t"),
        (2, "d._o of d.t"),
        (2, "d._t drop"),
        (3, "d._o drop"),
        (4, "d._t empty"),
    ]


def test_two_alters_that_look_like_none_are_held_at_the_first() -> None:
    """Between two turns a column goes and another comes under its name."""
    without = schema_event(
        "ALTER TABLE t DROP v", "d.t: id INT!, s VARCHAR:10", order=Order(1, 1, 1)
    )
    again = schema_event("ALTER TABLE t ADD v INT AFTER id", SAME, order=Order(1, 1, 2))

    assert [written(e) for e in effects([without, again], BOTH)] == ["d.t hold schema", "d.t keep"]


def test_a_table_held_is_no_table_to_take_rows_from() -> None:
    story = [
        schema_event("ALTER TABLE u DROP PARTITION p", f"d.u:{TABLE}", order=Order(1, 1, 1)),
        schema_event("RENAME TABLE t TO x", f"d.x:{TABLE}", order=Order(1, 1, 2)),
        schema_event("RENAME TABLE u TO t", SAME, order=Order(1, 1, 2)),
    ]

    assert "d.t hold renamed" in all_written(effects(story, BOTH))


def test_a_held_table_that_is_emptied_is_whole_again() -> None:
    story = [
        schema_event("ALTER TABLE t DROP PARTITION p", SAME, order=Order(1, 1, 1)),
        schema_event("TRUNCATE t", order=Order(1, 1, 2)),
    ]

    _, after = follow_statements(story, BOTH)

    assert ShardId("d", "t") in after.based


def test_a_held_table_that_is_altered_is_not_whole_again() -> None:
    story = [
        schema_event("ALTER TABLE t DROP PARTITION p", SAME, order=Order(1, 1, 1)),
        schema_event("ALTER TABLE t ADD n INT", f"d.t:{TABLE}, n INT", order=Order(1, 1, 2)),
    ]

    found, after = follow_statements(story, BOTH)

    assert written(found[-1]) == "d.t keep"
    assert ShardId("d", "t") not in after.based


def test_a_table_that_is_emptied_keeps_the_columns_that_are_known_of_it() -> None:
    story = [
        schema_event("TRUNCATE t", order=Order(1, 1, 1)),
        schema_event("ALTER TABLE t DROP v", "d.t: id INT!, s VARCHAR:10", order=Order(1, 1, 2)),
    ]

    assert all_written(effects(story, BOTH))[-1] == "d.t hold schema"


def test_a_snapshot_makes_whole_what_is_captured_and_forgets_what_it_only_drops() -> None:
    t, x = ShardId("d", "t"), ShardId("d", "x")
    gone = replace(schema_event("DROP TABLE IF EXISTS t", "d.t:"), snapshot=True)
    there = replace(schema_event("CREATE TABLE x (id INT)", "d.x: id INT"), snapshot=True)

    after = follow_statements([gone, there], BOTH)[1]
    elsewhere = follow_statements([there], replace(BOTH, captured=lambda shard: shard != x))[1]

    assert (t in after.based, x in after.based) == (False, True)
    assert x not in elsewhere.based


def test_a_table_made_where_the_collector_leaves_it_out_has_no_whole_mirror() -> None:
    x = ShardId("d", "x")
    made = [schema_event("CREATE TABLE x (id INT)", "d.x: id INT")]

    assert x in follow_statements(made, BOTH)[1].based
    assert x not in follow_statements(made, replace(BOTH, captured=lambda _: False))[1].based


def test_a_snapshot_describes_and_has_no_effect() -> None:
    """It drops and creates each table of the server, captured or not."""
    texts = [
        ("DROP TABLE IF EXISTS t", "d.t:"),
        ("DROP DATABASE IF EXISTS d", ""),
        ("CREATE TABLE t (id INT)", f"d.t:{TABLE}, n INT"),
    ]
    snapshot = [replace(schema_event(*text), snapshot=True) for text in texts]
    later = schema_event("ALTER TABLE t DROP n", SAME, order=Order(1, 1, 101))

    found = effects([*snapshot, later], BOTH)

    assert [written(effect) for effect in found] == ["d.t hold schema"]


def test_a_table_that_a_snapshot_only_drops_is_not_there() -> None:
    gone = replace(schema_event("DROP TABLE IF EXISTS t", "d.t:"), snapshot=True)
    made = schema_event("CREATE TABLE t (id INT)", "d.t: id INT", order=Order(1, 1, 101))

    assert all_written(effects([gone, made], BOTH)) == ["d.t empty"]


def test_odd_names_are_told_apart() -> None:
    odd = ShardId("d.e", 't"`.x')
    before = known_tables(str(odd), "d.t")

    found = effects(
        [SchemaEvent(HERE, 'RENAME TABLE `d.e`.`t"``.x` TO `d`.`RENAME TABLE t TO u`', "d", ())],
        before,
    )

    assert all_written(found) == sorted([f"{odd} drop", f"d.RENAME TABLE t TO u of {odd}"])


THREE = known_tables("d.t", "d.u", "e.u")
ELSEWHERE = {
    "out of the session's database": (
        "ALTER TABLE t RENAME TO e.x",
        f"e.x:{TABLE}",
        "e",
        ["d.t hold renamed", "e.x hold renamed"],
    ),
    "not read, and it names another database": (
        "WOBBLE e.u",
        "",
        "d",
        ["d.u hold statement", "e.u hold statement"],
    ),
    "not read, of this database": ("WOBBLE u", "", "d", ["d.u hold statement"]),
    "not read, without one": ("WOBBLE e.u", "", None, ["e.u hold statement"]),
    "exchange in this database": (
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
        SAME,
        "d",
        ["d.t hold statement", "d.u hold statement"],
    ),
    "exchange with a table of an untold database": (
        "ALTER TABLE d.t EXCHANGE PARTITION p WITH TABLE u",
        SAME,
        "d",
        ["d.t hold statement", "d.u hold statement", "e.u hold statement"],
    ),
    "no database, so no table": ("DROP TABLE IF EXISTS t", "", None, []),
}


@pytest.mark.parametrize(
    ("text", "described", "database", "expected"), ELSEWHERE.values(), ids=ELSEWHERE
)
def test_a_statement_concerns_the_tables_of_the_databases_it_may_be_about(
    text: str, described: str, database: str | None, expected: list[str]
) -> None:
    assert (
        all_written(effects([schema_event(text, described, database=database)], THREE)) == expected
    )


def at(pos: int) -> Order:
    return Order(1, 1, pos)


ONE_ORDER = {
    "made without columns, and renamed with them": (
        [
            schema_event("CREATE TABLE x (id INT)"),
            schema_event("RENAME TABLE x TO y", f"d.y:{TABLE}"),
        ],
        ["d.y hold statement"],
    ),
    "made without columns, and again with them": (
        [
            schema_event("CREATE TABLE x (id INT)"),
            schema_event("CREATE TABLE IF NOT EXISTS x LIKE t", f"d.x:{TABLE}"),
        ],
        ["d.x hold created"],
    ),
    "the first doubt goes with its rows": (
        [
            schema_event("INSERT INTO t VALUES (1)"),
            schema_event("RENAME TABLE t TO x", "d.x: id INT!"),
        ],
        ["d.t drop", "d.x hold statement"],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), ONE_ORDER.values(), ids=ONE_ORDER)
def test_a_doubt_stays_with_the_rows_of_one_order_wherever_they_go(
    messages: list[SchemaEvent], expected: list[str]
) -> None:
    assert all_written(effects(messages, BOTH)) == expected


def test_a_table_whose_columns_were_never_told_is_held_at_each_statement() -> None:
    story = [
        schema_event("CREATE TABLE x (id INT)", order=at(1)),
        schema_event("ALTER TABLE x ADD n INT", "d.x: id INT, n INT", order=at(2)),
    ]

    assert all_written(effects(story, BOTH)) == ["d.x hold statement"] * 2


def test_an_effect_bears_the_columns_that_are_known_or_newly_told() -> None:
    """Rows are typed by them: with those of before a new column's values would be lost."""
    (emptied,) = effects([schema_event("TRUNCATE t")], BOTH)
    (_, moved) = effects([schema_event("RENAME TABLE t TO x")], BOTH)
    doubted = effects([schema_event("ALTER TABLE t ADD n INT", f"d.u:{GROWN}")], BOTH)
    named_later = effects(
        [
            schema_event("CREATE TABLE x (id INT)"),
            schema_event("RENAME TABLE x TO y", f"d.y:{GROWN}"),
        ],
        BOTH,
    )

    assert emptied == Empty(ShardId("d", "t"), HERE, parse_schema("d.t", TABLE))
    assert moved == Replace(ShardId("d", "x"), HERE, ShardId("d", "t"), parse_schema("d.t", TABLE))
    assert {str(one.shard): one.schema for one in doubted if isinstance(one, BaseNeeded)} == {
        "d.t": parse_schema("d.t", TABLE),
        "d.u": parse_schema("d.u", GROWN),
    }
    assert [one.schema for one in named_later if isinstance(one, BaseNeeded)] == [
        parse_schema("d.y", GROWN)
    ]


@pytest.mark.parametrize(
    ("clauses", "columns", "rebuilt"),
    [
        pytest.param("DROP PARTITION p", TABLE, False, id="only rows went"),
        pytest.param("DROP v", "id INT!, s VARCHAR:10", True, id="a column went"),
    ],
)
def test_a_mirror_is_rebuilt_only_where_it_cannot_take_the_new_columns(
    clauses: str, columns: str, rebuilt: bool
) -> None:
    (found,) = effects([schema_event(f"ALTER TABLE t {clauses}", f"d.t:{columns}")], BOTH)

    assert isinstance(found, BaseNeeded)
    assert found.detail.endswith("take a new base of d.t, then rebuild its mirror") is rebuilt


@pytest.mark.parametrize(
    ("text", "there", "anew"),
    [
        ("CREATE TABLE t (id INT)", False, True),
        ("CREATE TABLE t (id INT)", True, False),
        ("CREATE OR REPLACE TABLE t (id INT)", True, True),
        ("CREATE TABLE t (id INT)", None, True),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", False, True),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", None, False),
        ("CREATE TABLE t AS SELECT 1 AS id", False, False),
        ("DROP TABLE t", False, False),
        ("WOBBLE t", False, False),
    ],
)
def test_f109_only_a_create_without_rows_of_its_own_makes_an_empty_table(
    text: str, there: bool | None, anew: bool
) -> None:
    assert creates_empty_table(parse_statement(text), there=there) is anew


@pytest.mark.parametrize(
    ("text", "new", "former"),
    [
        ("RENAME TABLE `a`.`t` TO `b`.`t`", "b.t", "a.t"),
        ("RENAME TABLE b.t TO t", "a.t", "b.t"),
        ("ALTER TABLE a.t RENAME TO b.u", "b.u", "a.t"),
        ("RENAME TABLE t TO u", "a.u", "a.t"),
        ("RENAME TABLE a.t TO a.x, b.t TO a.t, a.x TO b.t", "b.t", "a.t"),
        ("RENAME TABLE a.t TO a.x, b.t TO a.t, a.x TO b.t", "a.t", "b.t"),
        ("RENAME TABLE a.t TO b.t, b.t TO a.t", "a.t", None),
        ("RENAME TABLE t TO b.t", "b.t", None),
        ("RENAME TABLE a.t TO b.t", "c.t", None),
        ("ALTER TABLE a.t ADD n INT COMMENT 'RENAME TO b.t'", "b.t", None),
    ],
)
def test_f117_a_table_had_its_name_in_the_database_that_the_statement_names(
    text: str, new: str, former: str | None
) -> None:
    found = MYSQL.renamed_from(text, ShardId.parse(new))

    assert (None if found is None else str(found)) == former


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD INDEX (v)",
        "add unique key `u` (v, w), DROP INDEX i, LOCK=NONE, ALGORITHM=INPLACE",
        "ADD FULLTEXT INDEX f (v)",
        "RENAME KEY a TO b",
        "COMMENT 'FORCE, DROP PARTITION p'",
        'COMMENT="ENGINE=InnoDB", ADD INDEX (v)',
        "ADD PARTITION (PARTITION p VALUES LESS THAN (9), PARTITION q VALUES LESS THAN (10))",
        "ADD PARTITION IF NOT EXISTS (PARTITION p VALUES IN (9))",
        "/*!50100 ADD PARTITION (PARTITION p VALUES LESS THAN (9)) */",
    ],
)
def test_a_statement_about_indexes_comments_and_new_partitions_leaves_values(clauses: str) -> None:
    assert leaves_values(parse_statement(f"ALTER TABLE t {clauses}"))


@pytest.mark.parametrize(
    "clauses",
    """
    FORCE | ENGINE=InnoDB | ROW_FORMAT=FIXED | CHARSET=latin1 | COLLATE latin1_bin | ORDER BY id
    ADD INDEX (v), FORCE | ADD INDEX (v), ALGORITHM=COPY | ALGORITHM COPY, ADD INDEX (v)
    ADD PRIMARY KEY (id) | DROP PRIMARY KEY, ADD PRIMARY KEY (id) | ADD CONSTRAINT c UNIQUE (v)
    ADD FOREIGN KEY (a) REFERENCES u (a) ON DELETE CASCADE | ADD CHECK (v > 3) | DROP CHECK c
    ADD PARTITION PARTITIONS 3 | PARTITION BY HASH (id) PARTITIONS 4 | COALESCE PARTITION 1
    REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (9)) | REBUILD PARTITION ALL
    REPAIR PARTITION p | REMOVE PARTITIONING | DROP PARTITION p | COMMENT 'x', TRUNCATE PARTITION p
    COMMENT 'x' /*!50100 DROP PARTITION p */ | EXCHANGE PARTITION p WITH TABLE u
    MODIFY v INT | ADD w INT | DROP v | CONVERT TO CHARACTER SET utf8mb4 | RENAME COLUMN v TO w
    COMMENT='x' ENGINE=InnoDB | COMMENT 'x' ROW_FORMAT=FIXED | COMMENT='x' COMMENT='y' FORCE
    COMMENT='x' PARTITION BY HASH (id) PARTITIONS 4 | ADD INDEX (v) PARTITION BY HASH (id)
    DROP KEY i REMOVE PARTITIONING
    RENAME u | AUTO_INCREMENT=5 | CONNECTION='mysql://x/y/z' | SOMETHING NEW
    """.replace("\n", "|").split("|"),
)
def test_any_other_statement_may_have_changed_values(clauses: str) -> None:
    if clauses.strip():
        assert not leaves_values(parse_statement(f"ALTER TABLE t {clauses.strip()}"))
