"""Since when are a shard's rows written by the standards of today?  A mark remembers it.  Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowStandards:
    """By which standards a shard's rows are written, as a digest; empty: by none.

    ``since`` is the first batch of which that is true, -1 if no row was written otherwise.
    """

    digest: str = ""
    since: int = -1


ALWAYS = RowStandards()
"""Of a shard that was never written by any."""
