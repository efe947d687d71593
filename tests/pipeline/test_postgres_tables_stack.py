"""Tables of every kind on a real Postgres: partitions, replica identities, TRUNCATE, no key.

Each is mirrored right, or stands by name.
"""

from collections.abc import Callable

import psycopg
import pytest

from pipeline.build import open_source
from pipeline.settings import TableRule
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]

COLUMNS = "(id INT PRIMARY KEY, name VARCHAR(80))"
PLAIN = ("usual", "whole", "indexed", "nothing", "parent", "one", "two", "anew", "root")
TABLES = (
    *(f"CREATE TABLE {name} {COLUMNS}" for name in PLAIN[:-1]),
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_pkey",
    "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    "CREATE TABLE keyless (id INT, name VARCHAR(80))",
    "CREATE TABLE child (id INT PRIMARY KEY, name VARCHAR(80), of INT REFERENCES parent)",
    f"CREATE TABLE root {COLUMNS} PARTITION BY RANGE (id)",
    "CREATE TABLE root_1 PARTITION OF root FOR VALUES FROM (1) TO (100)",
    "CREATE TABLE root_2 PARTITION OF root FOR VALUES FROM (100) TO (200)",
    *(f"INSERT INTO {name} VALUES (1, 'old'), (2, 'old')" for name in (*PLAIN, "keyless")),
    "INSERT INTO root VALUES (101, 'old')",
    "INSERT INTO child VALUES (1, 'old', 1)",
    "ALTER PUBLICATION sluice SET (publish_via_partition_root = true)",
)
WRITTEN = (
    *(
        f"{statement} {name} {rest}"
        for name in ("usual", "whole", "indexed", "root")
        for statement, rest in (
            ("UPDATE", "SET name = 'new' WHERE id = 1"),
            ("DELETE FROM", "WHERE id = 2"),
            ("UPDATE", "SET id = 150 WHERE id = 1"),
            ("INSERT INTO", "VALUES (3, 'third')"),
        )
    ),
    "INSERT INTO nothing VALUES (3, 'third')",
    "INSERT INTO keyless VALUES (3, 'third')",
    "TRUNCATE parent CASCADE",
    "INSERT INTO parent VALUES (7, 'seventh')",
    "TRUNCATE one, two RESTART IDENTITY",
    "INSERT INTO one VALUES (2, 'again')",
    "CREATE TABLE root_3 PARTITION OF root FOR VALUES FROM (200) TO (300)",
    "INSERT INTO root VALUES (201, 'in a new one')",
)


@pytest.fixture
def pipe(postgres_pipe: Callable[..., PostgresPipe]) -> PostgresPipe:
    """All snapshots are landed; a leaf's changes are its root's."""
    p: PostgresPipe = postgres_pipe("kinds", rules=(TableRule(r"public\.root_\d+", ignore=True),))
    p.sql(*TABLES)
    p.start()
    p.catch_up()
    return p


def test_each_kind_of_table_is_mirrored_or_stands_by_name(pipe: PostgresPipe) -> None:
    p = pipe
    p.sql(*WRITTEN)
    for statement in ("DELETE FROM nothing", "UPDATE keyless SET name = ''"):
        with pytest.raises(psycopg.Error, match="does not have a replica identity"):
            p.sql(statement)
    p.catch_up()

    right = ("usual", "whole", "indexed", "nothing", "parent", "child", "one", "two", "root")
    mirrors = {name: p.pairs(name) for name in right}
    assert mirrors == {name: p.source_pairs(name) for name in right}
    holds = {(one.table, one.hold.reason) for one in p.applied if one.hold is not None}
    assert holds == {("public.keyless", "no_key")}
    (delay,) = p.lane.checkpoint.gaps.values()
    assert delay.shards == (f"{p.name}/public.nothing",)
    assert "REPLICA IDENTITY NOTHING on public.nothing" in delay.why
    said = open_source(p.source()).describe({f"public.{name}" for name in (*right, "keyless")})
    assert said.unlogged.keys() == {"public.nothing"}

    p.sql("DROP TABLE anew", f"CREATE TABLE anew {COLUMNS}", "INSERT INTO anew VALUES (9, 'new')")
    p.until(lambda: len(p.lane.checkpoint.gaps) > 1)
    p.sql("ALTER TABLE root DETACH PARTITION root_2", "INSERT INTO root VALUES (4, 'fourth')")
    p.until(lambda: len(p.lane.checkpoint.gaps) > 2)
    p.catch_up()
    gaps = {one.shards: one.why for one in p.lane.checkpoint.gaps.values()}
    del gaps[delay.shards]
    assert gaps.keys() == {(f"{p.name}/public.anew",), (f"{p.name}/public.root",)}
    assert all("a statement that its log leaves out" in why for why in gaps.values())
    assert p.pairs("anew") != p.source_pairs("anew")
    assert p.pairs("root") != p.source_pairs("root")
