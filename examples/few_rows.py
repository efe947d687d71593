"""A probe that fails below a number of rows.  Cannot detect: which rows are missing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from checks.model import Outcome, Ruling
from checks.run import Probe
from checks.world import World
from pipeline.model import Fence, Table


@dataclass(frozen=True, slots=True)
class Rows:
    """How many there are; compared with no source, so as of no position."""

    count: int
    as_of: tuple[Fence, ...] = ()

    @property
    def value(self) -> float:
        """The number kept for history and graphs."""
        return float(self.count)


@dataclass(frozen=True, slots=True)
class FewRows:
    """Fail below *least* rows; the fields are the settings in `sluice.yaml`."""

    least: int = 1
    limit: timedelta = timedelta(seconds=10)
    every: ClassVar[timedelta] = timedelta(minutes=1)
    gating: ClassVar[bool] = False

    def measure(self, table: Table, world: World) -> Rows:
        """Count by the mirror's own metadata."""
        return Rows(world.mirror(table).rows())

    def judge(self, reading: Rows, past: Sequence[float]) -> Ruling:
        """Compare; history plays no part."""
        outcome = Outcome.PASS if reading.count >= self.least else Outcome.FAIL
        return Ruling(outcome, f"{reading.count} rows, at least {self.least} expected", "few_rows")


PROBE: type[Probe[Rows]] = FewRows
