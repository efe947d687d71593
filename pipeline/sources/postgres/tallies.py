"""What statement adds the rows of a Postgres table up between two moments?  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.errors import ProofError
from pipeline.model import Shard, ShardId
from pipeline.sources.postgres.column import PostgresColumn
from pipeline.tallies import DIGITS, TalliedField

TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ"})
NUMBERS = frozenset({"INT2", "INT4", "INT8", "OID", "NUMERIC"})
TEXTS = frozenset({"VARCHAR", "TEXT", "NAME", "ENUM", "UUID"})


def statement(
    columns: Sequence[PostgresColumn], shard: Shard, column: str, fields: Sequence[TalliedField]
) -> str:
    """One with two places for moments; ``n`` are rows, ``s0``, ``s1``, ... sums.

    Raises:
        ProofError: there is no such column, or it is of another kind.
    """
    known = {one.name: one for one in columns}
    _require(known, shard, column, TIMES, "is no date or time")
    sums = ""
    for number, one in enumerate(fields):
        kinds, why = (TEXTS, "is no text") if one.text else (NUMBERS, "is no whole or exact number")
        _require(known, shard, one.name, kinds, why)
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


def _require(
    known: Mapping[str, PostgresColumn], shard: Shard, name: str, kinds: frozenset[str], why: str
) -> None:
    if name not in known:
        raise ProofError(f"{shard} has no column {name!r}; it has {', '.join(known) or 'none'}")
    if known[name].kind not in kinds:
        raise ProofError(f"{shard}: {name} ({known[name].kind}) {why}")


def _quoted(name: str) -> str:
    return f'"{name.replace(chr(34), 2 * chr(34)).replace("%", "%%")}"'
