"""Which schema changes has a lane landed?  Read by batch, without Spark."""

from pipeline.lake.query import Pinned, literal
from pipeline.model import Op, Order

_PLACE = ("epoch", "log", "pos", "row")


def schema_changes(log: Pinned, lane: str, after: int) -> tuple[tuple[str, Order, str], ...]:
    """(Source, order, payload) of those in batches above *after*, as they have landed.

    Several of one order (a statement that swaps two tables) mean something in that order only.
    """
    place = ", ".join(f"t.\"order\"['{part}'] AS p{i}" for i, part in enumerate(_PLACE))
    found = log.select(
        f'SELECT source, "after" AS payload, {place} FROM t WHERE lane = {literal(lane)}'  # noqa: S608
        f' AND batch > {after} AND op = {literal(Op.DDL)} AND t."order" IS NOT NULL'
        ' ORDER BY batch, topic, t."offset"'
    )
    return tuple(
        (row["source"], Order(*(int(row[f"p{i}"]) for i in range(len(_PLACE)))), row["payload"])
        for row in found
    )
