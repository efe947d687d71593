"""What statement adds the rows of a MySQL table up between two moments?  Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pipeline.aggregates import DIGITS, Moment, TalliedField, TalliedKinds
from pipeline.model import Shard
from pipeline.sources.mysql.column import MySqlColumn

KINDS = TalliedKinds(
    times=frozenset({"DATE", "DATETIME", "TIMESTAMP"}),
    numbers=frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "DECIMAL", "YEAR"}),
    texts=frozenset({"CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM"}),
)
DATED = frozenset({"DATE", "DATETIME"})


def statement(
    columns: Sequence[MySqlColumn], shard: Shard, column: str, fields: Sequence[TalliedField]
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
            md5 = f"MD5(CONVERT({value} USING utf8mb4))"
            value = f"CAST(CONV(LEFT({md5}, {DIGITS}), 16, 10) AS UNSIGNED)"
        sums += f", SUM({value}) AS s{number}"
    table = f"{_quoted(shard.database)}.{_quoted(shard.relation)}"
    time = _quoted(column)
    where = f"{time} >= %s AND {time} < %s"
    if known[column].kind in DATED:  # 2026-03-00 lies between two days, and is none in any mirror
        where += f" AND DAYOFMONTH({time}) > 0 AND MONTH({time}) > 0"
    return f"SELECT COUNT(*) AS n{sums} FROM {table} WHERE {where}"  # noqa: S608


def argument(moment: Moment) -> Moment:
    """As the session compares it: in UTC, without saying so."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None)
    return moment


def _quoted(name: str) -> str:
    """As `quoted` of a session, with what its placeholders are made of twice."""
    return f"`{name.replace('`', '``')}`".replace("%", "%%")
