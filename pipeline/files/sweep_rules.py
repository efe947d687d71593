"""What does a sweep look at, how patiently, and for how long at a time?  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pipeline.files.layout import LogRule, PartitionRange
from pipeline.files.stamp import Patience


@dataclass(frozen=True, slots=True)
class SweepRules:
    """What is looked at, how patiently, and for how long at a time.

    ``database`` is what logs are tables of.  Every ``deep`` all that is in range is looked at, or
    more seldom where that takes long; every ``behind`` hours that were left are.  What comes later
    than ``grace`` after the end of its hour is late.
    """

    database: str
    logs: Mapping[str, LogRule]
    range: PartitionRange
    unfinished: tuple[str, ...]
    patience: Patience
    budget: timedelta
    deep: timedelta
    behind: timedelta
    grace: timedelta

    def rule(self, name: str) -> LogRule:
        """That of a log."""
        return self.logs.get(name, LogRule())
