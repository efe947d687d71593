"""At which cuts are images due, and which heartbeats stand for them?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from pipeline.clocks import day_end
from pipeline.image import DueCut, fence_of
from pipeline.model import Fence

DAYS = 3  # that have ended, of which images are made if nothing was merged since


@dataclass(frozen=True, slots=True)
class DueCuts:
    """The ends of the newest business days, and of today, which is told before it comes.

    None where no images are made of any table.  ``first`` is a source's first fence ever written at
    or after an instant: of those remembered, ``fences``, ever fewer are left of what is old.
    """

    fences: Callable[[], Mapping[str, Sequence[Fence]]]
    first: Callable[[str, datetime], Fence | None]
    zone: ZoneInfo
    clock: Callable[[], datetime]
    wanted: bool = True

    def __call__(self) -> tuple[DueCut, ...]:
        """Oldest first; without a heartbeat of a source that has written none since."""
        if not self.wanted:
            return ()
        today, known = self.clock().astimezone(self.zone).date(), self.fences()
        days = [today - timedelta(days=back) for back in range(DAYS, -1, -1)]
        return tuple(self._cut(day, known) for day in days)

    def _cut(self, day: date, known: Mapping[str, Sequence[Fence]]) -> DueCut:
        at = day_end(day, self.zone)
        found = {source: self._fence(source, fences, at) for source, fences in known.items()}
        return DueCut(
            at, {source: one for source, one in found.items() if one is not None}, str(day)
        )

    def _fence(self, source: str, known: Sequence[Fence], at: datetime) -> Fence | None:
        first = self.first(source, at)
        if first is None:
            return None
        return fence_of((first, *(one for one in known if one.number > first.number)), at)
