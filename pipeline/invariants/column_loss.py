"""An invariant: no column loses its values in nearly all rows that a slice updates.

This is the column-loss sentinel.  A value is lost if the change's before image has it and the new
row has NULL or a placeholder.  The share is that of the rows up to any batch of the slice.  So a
hold does not end because good rows land later.  An intended UPDATE may do the same, so only tables
that configure this invariant are checked.  Cannot detect: losses in changes without a before image,
in new rows, and in columns with fewer than ``rows`` values before the slice.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant, Mask


@dataclass(frozen=True, slots=True)
class ColumnLoss:
    """Fail if a ``share`` of at least ``rows`` earlier values of a column is lost.

    No ``columns`` means all outside the key.  ``placeholders`` are texts that count as NULL.
    """

    share: float = 0.9
    rows: int = 100
    columns: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        """Reject a ``share`` that is not above 0 and at most 1, and ``rows`` below 1."""
        if not 0 < self.share <= 1 or self.rows < 1:
            raise ConfigError("share must lie above 0 and up to 1, rows must be 1 at least")

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check column by column; earlier values are read only if many new values are absent."""
        absent = {}
        for name in self.columns or _others(intended):
            nothing = self._nothing(intended.column(name))
            if nothing.sum() >= self.share * self.rows:
                absent[name] = nothing
        if not absent:
            return
        before = intended.before(tuple(absent))
        for name, nothing in absent.items():
            there = ~self._nothing(before[name].combine_chunks())
            early = self._find_loss(intended, there, there & nothing)
            if early is not None:
                were = int((there & early).sum())
                what = f"{name} loses its value, of {were} that had one,"
                yield Breach(what, there & nothing & early)

    def _find_loss(self, intended: IntendedRows, there: Mask, lost: Mask) -> Mask | None:
        """The rows up to the last batch where too many of the values that were *there* are *lost*.

        None without such a batch.
        """
        ends, at = np.unique(intended.batches, return_inverse=True)
        were, gone = (np.cumsum(np.bincount(at, one, len(ends))) for one in (there, lost))
        broken = np.flatnonzero((were >= self.rows) & (gone >= self.share * were))
        return at <= broken[-1] if len(broken) else None

    def _nothing(self, column: pa.Array) -> Mask:
        absent: Mask = column.is_null().to_numpy(zero_copy_only=False)
        if not self.placeholders or pa.types.is_binary(column.type):
            return absent
        if not pa.types.is_string(column.type) and self.placeholders == ("",):
            return absent  # only a string can be the empty text
        texts = pc.is_in(column.cast(pa.string()), value_set=pa.array(self.placeholders))
        found: Mask = absent | pc.fill_null(texts, False).to_numpy(zero_copy_only=False)
        return found


def _others(intended: IntendedRows) -> list[str]:
    names = intended.rows.column_names
    return [one for one in names if one not in intended.key and not one.startswith("_sluice")]


INVARIANT: type[Invariant] = ColumnLoss
