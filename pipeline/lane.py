"""One lane: its landing loop, and the mirrors that follow it.

Landing, applying and upkeep may be asked for at the same time, each by one thread.  Landing waits
for neither of the others; these two take turns, a pass and one mirror.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from datetime import timedelta

from pyspark.sql import SparkSession

from pipeline.apply.catalog import Catalog
from pipeline.apply.highest_orders import HighestOrders
from pipeline.apply.image_writing import ImageWriting
from pipeline.apply.landed_state import LandedState as Known
from pipeline.apply.passes import Passes
from pipeline.apply.upkeep import Upkeep
from pipeline.apply.written_images import Manifest
from pipeline.image import DueCut
from pipeline.landing.loop import Landing
from pipeline.lives import is_set_back
from pipeline.mark import Mark
from pipeline.report import Applied, Landed
from pipeline.reread.bootstrap import Rereading
from pipeline.rereads import RereadOrder, RereadState

_PATIENCE = timedelta(minutes=1)  # of a merge with upkeep of one mirror, such as Spark's OPTIMIZE


@dataclass(eq=False)
class Lane:
    """Land and apply; a table that fails is held and blocks no other.

    State kept here is a cache of what the lake says.  Landing's thread alone replaces ``_known``,
    whole, when all that belongs to a batch is in it; a pass reads it once.  Mirrors, and what is
    known of them, belong to whoever has ``_mirrors``.
    """

    landing: Landing
    passes: Passes
    upkeeping: Upkeep
    rereading: Rereading
    catalog: InitVar[Catalog]
    session: SparkSession | None = None
    writing: ImageWriting | None = None
    _mirrors: threading.Lock = field(default_factory=threading.Lock)
    _next: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self, catalog: Catalog) -> None:
        """Know what has landed."""
        self._known = Known(self.landing.mark, catalog)

    @property
    def mark(self) -> Mark:
        """What the newest landed batch proves."""
        return self._known.mark

    def land(self, waived: frozenset[str]) -> Landed:
        """Land one batch and learn the schema changes in it."""
        self._in_pool("land")
        landed = self.landing.land(waived)
        mark, known = self.landing.mark, self._known
        if set_back := is_set_back(known.mark, mark):
            known = Known(
                Mark(mark.lane, -1), Catalog(known.catalog.router, known.catalog.readings)
            )
            self.passes.highs = HighestOrders()
        if set_back or mark.batch > known.mark.batch:
            self.passes.highs.landed(mark.batch, mark.high)
            self._known = Known(mark, self._learnt(known, mark, landed))
        return landed

    def apply(
        self,
        waived: frozenset[str],
        cuts: Sequence[DueCut] = (),
        paused: frozenset[str] = frozenset(),
    ) -> tuple[Applied, ...]:
        """Bring every mirror with landed changes up to date but the *paused* ones; tier 0 first.

        What has landed is known before it is looked which of *cuts* have passed.

        Returns a turn for each such mirror, and for each mirror looked at and found foreign; none
        where upkeep of one mirror takes so long that the caller had better ask again.
        """
        with self._turn(_PATIENCE) as mine:
            self._in_pool("apply")
            return self.passes.run(self._known, waived, cuts, paused) if mine else ()

    def upkeep(self, readers: Mapping[str, int], paused: frozenset[str] = frozenset()) -> None:
        """Compact and clean what is due; *readers*: table -> lowest version still needed.

        Nothing is written to a mirror that is *paused*.  A merge waits for one mirror at most, and
        for nothing of the change log's.
        """
        with self._turn():
            mark = self.mark
            applied = {name: self.passes.applied(name) for name in mark.tables}

        def held(table: str) -> bool:
            return table in paused or self.passes.stands_still(table)

        self.upkeeping.run(mark, readers, applied, held, key=self._key, turn=self._turn)

    def reread(self, orders: Sequence[RereadOrder]) -> tuple[RereadState, ...]:
        """Read on what is to be read again; how far each order is.  Waits for nobody."""
        self._in_pool("reread")
        return self.rereading.run(self._known, orders)

    def publish(self) -> tuple[Manifest, ...]:
        """Write out what is there of images; nobody waits for it, and it for nobody."""
        return () if self.writing is None else self.writing.run(self._known)

    def close(self) -> None:
        """Stop Spark."""
        self.rereading.close()
        if self.session is not None:
            self.session.stop()

    @contextmanager
    def _turn(self, within: timedelta | None = None) -> Iterator[bool]:
        """Have the mirrors to oneself; who waits comes next, whoever had them last.

        False where they were not to be had *within* that time.
        """
        seconds = -1 if within is None else within.total_seconds()
        with self._next:
            mine = self._mirrors.acquire(timeout=seconds)
        try:
            yield mine
        finally:
            if mine:
                self._mirrors.release()

    def _key(self, table: str) -> tuple[str, ...]:
        return self._known.catalog.table(table, self.mark.shards).key

    def _learnt(self, known: Known, mark: Mark, landed: Landed) -> Catalog:
        """The schemas as of *mark*; schema changes are rare, and read back from the log."""
        seen = landed.batch == mark.batch == known.mark.batch + 1
        if seen and not self.landing.facts.statements:
            return known.catalog
        return known.catalog.reading(self.landing.log.schema_changes(known.mark.batch))

    def _in_pool(self, name: str) -> None:
        """Let Spark share its cores fairly between this thread's jobs and those of other pools.

        In the one pool that all jobs are in by default, the first come is the first served.
        """
        if self.session is not None:
            self.session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
