"""Which rows follow a key?  Rows compared as a whole, as their own index does.

Server and index order by the collation that a column has, and so does every bound that goes back
there: a key comes as a text, and is read as its column's type again.  A bound that names only a
key's first columns stands for all keys that begin so.  Types that an extension brings have an order
that our search path does not find: these go by their text, byte by byte, without an index.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import ConfigError
from pipeline.sources.asked_keys import require_columns
from pipeline.sources.condition import SqlCondition
from pipeline.sources.postgres.key_values import one_of
from pipeline.sources.postgres.read_columns import ReadColumn
from pipeline.sources.postgres.session import quoted
from pipeline.sources.row_reader import KeyTexts

UNORDERED = (
    "FLOAT4",
    "FLOAT8",
    "JSON",
    "XML",
    "POINT",
    "BOX",
    "LINE",
    "LSEG",
    "PATH",
    "POLYGON",
    "CIRCLE",
)


@dataclass(frozen=True, slots=True)
class ReadKey:
    """The columns of a key, in its order, and how the server is asked about them."""

    columns: tuple[ReadColumn, ...]

    @classmethod
    def of(cls, shard: str, columns: Sequence[ReadColumn], key: Sequence[str]) -> "ReadKey":
        """Those of *key* among the shard's.

        Raises:
            ConfigError: there is no key to read by; says of which shard, and why.
        """
        by_name = {one.name: one for one in columns}
        require_columns(shard, key, by_name)
        for name in key:
            if by_name[name].column.kind in UNORDERED:
                told = by_name[name].column
                raise ConfigError(
                    f"{shard}: key column {name} is a {told}, by which nobody reads on"
                )
            if by_name[name].column.nullable:
                msg = f"{shard}: key column {name} may be NULL, and such rows follow no key"
                raise ConfigError(f"{msg}; ALTER TABLE ... ALTER COLUMN ... SET NOT NULL")
        return cls(tuple(by_name[name] for name in key))

    @property
    def order(self) -> str:
        """What stands behind ORDER BY."""
        return ", ".join(map(_asked, self.columns))

    @property
    def wanted(self) -> tuple[str, ...]:
        """What is asked for to get a row's key: the values as they are."""
        return tuple(quoted(one.name) for one in self.columns)

    def texts(self, row: Sequence[str | None]) -> KeyTexts:
        """A row's values of ``wanted``; none is NULL."""
        return tuple(value or "" for value in row)

    def above(self, key: KeyTexts) -> SqlCondition:
        """Rows after all that begin with *key*."""
        return self._compared(">", key)

    def up_to(self, key: KeyTexts) -> SqlCondition:
        """Rows not above those that begin with *key*."""
        return self._compared("<=", key)

    def among(self, shard: str, keys: Sequence[str]) -> SqlCondition:
        """Rows under one of *keys*, each the JSON array of their texts in the log."""
        return one_of(shard, self.columns, keys)

    def _compared(self, sign: str, key: KeyTexts) -> SqlCondition:
        asked = ", ".join(_asked(one) for one in self.columns[: len(key)])
        return f"({asked}) {sign} ({', '.join(['%s'] * len(key))})", key


def _asked(one: ReadColumn) -> str:
    return quoted(one.name) if one.ordered else f'{quoted(one.name)}::text COLLATE "C"'
