"""What does one schema change tell, whoever sent it: a statement, and tables as they are then?

Pure.
"""

from dataclasses import dataclass

from pipeline.model import Order, ShardId
from pipeline.schema.column import TableSchema
from pipeline.schema.notation import Notation


@dataclass(frozen=True, slots=True)
class ColumnTold:
    """A column in the message's words: what its type and its values' texts mean the source knows.

    ``length`` and ``scale`` are the numbers behind the type's name, ``default`` the text of the
    default, None for none; ``values`` are the labels that an enumeration allows.
    ``notation`` is that of its values in rows.
    """

    name: str
    type: str
    length: int | None = None
    scale: int | None = None
    nullable: bool = True
    default: str | None = None
    position: int = 0
    values: tuple[str, ...] = ()
    notation: Notation = Notation.CONNECT


@dataclass(frozen=True, slots=True)
class TableTold:
    """A table that a message describes; ``kind`` is ``create``, ``alter`` or ``drop``.

    ``columns`` and ``key`` are those from then on; none of a table that is dropped.
    """

    shard: ShardId
    kind: str
    columns: tuple[ColumnTold, ...] = ()
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaMessage:
    """What a format reads of a schema change; ``tables`` may be none, others as in `Told`."""

    text: str
    database: str | None = None
    tables: tuple[TableTold, ...] = ()
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """A message whose columns are understood.  ``database`` is None if it names none.

    ``tables`` are those it describes: with their columns from then on, or None for one dropped.
    ``snapshot`` if it describes what is about to be read, and nothing happened.
    """

    order: Order
    text: str
    database: str | None
    tables: tuple[tuple[ShardId, TableSchema | None], ...] = ()
    snapshot: bool = False
