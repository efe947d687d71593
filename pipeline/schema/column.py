"""What is known of a column outside its source?  Its name, and who knows all the rest.  Pure."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pipeline.model import Order

if TYPE_CHECKING:
    from pipeline.schema.dialect import Dialect


class Column(Protocol):
    """A column as its source's dialect describes it; compared by ``==``, told to people by str."""

    @property
    def name(self) -> str:
        """Its name, as it stands in messages and in the mirror."""
        ...

    @property
    def dialect(self) -> "Dialect":
        """What knows its type."""
        ...


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of one shard from *order* on, in their order, and the names of its key's.

    ``statement`` is the text of what made them so, if any is known.
    """

    shard: str
    order: Order
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    statement: str = field(default="", compare=False)

    def column(self, name: str) -> Column | None:
        """The column of that name; None if there is none."""
        return next((column for column in self.columns if column.name == name), None)
