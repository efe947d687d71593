"""Asks the replica of a source what probes ask, once it has executed what its primary had.

Each query first notes how far the primary is, and waits until the replica is as far. So an answer
is of a moment after the query began, as an answer of the primary is: a replica that is behind never
looks like a loss. Where the logs do not name their transactions, the progress of a replica is
unknown, and the primary answers: MySQL without GTIDs, MariaDB and Postgres.

Cannot detect: rows that somebody wrote to the replica alone.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan
from pipeline.errors import SparedError
from pipeline.model import Shard
from pipeline.row_digest import Bucketing, DigestColumn, KeyedRow, RangeDigest
from pipeline.schema.model import Column
from pipeline.sources.positions import explain_missing_log, names_transactions
from pipeline.sources.source import LAG, Range, Source, TableQueries, await_head

POLL = timedelta(milliseconds=100)


@dataclass(eq=False)
class ReplicaQueries(TableQueries):
    """Queries about the tables of ``primary``, answered by ``replica``; columns by the primary.

    ``where`` is the replica's address, for messages. It may take ``patience`` to be as far as the
    primary was. Every query of rows raises SparedError after that.
    """

    primary: Source
    replica: Source
    where: str
    patience: timedelta

    def columns(self, shard: Shard) -> Sequence[Column]:
        return self.primary.columns(shard)

    def max_id(self, shard: Shard, column: str) -> int | None:
        return self._server().max_id(shard, column)

    def min_id(self, shard: Shard, column: str) -> int | None:
        return self._server().min_id(shard, column)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        return self._server().count_ids(shard, column, ranges)

    def tallies(
        self,
        shard: Shard,
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> tuple[RangeAggregate, ...]:
        return self._server().tallies(shard, column, spans, fields)

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        return self._server().digests(shard, column, ranges, columns)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        return self._server().row_digests(shard, column, span, columns, limit)

    def id_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        return self._server().id_digests(shard, column, ids, columns)

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        return self._server().column_digests(shard, column, ids, columns)

    def bucket_digests(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> dict[int, RangeDigest]:
        return self._server().bucket_digests(shard, by, columns)

    def bucket_rows(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        chosen: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        return self._server().bucket_rows(shard, by, columns, chosen, limit)

    def keyed_columns(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        return self._server().keyed_columns(shard, by, columns, keys, limit)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        return self._server().ids(shard, column, span, limit)

    def _server(self) -> TableQueries:
        """Return the replica once it is as far as the primary is now.

        Raises:
            SparedError: it is not after ``patience``.
        """
        needed = self.primary.head()
        if not names_transactions(needed.position):
            return self.primary
        until = time.monotonic() + self.patience.total_seconds()
        explain = partial(explain_missing_log, needed)
        if await_head(self.replica.head, explain, until, POLL) is not None:
            msg = f"source:{self.primary.name}: the replica {self.where} is behind: it has not"
            raise SparedError(LAG, f"{msg} executed all that the source had, after {self.patience}")
        return self.replica
