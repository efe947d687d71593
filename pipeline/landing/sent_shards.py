"""Has a collector sent all rows of a shard above a place in its log?  By its lists, as told."""

from collections.abc import Callable, Sequence, Set

from pipeline.checkpoint import Mark, source_of
from pipeline.landing.collector_lists import captured, collected, is_above
from pipeline.landing.listing import Listing
from pipeline.landing.source_feed import Feed
from pipeline.model import Order


def has_sent(
    name: str,
    order: Order,
    *,
    feeds: Sequence[Feed],
    mark: Mark,
    listing: Listing,
    hidden: Callable[[Set[str]], Set[str]],
) -> bool | None:
    """Of the shard *name*, ``source/db.table``, above *order*; None while nobody can tell.

    Those of shards that are *hidden* are sent, but not to us.
    """
    source = source_of(name)
    feed = next((one for one in feeds if one.settings.name == source), None)
    if feed is None:
        return False
    known = mark.lists.get(source)
    lists = collected(known, listing.captures.get(source), feed.told)
    if lists is None or not is_above(known, order):
        return None
    return bool(captured(lists, (name,), (), first=False)) and not hidden({name})
