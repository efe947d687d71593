"""What does Sluice ask of what reads a source's log into topics?  One protocol; a file each kind.

Every method raises UnreachableError when the collector does not answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pipeline.model import Acknowledged, Missing, ShardId


@dataclass(frozen=True, slots=True)
class CollectorState:
    """How a collector fares, in one word of its own; ``running`` is the only one that is well.

    ``detail`` is the error, empty while nothing failed.
    """

    state: str
    detail: str = ""

    @property
    def running(self) -> bool:
        """Whether all of it runs."""
        return self.state == "running"


class Collector(Protocol):
    """What reads one source's log; a class of this kind stands as ``COLLECTOR`` in its module."""

    def acknowledged(self) -> Acknowledged | Missing:
        """What it has durably handed over: Kafka has every change before it.

        Missing before there is such a position.  Never more than is true: readiness rests on it.
        """
        ...

    def address(self) -> tuple[str, int]:
        """Host and port of the server that it reads."""
        ...

    def captures(self) -> Callable[[ShardId], bool]:
        """Says of a table whether its rows are sent, as it is set now; it tells of others, too."""
        ...

    def config(self) -> Mapping[str, str]:
        """Its settings, without those that hold secrets."""
        ...

    def state(self) -> CollectorState:
        """Whether it runs, and why not."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...
