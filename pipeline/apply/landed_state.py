"""What does a pass go by?  The mark of a landed batch, and what follows from it for all mirrors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pipeline.apply.catalog import Catalog
from pipeline.checkpoint import Lives, Mark, source_of
from pipeline.reports import SETTING, read_gap


@dataclass(frozen=True)  # without slots: a pass asks for its lives once for each mirror
class LandedState:
    """What a pass goes by: the mark of a landed batch, and the schemas up to it."""

    mark: Mark
    catalog: Catalog

    def served(self, tier: Callable[[int], bool]) -> "LandedState":
        """The same, as if no table of another *tier* had ever landed."""
        tables, shards = self.mark.tables.items(), self.mark.shards
        own = {name: last for name, last in tables if tier(self.catalog.tier(name, shards))}
        return LandedState(replace(self.mark, tables=own), self.catalog)

    @cached_property
    def lives(self) -> Lives:
        """Of the change log up to the mark."""
        return Lives.of(self.mark.lives)

    @cached_property
    def through(self) -> Mapping[str, int]:
        """Table -> the batch that its mirror is to come to: the last one that holds a change of it.

        Where changes bear no places in the log, an older one only as long as what came since may
        be sent again; -1 where it is to stand still until that is over, or a base is whole.  A
        source that is no longer configured sends nothing, again or anew, and keeps nobody waiting.
        """
        if not self.mark.beats:
            return self.mark.tables
        sure: dict[str, int] = {}
        for name, table in self.mark.shards.items():
            source = source_of(name)
            trail = self.mark.beats.get(source)
            if trail is None or not trail.waits or source not in self.catalog.readings:
                continue
            if table is not None:
                known = sure.get(table, self.mark.batch)
                sure[table] = min(known, -1 if trail.sure is None else trail.sure)
        for name, table in self.mark.shards.items():
            if table in sure and self.mark.complete.get(name, -1) > sure[table]:
                sure[table] = -1  # below its base nothing counts, and above it nothing does yet
        return {name: min(last, sure.get(name, last)) for name, last in self.mark.tables.items()}

    @cached_property
    def gaps(self) -> Mapping[str, Sequence[str]]:
        """``source/shard`` -> ids of the open gaps that concern it."""
        return self._gaps(SETTING, "")

    @cached_property
    def holding(self) -> Mapping[str, Sequence[str]]:
        """The same without those that a setting makes: of what still comes, all is merged."""
        return self._gaps("")

    def _gaps(self, *kinds: str) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for gap in map(read_gap, self.mark.gaps.values()):
            for name in gap.shards if gap.doubt in kinds else ():
                found.setdefault(name, []).append(gap.id)
        return found
