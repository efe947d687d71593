"""Which rows follow a key?  Conditions on the columns of a key, whatever their types.

The server compares by its own collations; so a key goes out as a text and comes back as a value
that means the same there.  A bound that names only a key's first columns stands for all keys that
begin so.  ENUM, SET and BIT are ordered by their numbers.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pipeline.errors import ConfigError
from pipeline.sources.asked_keys import require_columns
from pipeline.sources.condition import SqlCondition, Value
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.key_values import one_of
from pipeline.sources.mysql.typemap import BYTES, GEOMETRIES, WHOLE
from pipeline.sources.mysql.wire_text import Raw
from pipeline.sources.row_reader import KeyTexts

INTEGERS = (*WHOLE, "BIGINT")
COUNTED = ("ENUM", "SET", "BIT")
NUMBERED = (*INTEGERS, "YEAR", *COUNTED)
UNORDERED = ("FLOAT", "DOUBLE", "JSON", *GEOMETRIES)


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a key, in its order, and how the server is asked about them."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, shard: str, columns: Sequence[Column], key: Sequence[str]) -> "KeyColumns":
        """Those of *key* among the shard's.

        Raises:
            ConfigError: there is no key to read by; says of which shard, and why.
        """
        by_name = {column.name: column for column in columns}
        require_columns(shard, key, by_name)
        for name in key:
            if by_name[name].kind in UNORDERED:
                msg = (
                    f"{shard}: key column {name} is a {by_name[name]}, by which nobody can read on"
                )
                raise ConfigError(msg)
        return cls(tuple(by_name[name] for name in key))

    @property
    def wanted(self) -> tuple[str, ...]:
        """What the server orders by, and is asked for, one for each column."""
        return tuple(_asked(column) for column in self.columns)

    @property
    def order(self) -> str:
        """What stands behind ORDER BY."""
        return ", ".join(self.wanted)

    def texts(self, row: Sequence[Raw]) -> KeyTexts:
        """A row's values of ``wanted`` as texts."""
        return tuple(value.hex() if isinstance(value, bytes) else str(value) for value in row)

    def above(self, key: KeyTexts) -> SqlCondition:
        """Rows after all that begin with *key*."""
        return self._beyond(key, ">", ">")

    def up_to(self, key: KeyTexts) -> SqlCondition:
        """Rows not above those that begin with *key*."""
        return self._beyond(key, "<", "<=")

    def among(self, shard: str, keys: Sequence[str]) -> SqlCondition:
        """Rows under one of *keys*, each the JSON array of their texts in the log."""
        return one_of(shard, self.columns, keys)

    def _beyond(self, key: KeyTexts, sign: str, last: str) -> SqlCondition:
        """One alternative for each column, and for indexes a condition on the first alone."""
        values = self._values(key)
        asked = self.wanted[: len(values)]
        parts, arguments = [], list[Value]()
        for at, name in enumerate(asked):
            equal = [f"{before} = %s" for before in asked[:at]]
            ends = last if at == len(asked) - 1 else sign
            parts.append(" AND ".join([*equal, f"{name} {ends} %s"]))
            arguments += values[: at + 1]
        if len(parts) == 1:
            return parts[0], tuple(arguments)
        bound = f"{asked[0]} {sign}= %s"
        return f"{bound} AND ({' OR '.join(f'({p})' for p in parts)})", (values[0], *arguments)

    def _values(self, key: KeyTexts) -> list[Value]:
        return [_value(column, text) for column, text in zip(self.columns, key, strict=False)]


def _asked(column: Column) -> str:
    name = f"`{column.name.replace('`', '``').replace('%', '%%')}`"
    return f"{name} + 0" if column.kind in COUNTED else name


def _value(column: Column, text: str) -> Value:
    if column.kind in NUMBERED:
        return int(text)
    if column.kind == "DECIMAL":
        return Decimal(text)
    return bytes.fromhex(text) if column.kind in BYTES else text
