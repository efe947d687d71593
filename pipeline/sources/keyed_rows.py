"""By which statements are a table's rows read along a key?  The same on every server with SQL.

In the SQL that is given a ``%`` of its own stands doubled, and ``%s`` for a value.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from pipeline.errors import ConfigError, ProofError, TooManyRowsError, UnreachableError
from pipeline.sources.condition import SqlCondition, require_known, written
from pipeline.sources.row_reader import KeyTexts, RowsAsked

Found = tuple[pa.RecordBatch, KeyTexts | None, bool]
"""Rows, the key of the last that was looked at, and whether none is left."""


class SqlKey(Protocol):
    """The columns of a key, in its order, and how the server is asked about them."""

    @property
    def order(self) -> str:
        """What stands behind ORDER BY."""
        ...

    @property
    def wanted(self) -> tuple[str, ...]:
        """What is asked for to get a row's key."""
        ...

    def texts(self, row: Sequence[Any]) -> KeyTexts:
        """A row's values of ``wanted`` as texts."""
        ...

    def above(self, key: KeyTexts) -> SqlCondition:
        """Rows after all that begin with *key*."""
        ...

    def up_to(self, key: KeyTexts) -> SqlCondition:
        """Rows not above those that begin with *key*."""
        ...

    def among(self, shard: str, keys: Sequence[str]) -> SqlCondition:
        """Rows under one of *keys*, each the JSON array of their texts in the log.

        Raises:
            ConfigError: one of them is no key of the shard.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table as its server is asked for it.

    ``name`` and what is ``wanted`` of a row are SQL; ``columns`` are those that a condition may
    speak of, and ``quoted`` writes the name of one.  ``ask`` gives the rows of an answer as the
    server wrote them.
    """

    name: str
    wanted: tuple[str, ...]
    columns: Collection[str]
    key: SqlKey
    quoted: Callable[[str], str]
    ask: Callable[..., pa.RecordBatch]

    def found(self, asked: RowsAsked) -> Found:
        """Rows with their key behind what is wanted of each.

        Under a condition the end of what is looked at is asked for first: a statement then costs
        no more where few rows meet it.

        Raises:
            ConfigError: the condition cannot be asked.
            TooManyRowsError: the server was too slow for so many.
        """
        key, wanted = self.key, (*self.wanted, *self.key.wanted)
        conditions = self._conditions(asked)
        if asked.where is None:
            found = self._select(asked, wanted, conditions)
            return found, self._last(found), len(found) < asked.limit
        require_known(asked.where, asked.shard.name, self.columns)
        end = replace(asked, limit=asked.limit - 1)
        ends = self._select(end, key.wanted, conditions, "1 OFFSET %s")
        last = key.texts(_row(ends, 0)) if len(ends) else None
        if last is not None:
            conditions.append(key.up_to(last))
        conditions.append(written(asked.where, self.quoted))
        found = self._select(asked, wanted, conditions)
        if len(found) == asked.limit:  # rows may have come in between, and have pushed others out
            return found, self._last(found), False
        return found, last, last is None

    def _last(self, found: pa.RecordBatch) -> KeyTexts | None:
        return self.key.texts(_row(found, -1)[len(self.wanted) :]) if len(found) else None

    def _conditions(self, asked: RowsAsked) -> list[SqlCondition]:
        conditions = list[SqlCondition]()
        if asked.after is not None:
            conditions.append(self.key.above(asked.after))
        if asked.until is not None:
            conditions.append(self.key.up_to(asked.until))
        if asked.keys:
            conditions.append(self.key.among(asked.shard.name, asked.keys))
        return conditions

    def _select(
        self,
        asked: RowsAsked,
        wanted: Sequence[str],
        conditions: Sequence[SqlCondition],
        limit: str = "%s",
    ) -> pa.RecordBatch:
        where = " AND ".join(f"({text})" for text, _ in conditions) or "TRUE"
        arguments = [value for _, values in conditions for value in values]
        order = f"ORDER BY {self.key.order} LIMIT {limit}"
        statement = f"SELECT {', '.join(wanted)} FROM {self.name} WHERE {where} {order}"  # noqa: S608
        try:
            return self.ask(statement, *arguments, asked.limit)
        except UnreachableError as error:
            if ": slow: " in str(error):
                raise TooManyRowsError(str(error)) from error
            raise
        except ProofError as error:
            if asked.where is None:
                raise
            raise ConfigError(f"{error}; ask by another condition") from error


def _row(rows: pa.RecordBatch, at: int) -> list[Any]:
    return [column[at].as_py() for column in rows.columns]
