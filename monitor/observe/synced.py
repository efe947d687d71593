"""Which heartbeat has come through the mirror last?  Only sources behind a mirror have that hop."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from monitor.observe.fence_book import FenceBook
from pipeline.collectors.mirrored import Collector, behind_mirror
from pipeline.mark import reaches
from pipeline.model import Acknowledged, Fence, Missing
from pipeline.settings import SourceSettings


def synced(
    sources: Iterable[SourceSettings], collectors: Mapping[str, Collector], fences: FenceBook
) -> dict[str, Callable[[], int | Missing]]:
    """Source -> what asks for the number of its newest heartbeat that has come through."""
    pairs = ((source.name, behind_mirror(source, collectors[source.name])) for source in sources)
    return {name: partial(_number, one, fences, name) for name, one in pairs if one is not None}


def newest_below(fences: tuple[Fence, ...], arrived: Acknowledged) -> Fence | None:
    """The newest of *fences*, ascending, of the server written to now, at or below *arrived*."""
    for fence in reversed(fences):
        same = fence.head.identity == fences[-1].head.identity
        if same and reaches(arrived, fence.head):
            return fence
    return None


def _number(mirrored: Collector, fences: FenceBook, name: str) -> int | Missing:
    arrived = mirrored.acknowledged()
    if isinstance(arrived, Missing):
        return arrived
    if arrived.snapshot:
        return Missing("the collector is reading its initial snapshot")
    fence = newest_below(fences.of(name), arrived)
    return fence.number if fence else Missing("no heartbeat has come through the mirror yet")
