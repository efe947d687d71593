"""How high has each source come, whichever partition that was in?  Pure."""

from collections.abc import Mapping

from pipeline.checkpoint import source_of
from pipeline.model import Order


def highest_by_source(high: Mapping[str, Order]) -> dict[str, Order]:
    """Source -> the highest of its orders in *high*, which is as ``Mark.high``."""
    found: dict[str, Order] = {}
    for name, order in high.items():
        source = source_of(name)
        found[source] = max(order, found.get(source, order))
    return found
