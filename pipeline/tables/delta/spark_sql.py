"""How are a mirror's names, values, types and rows told in Spark's SQL?  No Spark runs here.

A row of the mirror is ``t``; what is in its ``_sluice`` may be missing, as in an adopted table.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from pipeline.apply.adoption import RANK, SHARD, SOURCE, Adoption
from pipeline.apply.floors import Floors

INSERT, UPDATE, DELETE = 0, 1, 2  # what a row of ``changes`` does


def merge(target: str, names: Mapping[str, str], on: Sequence[str], gone: str | None) -> str:
    """Bring ``changes`` (*names* of the table's columns in it, and ``act``) to *target*.

    *on* finds the row that a change speaks of; rows of the mirror that are *gone* go.  What a
    MERGE matches is no matter of an insert: the row in its place may be going.
    """
    set_ = ", ".join(f"t.{quoted(name)} = s.{own}" for name, own in names.items())
    values = ", ".join(f"s.{own}" for own in names.values())
    return f"""
        MERGE INTO {target} t USING changes s
        ON s.act <> {INSERT} AND {" AND ".join(on)}
        WHEN MATCHED AND s.act = {UPDATE} THEN UPDATE SET {set_}
        WHEN MATCHED AND s.act = {DELETE} THEN DELETE
        WHEN NOT MATCHED AND s.act = {INSERT} THEN
            INSERT ({", ".join(map(quoted, names))}) VALUES ({values})
        {f"WHEN NOT MATCHED BY SOURCE AND {gone} THEN DELETE" if gone else ""}"""  # noqa: S608


def owner(adoption: Adoption) -> tuple[str, str]:
    """Source and shard of a row of the mirror, in SQL."""
    source, shard = (f"t.{path_of(path)}" for path in (SOURCE, SHARD))
    if (own := adoption.shard) is None:
        return source, shard
    return f"coalesce({source}, {text(own.source)})", f"coalesce({shard}, {text(own.name)})"


def below(floors: Floors, adoption: Adoption) -> str:
    """Whether a row stands below the floor of its shard, in SQL; one without an order does."""
    source, shard = owner(adoption)
    order = [f"t.{path_of(path)}" for path in RANK[:-1]]
    least = adoption.order
    parts = []
    for own, top in floors.items():
        place = ", ".join(f"{n}L" for n in top.parts)
        unknown = "true" if least is None or least < top else "false"
        older = f"coalesce(struct({', '.join(order)}) < struct({place}), {unknown})"
        missing = " OR ".join(f"{part} IS NULL" for part in order)
        parts.append(
            f"({source} = {text(own.source)} AND {shard} = {text(own.name)} "
            f"AND if({missing}, {unknown}, {older}))"
        )
    return f"({' OR '.join(parts)})"


def table(uri: str) -> str:
    """The table in a folder."""
    return f"delta.{quoted(uri)}"


def path_of(path: Sequence[str]) -> str:
    """A column inside a struct."""
    return ".".join(quoted(name) for name in path)


def quoted(name: str) -> str:
    """A name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A text literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def kind_of(kind: pa.DataType) -> str:
    """A type in Spark's words."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return "timestamp_ntz"
    return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
