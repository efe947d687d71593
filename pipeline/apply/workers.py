"""Who merges?  A few workers with a Spark session each; every turn has one for itself."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import SparkSession

from pipeline.apply.turn import Applier
from pipeline.model import Table
from pipeline.report import Applied
from pipeline.settings import PipelineSettings


@dataclass(eq=False)
class Workers:
    """As many appliers as the settings say.

    Sessions are never shared: transaction ids are session settings, and would be mixed up.
    """

    session: SparkSession
    settings: PipelineSettings
    clock: Callable[[], datetime]
    idle: list[Applier] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open a session for each."""
        lane, log = self.settings.lane, self.settings.changes
        for _ in range(self.settings.merge_workers):
            self.idle.append(Applier(self.session.newSession(), lane, log, self.clock))

    def each(
        self, turn: Callable[[Applier, Table], Applied], tables: Iterable[Table]
    ) -> tuple[Applied, ...]:
        """*turn* of every table, as many at once as there are workers; in the tables' order."""

        def one(table: Table) -> Applied:
            applier = self.idle.pop()
            try:
                return turn(applier, table)
            finally:
                self.idle.append(applier)

        with ThreadPoolExecutor(len(self.idle), "merge") as pool:
            return tuple(pool.map(one, tables))
