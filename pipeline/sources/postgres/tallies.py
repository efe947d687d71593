"""What statement adds the rows of a Postgres table up between two moments?  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.aggregates import DIGITS, TalliedField, TalliedKinds
from pipeline.model import Shard, ShardId
from pipeline.sources.postgres.column import PostgresColumn

KINDS = TalliedKinds(
    times=frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ"}),
    numbers=frozenset({"INT2", "INT4", "INT8", "OID", "NUMERIC"}),
    texts=frozenset({"VARCHAR", "TEXT", "NAME", "ENUM", "UUID"}),
)


def statement(
    columns: Sequence[PostgresColumn], shard: Shard, column: str, fields: Sequence[TalliedField]
) -> str:
    """One with two places for moments; ``n`` are rows, ``s0``, ``s1``, ... sums.

    Raises:
        ProofError: there is no such column, or it is of another kind.
    """
    known = KINDS.known(columns, shard, column, fields)
    sums = ""
    for number, one in enumerate(fields):
        value = _quoted(one.name)
        if one.text:
            md5 = f"md5(convert_to({value}::text, 'UTF8'))"
            value = f"('x' || left({md5}, {DIGITS}))::bit({4 * DIGITS})::bigint"
        elif known[one.name].kind == "OID":
            value = f"{value}::bigint"  # nobody adds up an OID
        sums += f", sum({value}) AS s{number}"
    own, time = ShardId.parse(shard.name), _quoted(column)
    table = f"{_quoted(own.database)}.{_quoted(own.relation)}"
    return f"SELECT count(*) AS n{sums} FROM {table} WHERE {time} >= %s AND {time} < %s"  # noqa: S608


def scanned(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tables, with their schemas, that *plan* (of EXPLAIN VERBOSE) reads whole to find some rows.

    What such a step gives is what its condition lets through, and not what it reads.
    """
    if plan["Node Type"] == "Seq Scan" and "Filter" in plan:
        yield plan["Schema"], plan["Relation Name"]
    for step in plan.get("Plans", []):
        yield from scanned(step)


def _quoted(name: str) -> str:
    return f'"{name.replace(chr(34), 2 * chr(34)).replace("%", "%%")}"'
