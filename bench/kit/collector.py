"""Provides a collector at rest, for a config whose changes are landed without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pipeline.collectors.collector import (
    CollectionScope,
    Collector,
    CollectorExamination,
    CollectorState,
)
from pipeline.model import Acknowledged, CaptureScope, Missing
from pipeline.settings import SourceSettings


@dataclass(frozen=True, slots=True)
class QuietCollector:
    """A collector that sends every table, and alters no value."""

    usual_kind: ClassVar[str] = "mysql"
    usual_format: ClassVar[str] = "debezium_json"
    rests_on: ClassVar[str] = ""

    def acknowledged(self) -> Acknowledged | Missing:
        """Return that nothing is known."""
        return Missing("there is no collector")

    def address(self) -> tuple[str, int]:
        """Return the address in the config."""
        return ("127.0.0.1", 1)

    def captures(self) -> CaptureScope:
        """Return every table."""
        return CaptureScope(lambda shard: True)

    def examine(self, _: SourceSettings, worker: Mapping[str, str] | None) -> CollectorExamination:
        """Find nothing."""
        return CollectorExamination(())

    def registration(self, scope: CollectionScope) -> None:
        """Return None: there is no registration."""

    def state(self) -> CollectorState:
        """Return that it runs."""
        return CollectorState("running")

    def close(self) -> None:
        """Do nothing."""


COLLECTOR: type[Collector] = QuietCollector
