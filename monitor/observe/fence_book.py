"""Which heartbeats are known?  Kept in memory for every question, and in the store for restarts."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from checks.fences import thinned
from pipeline.model import Fence


class FenceStore(Protocol):
    """Where fences outlive the service."""

    def add(self, fence: Fence) -> None:
        """Keep one."""
        ...

    def since(self, source: str, instant: datetime, limit: int = ...) -> tuple[Fence, ...]:
        """Those at or after *instant*, oldest first."""
        ...


@dataclass(eq=False)
class FenceBook:
    """All heartbeats still remembered, by source, ascending; safe from several threads."""

    store: FenceStore
    _known: dict[str, tuple[Fence, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, sources: Iterable[str], since: datetime) -> None:
        """Remember what an earlier life has written down."""
        for source in sources:
            self._known[source] = thinned(self.store.since(source, since, limit=200_000))

    def add(self, fence: Fence) -> None:
        """Keep *fence*: in the store first, so that no proof rests on one that is lost."""
        self.store.add(fence)
        with self._lock:
            self._known[fence.source] = thinned((*self._known.get(fence.source, ()), fence))

    def known(self) -> Mapping[str, tuple[Fence, ...]]:
        """Those of every source, as they are now."""
        return dict(self._known)

    def of(self, source: str) -> tuple[Fence, ...]:
        """Those of *source*; empty before the first."""
        return self._known.get(source, ())
