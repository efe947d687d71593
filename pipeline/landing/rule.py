"""Defines a checkpoint rule and its input, the batch.

A rule is a pure function that detects one kind of loss and records it as a gap of the tables
concerned. `next_checkpoint.RULES` lists them in the order in which they run, because each rule sees
the checkpoint as the rules before it left it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pipeline.checkpoint import Checkpoint
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.epochs import Epochs
from pipeline.landing.listing import Listing
from pipeline.landing.order_check import highest_by_source
from pipeline.model import Order, Ordering
from pipeline.settings import Router
from pipeline.standards.table_standards import NO_STANDARDS, Standards


@dataclass(frozen=True, slots=True)
class BatchContext:
    """One batch as all rules see it.

    ``before`` is the checkpoint before the batch, ``epochs`` are those after the batch.
    ``orderings`` names for each source what the orders of its changes are based on now.
    ``settings_changed`` is True in the first batch of a service, because the table rules and
    standards of the batch before may have been others.
    """

    before: Checkpoint
    listing: Listing
    epochs: Epochs
    stats: BatchStats
    orderings: Mapping[str, Ordering]
    at: datetime
    router: Router
    standards: Standards = NO_STANDARDS
    waived: frozenset[str] = field(default_factory=frozenset)
    settings_changed: bool = False

    def locate_log_ends(self, checkpoint: Checkpoint) -> Mapping[str, Order]:
        """Return the end of each log, in the order of its changes.

        Without log positions it is the highest order in *checkpoint*. Sources whose server did not
        answer are absent.
        """
        ends = self.epochs.ends(self.listing.heads)
        weak = {name for name in ends if not self.has_log_positions(name)}
        landed = highest_by_source(checkpoint.high) if weak else {}
        return {name: landed.get(name, end) if name in weak else end for name, end in ends.items()}

    def has_log_positions(self, source: str) -> bool:
        """Return whether changes of *source* are ordered by their positions in its log."""
        return self.orderings.get(source, Ordering.LOG) is Ordering.LOG


class CheckpointRule(Protocol):
    """Adds what a batch shows to the checkpoint after it."""

    def __call__(self, checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
        """Return *checkpoint*, or a copy of it with more gaps."""
        ...
