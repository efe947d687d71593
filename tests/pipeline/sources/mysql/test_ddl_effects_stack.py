"""What a real collector sends for each statement, and that it is read as meant.

One session runs all statements, one connector reads them; a message belongs to the statement
whose range of the log it stands in.  After a hold a base is taken at once.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from pymysql.cursors import Cursor

from demo.debezium import mysql_connector
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.model import Order, ShardId
from pipeline.schema.model import BaseNeeded, KnownTables, SchemaEvent
from pipeline.sources.mysql.ddl_effects import follow_statements
from tests.pipeline.effect_words import written
from tests.pipeline.reading import read
from tests.topic_records import records

PREFIX, END = "effects", "the_end"
OURS = ("ea", "eb", "e.dot")
CAPTURED = (r"ea\.(?!hidden).*", r"eb\..*", r"e\.dot\..*")
PATIENCE = timedelta(minutes=5)  # against hanging only
FULL = "id INT PRIMARY KEY, v INT, s VARCHAR(10), e ENUM('a','b'), d DATETIME(3)"

pytestmark = pytest.mark.stack

MADE = [
    (f"CREATE TABLE t ({FULL})", "t empty"),
    ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)",),
    ("CREATE TABLE u LIKE t", "u empty"),
    ("CREATE TABLE IF NOT EXISTS t LIKE u",),
    ("CREATE TABLE narrow (id INT PRIMARY KEY)", "narrow empty"),
    ("CREATE TABLE IF NOT EXISTS narrow LIKE u", "narrow hold created"),
    ("CREATE TABLE x1 (id INT PRIMARY KEY)", "x1 empty"),
    ("CREATE TABLE x2 (id INT PRIMARY KEY)", "x2 empty"),
    ("DROP TABLE x1, x2", "x1 drop", "x2 drop"),
    ("CREATE TABLE x2 (id INT PRIMARY KEY)", "x2 empty"),
    ("DROP TABLE IF EXISTS nowhere, x2", "x2 drop"),
    ("TRUNCATE TABLE t",),  # it comes in the table's own topic
    ("CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)",),
    ("TRUNCATE TABLE t",),
    ("DROP TEMPORARY TABLE t",),
    ("CREATE TABLE eb.gone (id INT PRIMARY KEY)", "eb.gone empty"),
    ("DROP DATABASE eb", "eb.gone drop"),
    ("CREATE DATABASE eb",),
    ("ALTER DATABASE eb CHARACTER SET latin1",),
]
RENAMED = [
    ("CREATE TABLE t_new LIKE t", "t_new empty"),
    ("RENAME TABLE t TO t_old, t_new TO t", "t of t_new", "t_new drop", "t_old of t"),
    ("DROP TABLE t_old", "t_old drop"),
    ("CREATE TABLE hidden LIKE t", "hidden empty"),
    (
        "RENAME TABLE `ea`.`t` TO `ea`.`_t`, `ea`.`hidden` TO `ea`.`t`",
        *("_t of t", "hidden drop", "t hold renamed"),
    ),
    ("RENAME TABLE t TO a1, u TO t, a1 TO u", "t of u", "u of t"),
    ("ALTER TABLE t RENAME TO tt", "t drop", "tt of t"),
    ("ALTER TABLE tt RENAME AS t, ADD COLUMN more INT", "t of tt", "tt drop"),
    ("ALTER TABLE t DROP COLUMN more, RENAME tt", "t drop", "tt hold schema"),
    ("RENAME TABLE ea.tt TO eb.t", "eb.t of tt", "tt drop"),
    ("RENAME TABLE eb.t TO t", "eb.t drop", "t of eb.t"),
    ("RENAME TABLE u TO eb.u", "eb.u hold renamed", "u hold renamed"),
    ("CREATE VIEW w AS SELECT * FROM t",),
    ("RENAME TABLE w TO w2",),
    ("DROP VIEW w2",),
    ("CREATE TABLE src (id INT PRIMARY KEY, v INT)", "src empty"),
    ("CREATE TABLE _src_new LIKE src", "_src_new empty"),
    ("ALTER TABLE _src_new ADD COLUMN extra INT", "_src_new keep"),
    ("CREATE TRIGGER osc AFTER INSERT ON src FOR EACH ROW REPLACE INTO _src_new VALUES (1, 1, 1)",),
    (
        "RENAME TABLE `ea`.`src` TO `ea`.`_src_old`, `ea`.`_src_new` TO `ea`.`src`",
        *("_src_new drop", "_src_old of src", "src of _src_new"),
    ),
    ("DROP TABLE IF EXISTS `ea`.`_src_old`", "_src_old drop"),
    ("DROP TRIGGER IF EXISTS osc",),
]
ALTERED = [
    ("ADD COLUMN n1 INT NULL", "keep"),
    ("ADD COLUMN n2 INT NOT NULL DEFAULT 7 AFTER id", "keep"),
    ("ADD (n4 INT, n5 VARCHAR(3) DEFAULT 'x')", "keep"),
    ("ADD COLUMN n3 INT NOT NULL", "hold schema"),
    ("ADD n6 DATETIME DEFAULT CURRENT_TIMESTAMP", "hold schema"),
    ("ADD n7 TIMESTAMP", "hold statement"),
    ("ADD n8 INT NULL AUTO_INCREMENT UNIQUE", "hold statement"),
    ("DROP COLUMN n8", "hold schema"),
    ("DROP COLUMN v, ADD COLUMN v INT", "hold schema"),
    ("DROP v, ADD v INT DEFAULT 3", "hold schema"),
    ("MODIFY v BIGINT", "keep"),
    ("CHANGE v w BIGINT", "hold schema"),
    ("CHANGE w v BIGINT UNSIGNED", "hold schema"),
    ("RENAME COLUMN n1 TO n2, RENAME COLUMN n2 TO n1", "hold schema"),
    ("MODIFY s VARCHAR(50)", "keep"),
    ("MODIFY s VARCHAR(5)", "hold schema"),
    ("MODIFY d DATETIME(6)", "hold schema"),
    ("MODIFY e ENUM('a','b','c')", "keep"),
    ("MODIFY e ENUM('b','a','c')", "hold schema"),
    ("MODIFY v BIGINT UNSIGNED NOT NULL DEFAULT 0", "hold schema"),
    ("MODIFY n6 DATETIME ON UPDATE CURRENT_TIMESTAMP", "keep"),
    ("ALTER COLUMN v SET DEFAULT 5", "keep"),
    ("ADD COLUMN g INT AS (id * 2) STORED", "hold schema"),
    ("MODIFY g INT AS (id * 4) STORED", "hold statement"),
    ("ADD INDEX ix (v), ADD UNIQUE KEY uq (s, id)", "keep"),
    ("DROP INDEX ix, RENAME INDEX uq TO uq2", "keep"),
    ("DROP PRIMARY KEY", "hold schema"),
    ("ADD PRIMARY KEY (id)", "hold schema"),
    ("ADD CHECK (id > 0), ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES narrow (id)", "keep"),
    ("DROP FOREIGN KEY fk", "keep"),
    ("CONVERT TO CHARACTER SET latin1", "hold statement"),
    ("CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "keep"),
    ("DEFAULT CHARACTER SET utf8mb4", "keep"),
    ("MODIFY s VARCHAR(50) CHARACTER SET latin1", "hold statement"),
    ("COMMENT = 'RENAME TO x, DROP PARTITION p0', AUTO_INCREMENT = 1000", "keep"),
    ("ENGINE=InnoDB, FORCE", "keep"),
    ("ADD c1 INT COMMENT 'AS (1)', MODIFY s VARCHAR(60), RENAME INDEX uq2 TO u3", "keep"),
    ("ORDER BY v, id DESC", "keep"),
    ("/* ADD zz INT */ ADD -- DROP s\n y1 INT # DROP v", "keep"),
    ("ADD y2 INT /*!50000 COMMENT 'x' */", "keep"),
]
PARTED = [
    ("DROP PARTITION p1", "p hold statement"),
    ("TRUNCATE PARTITION p0", "p hold statement"),
    ("REORGANIZE PARTITION pm INTO (PARTITION p2 VALUES LESS THAN (99))", "p keep"),
    ("ADD PARTITION (PARTITION p3 VALUES LESS THAN (200))", "p keep"),
    ("EXCHANGE PARTITION p3 WITH TABLE px", "p hold statement", "px hold statement"),
    ("REBUILD PARTITION p0, p2", "p keep"),
    ("REMOVE PARTITIONING", "p keep"),
    ("PARTITION BY HASH (id) PARTITIONS 4", "p keep"),
    ("COALESCE PARTITION 2", "p keep"),
    ("ADD PARTITION PARTITIONS 2", "p keep"),  # Debezium cannot read it
    ("TRUNCATE PARTITION ALL", "p empty"),
]
PARTITIONS = "PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20)"
PARTITIONED = f"PARTITION BY RANGE (id) ({PARTITIONS}, PARTITION pm VALUES LESS THAN (90))"
OTHER = [
    ("CREATE INDEX ix ON t (v)",),
    ("CREATE TABLE keyless (a INT NOT NULL)", "keyless empty"),
    ("CREATE UNIQUE INDEX ix ON keyless (a)", "keyless hold schema"),  # it is the key now
    ("DROP INDEX ix ON t",),
    ("OPTIMIZE TABLE t",),
    ("FLUSH TABLES",),
    ("CREATE PROCEDURE pr() TRUNCATE TABLE t",),
    ("DROP PROCEDURE pr",),
    ("CREATE EVENT ev ON SCHEDULE AT '2037-01-01' DO TRUNCATE TABLE px",),
    ("DROP EVENT ev",),
    ("/*!50000 ALTER TABLE t ADD COLUMN y3 INT */", "t hold statement"),
    ("ALTER /*!40000 TABLE */ t ADD COLUMN y4 INT", "t hold statement"),
    ("SET SESSION sql_mode = 'ANSI_QUOTES'",),
    ('CREATE TABLE "ansi" ("id" INT PRIMARY KEY)', "ansi empty"),
    ('ALTER TABLE "ansi" ADD COLUMN "q" INT', "ansi keep"),
    ('RENAME TABLE "ansi" TO "ansi2"', "ansi drop", "ansi2 of ansi"),
    ("SET SESSION sql_mode = DEFAULT",),
    ('CREATE TABLE `we"ird.x``y` (`a.b``"` INT PRIMARY KEY)', '"we""ird.x`y" empty'),
    ('ALTER TABLE `we"ird.x``y` ADD `sp ace,(` INT', '"we""ird.x`y" keep'),
    (
        'RENAME TABLE `we"ird.x``y` TO `RENAME TABLE a TO b`',
        *('"we""ird.x`y" drop', 'RENAME TABLE a TO b of "we""ird.x`y"'),
    ),
    ("DROP TABLE `RENAME TABLE a TO b`", "RENAME TABLE a TO b drop"),
    ("CREATE TABLE `e.dot`.`t.t` (id INT PRIMARY KEY)", '"e.dot"."t.t" empty'),
    ("CREATE TABLE Big (Id INT PRIMARY KEY)", "Big empty"),
    ("ALTER TABLE Big ADD v INT;", "Big keep"),
    ("DROP TABLE IF EXISTS t CASCADE", "t drop"),
    ("CREATE TABLE t (id INT PRIMARY KEY)", "t empty"),
]
STORY: list[tuple[str, ...]] = [
    *MADE,
    *RENAMED,
    *((f"ALTER TABLE t {clauses}", f"t {effect}") for clauses, effect in ALTERED),
    (f"CREATE TABLE p (id INT PRIMARY KEY) {PARTITIONED}", "p empty"),
    ("CREATE TABLE px (id INT PRIMARY KEY)", "px empty"),
    *((f"ALTER TABLE p {clauses}", *expected) for clauses, *expected in PARTED),
    *OTHER,
]

Place = tuple[int, int]


@dataclass(eq=False)
class Run:
    """Statements with what was sent for each."""

    servers: Servers
    ranges: list[tuple[Place, Place]] = field(default_factory=list)
    sent: list[SchemaEvent] = field(default_factory=list)

    def of(self, number: int) -> list[SchemaEvent]:
        low, high = self.ranges[number]
        return [t for t in self.sent if low <= (t.order.log, t.order.pos) < high]

    def said(self, statement: str) -> list[SchemaEvent]:
        return self.of([text for text, *_ in STORY].index(statement))


@pytest.fixture(scope="module")
def run(servers: Servers) -> Run:
    for database in OURS:
        servers.mysql.execute(f"CREATE DATABASE `{database}`")
    servers.mysql.execute("CREATE TABLE ea.hidden_before (id INT PRIMARY KEY)")
    settings = {"schema.history.internal.skip.unparseable.ddl": "true"}
    config = mysql_connector(
        servers.mysql,
        servers.kafka.bootstrap,
        prefix=PREFIX,
        databases=["ea", "eb", r"e\.dot"],
        tables=CAPTURED,
        settings=settings,
    )
    servers.connect.register(PREFIX, config)
    wait_until(
        lambda: any("hidden_before" in t.text for t in sent_events(servers)), PATIENCE, "snapshot"
    )
    run = Run(servers)
    with servers.mysql.connect(database="ea") as connection, connection.cursor() as cursor:
        before = log_position(cursor)
        for statement, *_ in STORY:
            cursor.execute(statement)
            run.ranges.append((before, before := log_position(cursor)))
    servers.mysql.execute(f"CREATE TABLE ea.{END} (id INT PRIMARY KEY)")
    wait_until(
        lambda: any(END in t.text for t in sent_events(servers)), PATIENCE, "every statement"
    )
    servers.connect.deregister(PREFIX)
    # the collector tells of every table of the server, those of other tests among them
    run.sent = [
        t for t in sent_events(servers) if all(shard.database in OURS for shard, _ in t.tables)
    ]
    return run


def test_every_statement_is_read_as_meant(run: Run) -> None:
    known = KnownTables(captured)
    found = []
    for number, (statement, *_) in enumerate(STORY):
        made, known = follow_statements(run.of(number), known)
        held = {e.shard for e in made if isinstance(e, BaseNeeded)} & set(known.schemas)
        known = replace(known, based=known.based | held)
        found.append((statement, *sorted(written(effect).replace("ea.", "") for effect in made)))

    assert found == [(statement, *sorted(expected)) for statement, *expected in STORY]


def test_what_happens_to_several_tables_comes_as_one_message_each_at_one_order(run: Run) -> None:
    swap = run.said("RENAME TABLE t TO a1, u TO t, a1 TO u")
    drop = run.said("DROP TABLE x1, x2")

    assert [t.text for t in swap] == [
        "RENAME TABLE t TO a1",
        "RENAME TABLE u TO t",
        "RENAME TABLE a1 TO u",
    ]
    assert [len(t.tables) for t in swap] == [0, 1, 1]
    assert [t.text for t in drop] == ["DROP TABLE `ea`.`x1`", "DROP TABLE `ea`.`x2`"]
    assert len({t.order for t in swap}) == len({t.order for t in drop}) == 1


def test_f07_a_create_that_changed_nothing_is_described_with_anothers_columns(run: Run) -> None:
    (plain,) = run.said("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)")
    (like,) = run.said("CREATE TABLE IF NOT EXISTS narrow LIKE u")

    assert plain.tables == ()
    ((shard, schema),) = like.tables
    assert shard == ShardId("ea", "narrow")
    assert schema is not None
    assert len(schema.columns) == 5


def test_a_table_that_is_not_captured_is_described_all_the_same(run: Run) -> None:
    snapshot = {shard for t in run.sent if t.snapshot for shard, _ in t.tables}

    assert ShardId("ea", "hidden_before") in snapshot
    assert run.said("CREATE TABLE hidden LIKE t")[0].tables


def test_the_database_told_is_that_of_the_new_name_not_the_sessions(run: Run) -> None:
    (moved,) = run.said("RENAME TABLE u TO eb.u")

    assert moved.database == "eb"


def test_a_truncate_comes_among_the_rows_of_its_table_and_only_when_it_runs(run: Run) -> None:
    """Neither for a temporary table of that name, nor where a body of an event says so."""
    truncates = [record["op"] for record in read_messages(run.servers, f"{PREFIX}.ea.t")]

    assert truncates == ["t"]
    assert [*read_messages(run.servers, f"{PREFIX}.ea.px")] == []


def captured(shard: ShardId) -> bool:
    return not shard.relation.startswith("hidden")


def log_position(cursor: Cursor) -> Place:
    cursor.execute("SHOW MASTER STATUS")
    file, pos, *_ = cursor.fetchone() or ()
    return int(file.rpartition(".")[2]), pos


def sent_events(servers: Servers) -> list[SchemaEvent]:
    found = []
    for record in read_messages(servers, PREFIX):
        source = record["source"]
        log = int(source["file"].rpartition(".")[2])
        found.append(read(json.dumps(record), Order(1, log, source["pos"], source["row"])))
    return found


def read_messages(servers: Servers, topic: str) -> Iterator[dict[str, Any]]:
    found = records(servers.kafka.bootstrap, topic)
    yield from (json.loads(record.value) for record in found if record.value)
