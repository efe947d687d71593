"""One mirror as Spark writes it: created, evolved, and numbered by the batches applied to it."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import SparkSession

from pipeline.apply import foreign
from pipeline.changelog.table import ORDER, app
from pipeline.commit import Transaction
from pipeline.lake.pinned import open_table
from pipeline.model import Order
from pipeline.schema.history import TableSchema
from pipeline.schema.types import lake_type

META = (
    f"struct<source: string, shard: string, order: {ORDER}, op: string, origin: int, "
    "at: timestamp, batch: bigint>"
)
_FLOORS = "sluice.floors"
_SCHEMAS = "sluice.schemas"
_KEPT = "delta.deletedFileRetentionDuration"
_HISTORY = timedelta(days=30)  # Delta's own default for its log
_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.checkpointInterval": "20",
}


@dataclass(frozen=True, slots=True)
class State:
    """A mirror's newest version, the batch it is applied through, and its properties.

    Both are -1 when there is no mirror; the batch also before the first.
    """

    version: int
    batch: int
    properties: Mapping[str, str]


@dataclass(eq=False)
class Mirror:
    """Write access to one mirror for one turn, in a Spark session of its own worker."""

    session: SparkSession
    path: str
    lane: str
    _state: State | None = None

    @property
    def state(self) -> State:
        """As of the last commit made here; read without Spark, whose own look costs jobs.

        A commit that somebody else makes meanwhile is not seen, so ours will not name it as the
        one before: that is how it is found.
        """
        if self._state is None:
            self._state = self._read()
        return self._state

    def _read(self) -> State:
        found = open_table(self.path)
        if found is None:
            return State(-1, -1, {})
        batch = found.transaction(app(self.lane))
        return State(found.version, -1 if batch is None else batch, found.properties())

    def create(self, schema: TableSchema, orders: Mapping[str, Order]) -> None:
        """Create it empty; *orders* says as of which schema change of each ``source/shard``."""
        columns = [f"`{column.name}` {lake_type(column)}" for column in schema.columns]
        properties = {**_PROPERTIES, _SCHEMAS: _dump(orders)}
        with self.noted(-1):
            self.session.sql(
                f"CREATE TABLE delta.`{self.path}` ({', '.join(columns)}, _sluice {META}) "
                f"USING delta TBLPROPERTIES ({_listed(properties)})"
            )

    def schemas(self) -> dict[str, Order]:
        """``source/shard`` -> order of the schema change it was last evolved to."""
        text = self.state.properties.get(_SCHEMAS, "{}")
        return {name: Order(*parts) for name, parts in json.loads(text).items()}

    def note_schemas(self, orders: Mapping[str, Order]) -> None:
        """Record the schema changes that the mirror now follows."""
        self._set({_SCHEMAS: _dump({**self.schemas(), **orders})})

    def floors(self) -> dict[str, Order]:
        """``source/shard`` -> order of its highest truncate or settle."""
        text = self.state.properties.get(_FLOORS, "{}")
        return {name: Order(*parts) for name, parts in json.loads(text).items()}

    def raise_floors(self, orders: Mapping[str, Order]) -> None:
        """Remember that nothing of a shard older than its order may be inserted; never lowers."""
        known = self.floors()
        raised = {n: max(order, known.get(n, order)) for n, order in orders.items()}
        if {**known, **raised} != known:
            self._set({_FLOORS: _dump({**known, **raised})})

    def keep(self, versions: timedelta) -> None:
        """Let Delta remember for so long which files it has removed; a VACUUM spares them."""
        files, log = (
            f"interval {math.ceil(time / timedelta(hours=1))} hours"
            for time in (versions, max(versions, _HISTORY))
        )
        wanted = {_KEPT: files, "delta.logRetentionDuration": log}
        if not wanted.items() <= self.state.properties.items():
            self._set(wanted)

    def _set(self, properties: Mapping[str, str]) -> None:
        with self.noted(-1):
            self.session.sql(
                f"ALTER TABLE delta.`{self.path}` SET TBLPROPERTIES ({_listed(properties)})"
            )

    def number(self, batch: int, told: Mapping[str, object]) -> None:
        """Record *batch* as applied when it changes no row: a MERGE of nothing commits nothing."""
        state, name = self.state, app(self.lane)
        txn = Transaction(self.session, self.path, name, batch, previous=state.batch)
        txn.commit(foreign.note(state.version, batch, self.lane, told))
        self._state = None

    @contextmanager
    def noted(self, batch: int, told: Mapping[str, object] | None = None) -> Iterator[None]:
        """Sign the one commit made inside; with what is *told* of a turn it carries its batch.

        Session settings, so the session must belong to one worker alone: two threads that share
        one mix up their numbers, and Delta then drops a MERGE as already done.
        """
        note = foreign.note(self.state.version, batch, self.lane, told)
        settings = {"spark.databricks.delta.commitInfo.userMetadata": note}
        if told is not None:
            settings["spark.databricks.delta.write.txnAppId"] = app(self.lane)
            settings["spark.databricks.delta.write.txnVersion"] = str(batch)
        for name, value in settings.items():
            self.session.conf.set(name, value)
        try:
            yield
        finally:
            self._state = None
            for name in settings:
                self.session.conf.unset(name)


def _parts(order: Order) -> list[int]:
    return [order.epoch, order.log, order.pos, order.row]


def _dump(orders: Mapping[str, Order]) -> str:
    return json.dumps({name: _parts(order) for name, order in orders.items()}, sort_keys=True)


def _listed(properties: Mapping[str, str]) -> str:
    quoted = {n: v.replace("\\", "\\\\").replace("'", "\\'") for n, v in properties.items()}
    return ", ".join(f"'{name}' = '{value}'" for name, value in quoted.items())
