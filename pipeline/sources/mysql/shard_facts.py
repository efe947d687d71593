"""What do a source's tables look like?  Facts only; `table_findings` rules.

Asked of the dictionary alone: no row of a user's table is read.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pipeline.model import Shard, ShardId
from pipeline.sources.mysql.column import MySqlColumn, described
from pipeline.sources.mysql.session import Row, Session

OWN = ("information_schema", "mysql", "performance_schema", "sys")
HARMLESS = ("NO ACTION", "RESTRICT")


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key by which a change of *parent* changes rows of the table that declares it."""

    name: str
    parent: str
    rule: str


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """A table as its server describes it.

    ``unique`` are the sets of columns that name one row, the primary key first; ``primary`` says
    whether there is one.  ``rows`` is the engine's own estimate; None where it has none.
    """

    shard: Shard
    engine: str = "InnoDB"
    columns: tuple[MySqlColumn, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    primary: bool = False
    cascades: tuple[Cascade, ...] = ()
    rows: int | None = None


def shard_facts(
    session: Session, source: str, wanted: Callable[[str], bool]
) -> tuple[ShardFacts, ...]:
    """Describe every table whose ``database.table`` is *wanted*, sorted; a view is no table."""
    tables = session.ask(
        "SELECT table_schema AS d, table_name AS t, engine AS e, table_rows AS n"
        " FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        " AND table_schema NOT IN (%s, %s, %s, %s)",
        *OWN,
    )
    named = {ShardId(row["d"], row["t"]): row for row in tables}
    chosen = {(own.database, own.relation): row for own, row in named.items() if wanted(str(own))}
    found: list[ShardFacts] = []
    for database in sorted({database for database, _ in chosen}):
        columns, indexes, keys = _described(session, database)
        found += [
            ShardFacts(
                Shard(source, str(ShardId(database, name))),
                str(row["e"]),
                tuple(described(column) for column in columns[name]),
                tuple(_unique(indexes[name])),
                any(index["index_name"] == "PRIMARY" for index in indexes[name]),
                tuple(_cascade(key) for key in keys[name]),
                None if row["n"] is None else int(row["n"]),
            )
            for (own, name), row in sorted(chosen.items(), key=lambda one: one[0])
            if own == database
        ]
    return tuple(found)


def _described(session: Session, database: str) -> tuple[Mapping[str, list[Row]], ...]:
    """Columns, unique indexes and acting foreign keys of one database, each by table."""
    return (
        _by_table(
            session.ask(
                "SELECT * FROM information_schema.columns WHERE table_schema = %s"
                " ORDER BY table_name, ordinal_position",
                database,
            )
        ),
        _by_table(
            session.ask(
                "SELECT table_name, index_name, column_name, nullable, sub_part"
                " FROM information_schema.statistics WHERE table_schema = %s AND non_unique = 0"
                " ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index",
                database,
            )
        ),
        _by_table(
            session.ask(
                "SELECT table_name, constraint_name, unique_constraint_schema,"
                " referenced_table_name, update_rule, delete_rule"
                " FROM information_schema.referential_constraints WHERE constraint_schema = %s"
                " AND (update_rule NOT IN (%s, %s) OR delete_rule NOT IN (%s, %s))",
                *(database, *HARMLESS, *HARMLESS),
            )
        ),
    )


def _by_table(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    tables: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        tables[row["table_name"]].append(row)
    return tables


def _unique(indexes: Iterable[Row]) -> list[tuple[str, ...]]:
    """Column sets of indexes that tell any two rows apart: whole columns, none of them NULL."""
    sets: dict[str, list[Row]] = defaultdict(list)
    for row in indexes:
        sets[row["index_name"]].append(row)
    return [
        tuple(str(row["column_name"]) for row in rows)
        for rows in sets.values()
        if not any(row["nullable"] == "YES" or row["sub_part"] for row in rows)
    ]


def _cascade(row: Row) -> Cascade:
    rules = ((f"ON {on} ", row[f"{on.lower()}_rule"]) for on in ("DELETE", "UPDATE"))
    rule = " ".join(f"{on}{rule}" for on, rule in rules if rule not in HARMLESS)
    parent = f"{row['unique_constraint_schema']}.{row['referenced_table_name']}"
    return Cascade(str(row["constraint_name"]), parent, rule)
