"""What do tables lack after a batch that no offsets show?  All that went elsewhere, or never came.

Each kind of such a loss has a file of its own; this is the order in which they are looked for.
Pure.
"""

from collections.abc import Mapping
from datetime import datetime

from pipeline.checkpoint import Mark
from pipeline.landing.beat_backlogs import with_levels
from pipeline.landing.beat_trails import with_beats, with_missing_heartbeats
from pipeline.landing.collector_lists import placed, with_lists
from pipeline.landing.disorder import with_late
from pipeline.landing.epochs import Epochs
from pipeline.landing.facts import Facts
from pipeline.landing.listing import Listing
from pipeline.landing.parted_logs import with_parted, with_reordered
from pipeline.landing.snapshots_again import with_again
from pipeline.landing.torn_snapshots import with_torn
from pipeline.landing.unkept_logs import with_unkept
from pipeline.model import Ordering


def with_untold(
    made: Mark,
    before: Mark,
    listing: Listing,
    epochs: Epochs,
    *,
    facts: Facts,
    orderings: Mapping[str, Ordering],
    at: datetime,
) -> Mark:
    """*made*, the mark after *before*, with the gaps that *listing* and *facts* show."""
    made = with_late(with_parted(made, before, listing.heads), facts)
    made = with_reordered(made, before, orderings)
    told, ends = listing.captures, placed(epochs.ends(listing.heads), made, orderings)
    made = with_unkept(with_lists(made, before, told, ends, at), before, told)
    made = with_torn(with_again(made, before, facts.wholes, at), before, facts.snapshots)
    made = with_missing_heartbeats(made, before, facts.heartbeat_rows, orderings)
    return with_levels(with_beats(made, before, facts.beats, orderings, listing.once), listing)
