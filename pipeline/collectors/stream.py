"""What may a collector be judged by that nobody can ask?  Its source, and what came of its log."""

import re
from dataclasses import dataclass

from pipeline.formats.format import Format
from pipeline.registry import SchemaRegistry
from pipeline.settings import SourceSettings
from pipeline.sources.source import Source
from pipeline.transports.transport import Transport


@dataclass(frozen=True, slots=True)
class CollectedStream:
    """One source's log on its way; nobody is asked yet.

    ``transport`` is that of the cluster which the collector writes to, which may not be ours.
    ``topics`` matches the whole names of its topics as they are called here: there they are
    without what stands ``before`` them.
    """

    source: SourceSettings
    server: Source
    format: Format
    registry: SchemaRegistry | None
    transport: Transport
    topics: str
    before: str = ""

    def named(self) -> tuple[str, ...]:
        """Its topics, as they are called where the collector writes; UnreachableError."""
        every = self.transport.topics(".*")
        return tuple(name for name in every if re.fullmatch(self.topics, self.before + name))
