"""Summarizes a run, for people and as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from demo.story.lags import LagSummary
from demo.story.spark_jobs import SparkJob


@dataclass(frozen=True, slots=True)
class Played:
    """One act: how long it took, whether it succeeded, and what was seen."""

    act: str
    seconds: float
    seen: bool
    told: str


@dataclass(eq=False)
class Summary:
    """The result of a run, filled act by act; ``planned`` is the number of acts.

    ``tables`` contains, per comparison, each table's rows and findings; ``gates`` the answers of
    the gate by moment and table.
    """

    planned: int
    acts: list[Played] = field(default_factory=list)
    tables: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    gates: dict[str, dict[str, int]] = field(default_factory=dict)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    lag: LagSummary | None = None
    spark: tuple[SparkJob, ...] = ()
    changes: int = 0
    seconds: float = 0.0
    peak_memory: int = 0

    @property
    def seen(self) -> bool:
        """Tell whether all acts succeeded."""
        return len(self.acts) == self.planned and all(act.seen for act in self.acts)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        found = {
            "seen": self.seen,
            "seconds": round(self.seconds, 1),
            "peak_memory_gib": round(self.peak_memory / 2**30, 2),
            "changes": self.changes,
            "lag_seconds": asdict(self.lag) if self.lag else None,
            "acts": [asdict(act) for act in self.acts],
            "tables": self.tables,
            "gates": self.gates,
            "spark_jobs": [asdict(job) for job in self.spark],
            "incidents": self.incidents,
        }
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    def drawn(self) -> Table:
        """Return it as a table."""
        drawn = Table("act", "seconds", "seen", "what", pad_edge=False)
        for act in self.acts:
            drawn.add_row(act.act, f"{act.seconds:.0f}", "yes" if act.seen else "NO", act.told)
        memory = f"{self.peak_memory / 2**30:.1f} GiB at most"
        told = f"{self.changes} changes written; {memory}"
        drawn.add_row("in all", f"{self.seconds:.0f}", "yes" if self.seen else "NO", told)
        return drawn
