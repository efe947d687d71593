"""What does a turn ask, in what has landed, before deletes keep their rows?  Made for one table."""

from dataclasses import dataclass

import pyarrow as pa

from pipeline.apply.archived import ArchiveEvidence
from pipeline.apply.landed_markers import LandedMarkers
from pipeline.apply.landed_partners import LandedPartners
from pipeline.archive import ArchiveRules
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import placed_parts
from pipeline.checkpoint import Mark
from pipeline.model import Op, Table


@dataclass(frozen=True, slots=True)
class LandedArchives:
    """``rules`` of a table; ``markers`` and ``partners`` are None where none of them counts."""

    rules: ArchiveRules
    markers: LandedMarkers | None = None
    partners: LandedPartners | None = None

    @property
    def evidence(self) -> ArchiveEvidence:
        """As a turn asks it."""
        rekeyed = None if self.partners is None else self.partners.rekeyed
        return ArchiveEvidence(self.rules, self.markers, rekeyed)

    def joined(self, rows: pa.Table) -> pa.Table:
        """*rows*, and applied deletes whose keys were left for those that creates among them have.

        Raises:
            HeldError: ``file_damaged``.
        """
        return rows if self.partners is None else self.partners.joined(rows)


def landed_archives(
    table: Table, rules: ArchiveRules | None, log: ChangeLog, mark: Mark, after: int
) -> LandedArchives | None:
    """What tells of the deletes of *table*, whose mirror has applied batch *after*; None: nothing.

    All that *mark* says has landed in *log* counts.
    """
    if rules is None or not (rules.windows or rules.markers):
        return None if rules is None else LandedArchives(rules)
    files = placed_parts(log.snapshot, mark.batch, (Op.CREATE, Op.DELETE))
    partners = LandedPartners(log.store.uri, files, table.name, rules, after)
    return LandedArchives(rules, _markers(table, rules, log, mark), partners)


def _markers(table: Table, rules: ArchiveRules, log: ChangeLog, mark: Mark) -> LandedMarkers | None:
    if not rules.markers:
        return None
    near = placed_parts(log.snapshot, mark.batch, (Op.CREATE, Op.UPDATE))
    files = tuple(one.part for one in near)
    places = {source: mark.reached(source) for source in table.sources}
    reached = {source: place for source, place in places.items() if place is not None}
    return LandedMarkers(log.store.uri, files, rules.markers, reached)
