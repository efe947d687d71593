"""What do probes ask of a mirror?  One version of it, pinned, read without Spark."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pipeline.aggregates import SpanTally, TalliedField, TimeSpan
from pipeline.model import Shard
from pipeline.readings import LogKey

Range = tuple[int, int]
"""Ids, half open: ``(low, high)`` holds ``low`` and not ``high``."""


class MirrorSide(Protocol):
    """Every method may raise ``UnreachableError`` or ``ProofError``; both end as UNKNOWN."""

    @property
    def version(self) -> int:
        """The pinned version of the mirror."""
        ...

    @property
    def batch(self) -> int:
        """Applied through this batch of its lane."""
        ...

    def rows(self) -> int:
        """Rows, from the table's own metadata where it is exact."""
        ...

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id of the shard's rows; None when it has none."""
        ...

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """Rows of the shard in each range."""
        ...

    def tallies(
        self,
        shards: Sequence[Shard],
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[TalliedField],
    ) -> dict[Shard, tuple[SpanTally, ...]]:
        """Of each shard rows and sums of *fields* in each span of *column*; no archived rows."""
        ...

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids of the shard's rows in *span*, ascending, duplicates kept, at most *limit*."""
        ...

    def rows_of(self, shard: Shard, column: str, span: Range) -> Sequence[Mapping[str, Any]]:
        """Whole rows of the shard whose ids are in *span*, with ``_sluice`` if they have it."""
        ...

    def has_keys(self, keys: Sequence[LogKey]) -> tuple[bool, ...]:
        """Whether each key's row is there, in the order asked."""
        ...

    def sample(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """At most *limit* rows of the newest slice, columns without ``_sluice``."""
        ...
