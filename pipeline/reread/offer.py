"""What of all that is read again may landing take?  Two threads hand it over here.

What is read waits until the mark tells that it is landed; what the mark has passed by is forgotten.
"""

import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from pipeline.backfill_state import Reread
from pipeline.checkpoint import Mark
from pipeline.landing.rereading import RereadNews, RowsAgain
from pipeline.model import Order


@dataclass(eq=False)
class Offer:
    """Filled by one thread, the reader's; ``news`` alone is for landing's."""

    begun: dict[str, Reread] = field(default_factory=dict)
    ready: list[RowsAgain] = field(default_factory=list)
    closing: dict[str, tuple[str, Order]] = field(default_factory=dict)
    cancelled: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def news(self) -> RereadNews:
        """All of it, as it stands."""
        with self._lock:
            begun, closing, cancelled = self.begun, self.closing, self.cancelled
            return RereadNews(dict(begun), tuple(self.ready), dict(closing), dict(cancelled))

    def begin(self, name: str, begun: Reread) -> None:
        """Have the shard of that *name* begun, or cut."""
        with self._lock:
            self.begun[name] = begun

    def read(self, rows: Sequence[RowsAgain]) -> None:
        """Have *rows* landed, after those that wait."""
        with self._lock:
            self.ready += rows

    def end(self, name: str, id_: str, order: Order) -> None:
        """All rows of *name* were read once the log stood at *order*."""
        with self._lock:
            self.closing[name] = (id_, order)

    def cancel(self, mark: Mark, wanted: Set[str]) -> None:
        """Offer nothing more of what nobody wishes any more, and have landing forget it."""
        every = [*self.begun.items(), *mark.rereads.items()]
        known = {name: one.id for name, one in every if one.done is None}
        with self._lock:
            self.cancelled = {name: id_ for name, id_ in known.items() if id_ not in wanted}
            self.ready[:] = [one for one in self.ready if one.id in wanted]
            self.closing = {name: one for name, one in self.closing.items() if one[0] in wanted}

    def forget(self, mark: Mark, is_there: Callable[[RowsAgain], bool]) -> None:
        """What the mark tells of needs no more telling, nor what it has passed by, or is gone."""
        there = [one for one in self.ready if is_there(one)]
        with self._lock:
            for name in [n for n, one in self.begun.items() if _is_known(mark, n, one)]:
                del self.begun[name]
            self.ready[:] = there
            self.ready[:] = [one for one in self.ready if self._awaited(mark, one)]
            for name, (wanted, _) in list(self.closing.items()):
                known = mark.rereads.get(name)
                if known is None or known.id != wanted or known.closing is not None:
                    del self.closing[name]

    def _awaited(self, mark: Mark, rows: RowsAgain) -> bool:
        """Whether landing may still take it, now or after others of its stretch."""
        known = mark.rereads.get(rows.name)
        if known is None or known.id != rows.id or known.order != rows.order:
            return False
        if rows.stretch >= len(known.stretches) or known.stretches[rows.stretch].ended:
            return False
        at = known.stretches[rows.stretch].read
        return any(
            one.after == at
            for one in self.ready
            if (one.name, one.stretch) == (rows.name, rows.stretch)
        )


def _is_known(mark: Mark, name: str, one: Reread) -> bool:
    """Whether landing has taken it, or did not want it: a batch or two have ended since."""
    known = mark.rereads.get(name)
    if one.key:  # it was begun before, and is cut now
        return known is None or (known.id, known.order, known.key) != (one.id, one.order, ())
    return (known is not None and known.order >= one.order) or mark.batch > one.since + 1
