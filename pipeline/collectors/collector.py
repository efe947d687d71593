"""What does Sluice ask of what reads a source's log into topics?  One protocol; a file each kind.

Every method raises UnreachableError when the collector does not answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pipeline.collectors.registration import CollectionScope, Registration
from pipeline.errors import worded
from pipeline.finding import Finding
from pipeline.model import Acknowledged, Capture, Missing
from pipeline.settings import SourceSettings

USUAL = "connect"  # where a source names no kind of collector


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

    @property
    def told(self) -> str:
        """The state, and what failed."""
        return f"{self.state}: {worded(self.detail, self.state)}"


@dataclass(frozen=True, slots=True)
class CollectorExamination:
    """What is to be put right at a collector, and what the rest of the examination goes by.

    ``kept_topic`` is a topic of its own that must be kept for ever; empty if there is none.
    ``own_keys``: it may send rows under other keys than those that their tables declare.
    ``largest`` is the size in bytes of the largest record that it hands over; None: no limit is
    known.
    """

    findings: tuple[Finding, ...] = ()
    kept_topic: str = ""
    own_keys: bool = False
    largest: int | None = None


class Collector(Protocol):
    """What reads one source's log; a class of this kind stands as ``COLLECTOR`` in its module.

    ``usual_kind`` and ``usual_format`` hold where a source's settings name none; empty: they must.
    A class has its settings' ``url`` and ``connector`` as fields if it names them so, and what came
    of the source's log, a `pipeline.collectors.stream.CollectedStream`, as ``stream``.
    One that says ``serverless = True`` reads no server: its sources need no host, port and user.
    """

    usual_kind: ClassVar[str]
    usual_format: ClassVar[str]

    @property
    def rests_on(self) -> str:
        """What its word rests on beside itself, for people; empty if on nothing."""
        ...

    def acknowledged(self) -> Acknowledged | Missing:
        """What it has durably handed over: Kafka has every change before it.

        Missing before there is such a position.  Never more than is true: readiness rests on it.
        """
        ...

    def address(self) -> tuple[str, int]:
        """Host and port of the server that it reads."""
        ...

    def captures(self) -> Capture:
        """Of which tables it sends the rows, as it is set now; it tells of others, too."""
        ...

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        """Rule on how it is set up for its source; *worker*: settings of what runs it, if told."""
        ...

    def registration(self, scope: CollectionScope) -> Registration | None:
        """How it is to be set up to collect *scope*; None if that is not done from here.

        Nobody is asked yet.  ConfigError where what the config says of it cannot be set.
        """
        ...

    def state(self) -> CollectorState:
        """Whether it runs, and why not."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...
