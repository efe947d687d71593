"""What did one commit do to the rows of a mirror?  In parts, each read when it is asked for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from pipeline.apply.commits import Commit

RowPart = Callable[[], Iterator[pa.Table]]
"""Rows of one file, some thousands at a time, with ``_sluice`` where the mirror has it."""


@dataclass(frozen=True, slots=True, eq=False)
class RowChanges:
    """Rows that ``came`` with a commit, and those that ``went``: of these the key's columns only.

    A row that was written anew stands in both; one that was only moved to another file in neither.
    """

    commit: Commit
    came: tuple[RowPart, ...] = ()
    went: tuple[RowPart, ...] = ()
