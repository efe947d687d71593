"""How far had landing come with each batch?  What turns a mirror's batch into a watermark.

A mirror that has applied a table's last change at or before a batch is applied through that
batch, so the newest such batch tells what the mirror holds without any empty merge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.mark import Mark
from pipeline.model import Fence


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """One batch: the last batch that changed each table, and the newest fence it covers.

    ``passed`` has no entry for a source of which no known fence was covered.
    """

    batch: int
    tables: Mapping[str, int]
    passed: Mapping[str, Fence]

    def holds(self, table: str, applied: int) -> bool:
        """Whether a mirror applied through batch *applied* holds all this batch promises."""
        return self.tables.get(table, -1) <= applied


def step(mark: Mark, fences: Mapping[str, Sequence[Fence]]) -> LandedBatch:
    """What *mark* proves of the *fences* known by source, each ascending by number."""
    newest = {source: covered(mark, known) for source, known in fences.items()}
    return LandedBatch(mark.batch, mark.tables, {k: v for k, v in newest.items() if v is not None})


def covered(mark: Mark, fences: Sequence[Fence]) -> Fence | None:
    """The newest of *fences*, ascending, that *mark* covers; None if it covers none."""
    return next((fence for fence in reversed(fences) if mark.covers(fence)), None)


def extended(
    steps: tuple[LandedBatch, ...], new: LandedBatch, limit: int = 512
) -> tuple[LandedBatch, ...]:
    """Add *new*; past *limit*, thin the older half, which only makes old answers cautious.

    The same batch seen again, with more fences known, takes the place of what was kept of it.
    A lower batch than the last is another lane's history: the old one is dropped.
    """
    if steps and new.batch < steps[-1].batch:
        return (new,)
    kept = steps[:-1] if steps and steps[-1].batch == new.batch else steps
    if len(kept) >= limit:
        half = len(kept) // 2
        kept = kept[:half:2] + kept[half:]
    return (*kept, new)


def applied_step(steps: Sequence[LandedBatch], table: str, applied: int) -> LandedBatch | None:
    """The newest of *steps*, ascending, that a mirror applied through *applied* holds."""
    return next((each for each in reversed(steps) if each.holds(table, applied)), None)
