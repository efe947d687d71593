"""Which columns has each shard, as the landed log tells?  Each schema change is read once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.apply.catalog import Catalog
from pipeline.changelog.reader import LogReader
from pipeline.changelog.table import app
from pipeline.model import Shard
from pipeline.schema.history import SchemaReading
from pipeline.schema.model import TableSchema
from pipeline.settings import Router


@dataclass(eq=False)
class Schemas:
    """Grows with the log that it is shown; for one line of probes."""

    readings: Mapping[str, SchemaReading]
    _catalog: Catalog = field(init=False)
    _until: int = -1

    def __post_init__(self) -> None:
        """Know nothing yet."""
        self._catalog = Catalog(Router(), self.readings)

    def newest(self, shard: Shard, log: LogReader) -> TableSchema | None:
        """The shard's columns, as of *log* or later; None if none has landed, or a DROP has."""
        last = log.pinned.transaction(app(log.lane))
        last = -1 if last is None else last
        if last < self._until:  # another log, or an older one put back
            self._catalog, self._until = Catalog(Router(), self.readings), -1
        if last > self._until:
            self._catalog.add(log.schema_changes(self._until))
            self._until = last
        return self._catalog.newest(shard.source, shard.name)
