"""Every row of docs/ddl.md says what the code does, and asks for what the hold's text asks for."""

import re
from pathlib import Path

import pytest

from pipeline.schema.model import BaseNeeded, Effect
from pipeline.sources.mysql.ddl_effects import follow_statements
from tests.pipeline.effect_words import written
from tests.pipeline.sources.mysql.test_ddl_effects import BOTH, TABLE, schema_event

PAGE = Path(__file__).parents[2] / "docs" / "ddl.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
SAME = f"d.t:{TABLE}"
DESCRIBED = {  # what the collector tells beside a statement, where it is not t as it was
    "ADD n INT": f"{SAME}, n INT",
    "ADD n INT NOT NULL DEFAULT 7": f"{SAME}, n INT!=7",
    "ADD n INT NOT NULL": f"{SAME}, n INT!",
    "ADD n DATETIME DEFAULT CURRENT_TIMESTAMP": f"{SAME}, n DATETIME()",
    "ADD n INT AS (id * 2)": f"{SAME}, n INT()",
    "ADD n INT NULL AUTO_INCREMENT UNIQUE": f"{SAME}, n INT",
    "MODIFY v BIGINT": "d.t:id INT!, v BIGINT, s VARCHAR:10",
    "MODIFY s VARCHAR(50)": "d.t:id INT!, v INT, s VARCHAR:50",
    "MODIFY v SMALLINT": "d.t:id INT!, v SMALLINT, s VARCHAR:10",
    "MODIFY s VARCHAR(5)": "d.t:id INT!, v INT, s VARCHAR:5",
    "MODIFY v INT NOT NULL": "d.t:id INT!, v INT!, s VARCHAR:10",
    "CHANGE v w INT": "d.t:id INT!, w INT, s VARCHAR:10",
    "RENAME COLUMN v TO w": "d.t:id INT!, w INT, s VARCHAR:10",
    "DROP COLUMN v": "d.t:id INT!, s VARCHAR:10",
    "TRUNCATE TABLE t": "",
    "CREATE TABLE x (id INT PRIMARY KEY)": "d.x:id INT!",
    "CREATE TABLE x LIKE t": f"d.x:{TABLE}",
    "CREATE TABLE t (id INT PRIMARY KEY)": "d.t:id INT!",
    "CREATE TABLE x AS SELECT * FROM t": f"d.x:{TABLE}",
    "RENAME TABLE t TO t_old, u TO t": f"d.t_old:{TABLE}\n{SAME}",
    "RENAME TABLE t TO a, u TO t, a TO u": f"{SAME}\nd.u:{TABLE}",
    "RENAME TO x": f"d.x:{TABLE}",
    "DROP TABLE t": "d.t:",
    "DROP DATABASE d": "",
    "CREATE VIEW w AS SELECT * FROM t": "",
    "INSERT INTO t VALUES (1)": "",
    "WOBBLE t": "",
}
KEYS = {"DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)": "id v"}
ROWS = ROW.findall(PAGE.read_text())


def test_the_table_is_there() -> None:
    statements = [statement for statement, _, _ in ROWS]

    assert len(statements) == len({*statements}) > 40
    assert DESCRIBED.keys() <= {name for text in statements for name in (text, clauses(text))}


@pytest.mark.parametrize(("text", "effect", "advice"), [pytest.param(*r, id=r[0]) for r in ROWS])
def test_a_statement_does_what_the_page_says(text: str, effect: str, advice: str) -> None:
    described = DESCRIBED.get(text, DESCRIBED.get(clauses(text), SAME))

    found, _ = follow_statements(
        [schema_event(text, described, key=KEYS.get(clauses(text), "id"))], BOTH
    )

    assert sorted(map(in_the_tables_words, found)) == sorted(expected(effect))
    for hold in (one for one in found if isinstance(one, BaseNeeded)):
        assert f"take a new base of {hold.shard}" in hold.detail
        assert "base" in advice
        assert ("rebuild" in advice) == ("then rebuild its mirror" in hold.detail)


def clauses(text: str) -> str:
    return text.removeprefix("ALTER TABLE t ")


def expected(cell: str) -> list[str]:
    """The cell's effects, each with its table; ``t`` where none is named."""
    words = ("keep", "empty", "replace", "gone", "hold:")
    effects = [part.strip() for part in cell.split(";") if part.strip() != "none"]
    return [one if one.split()[0] not in words else f"t {one}" for one in effects]


def in_the_tables_words(effect: Effect) -> str:
    _, word, *rest = written(effect).split()
    words = {"of": "replace", "drop": "gone", "hold": f"hold: {' '.join(rest)}"}
    return f"{effect.shard.relation} {words.get(word, word)}"
