"""The lane's mirrors as their own logs tell them: version, applied batch, and what they remember.

Each look reads on from the one before, which costs next to nothing where nothing was committed.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.apply.floors import Floors
from pipeline.changelog.table import app
from pipeline.errors import HeldError
from pipeline.lake import entries
from pipeline.lake.commits import Commit, commit
from pipeline.lake.log import Snapshot, load
from pipeline.lake.shape import shape_of
from pipeline.lake.store import Store, open_store
from pipeline.lives import Lives
from pipeline.model import Order, Shard
from pipeline.settings import PipelineSettings

FLOORS, SCHEMAS, LIFE = "sluice.floors", "sluice.schemas", "sluice.life"  # its properties
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "20"}


@dataclass(eq=False)
class Mirrors:
    """Snapshots by table, kept from look to look."""

    settings: PipelineSettings
    _stores: dict[str, Store] = field(default_factory=dict)
    _known: dict[str, Snapshot] = field(default_factory=dict)
    _absent: set[str] = field(default_factory=set)

    def store(self, table: str) -> Store:
        """The mirror's folder."""
        if table not in self._stores:
            self._stores[table] = open_store(self.settings.mirror(table))
        return self._stores[table]

    def look(self, table: str) -> Snapshot | None:
        """The newest version; None if there is no mirror yet.

        Raises:
            HeldError: the mirror's log cannot be read.
        """
        try:
            found = load(self.store(table), self._known.get(table))
        except HeldError:
            self._known.pop(table, None)
            raise
        if found is None:
            self._absent.add(table)
        else:
            self.know(table, found)
        return found

    def know(self, table: str, snapshot: Snapshot) -> None:
        """Go on from *snapshot*, which was committed here."""
        self._known[table] = snapshot
        self._absent.discard(table)

    def absent(self, table: str) -> bool:
        """Whether there was none when it was looked at last."""
        return table in self._absent

    def seen(self, table: str) -> Snapshot | None:
        """The version looked at last; None if nobody has looked, or there is none."""
        return self._known.get(table)

    def applied(self, table: str) -> int:
        """The batch it was applied through when it was looked at last; -1 before the first."""
        known = self._known.get(table)
        if known is None and not self.absent(table):
            known = self.look(table)
        return -1 if known is None else batch_of(known, self.settings.lane)

    def applied_of(self, table: str, last: int, lives: Lives) -> int:
        """As ``applied``, of a change log that ends at batch *last*.

        Raises:
            HeldError: ``log_lost``, that batch is gone, or another has its number.
        """
        applied, seen = self.applied(table), self._known.get(table)
        told = None if seen is None else life_of(seen)
        known = lives.at(applied)
        if applied > last or (told is not None and known is not None and told != known):
            detail = (
                f"its mirror is applied through batch {applied}, which is not in the change log "
                f"(it ends at {last}): the log's newest entries were lost; restore it, or take a "
                "new base and rebuild the mirror"
            )
            raise HeldError("log_lost", detail)
        return applied

    def commits(self, table: str, until: int) -> Iterator[Commit]:
        """What was committed up to version *until*, newest first, as far as the log still tells."""
        store = self.store(table)
        for version in range(until, -1, -1):
            try:
                content = store.read(entries.name(version))
            except FileNotFoundError:
                return
            yield commit(version, content.decode().splitlines(), entry=entries.digest(content))


def batch_of(snapshot: Snapshot, lane: str) -> int:
    """The batch a mirror is applied through; -1 before the first."""
    return snapshot.transactions.get(app(lane), -1)


def floors_of(snapshot: Snapshot) -> dict[Shard, Order]:
    """The highest truncate or settle of each shard that the mirror remembers."""
    text = snapshot.metadata.configuration.get(FLOORS, "{}")
    return {Shard.parse(name): Order(*parts) for name, parts in json.loads(text).items()}


def schemas_of(snapshot: Snapshot) -> dict[str, Order]:
    """``source/shard`` -> order of the schema change that the mirror follows."""
    text = snapshot.metadata.configuration.get(SCHEMAS, "{}")
    return {name: Order(*parts) for name, parts in json.loads(text).items()}


def told_floors(floors: Floors) -> dict[str, str]:
    """The property that remembers *floors*."""
    return {FLOORS: _told({str(s): order for s, order in floors.items()})}


def life_of(snapshot: Snapshot) -> int | None:
    """The life of landing whose batch was applied last; see :mod:`pipeline.lives`."""
    text = snapshot.metadata.configuration.get(LIFE)
    return None if text is None else int(text)


def told_life(life: int | None) -> dict[str, str]:
    """The property that remembers it."""
    return {} if life is None else {LIFE: str(life)}


def told_schemas(orders: Mapping[str, Order]) -> dict[str, str]:
    """The property that remembers which schema changes are followed."""
    return {SCHEMAS: _told(orders)}


def following(snapshot: Snapshot, batch: int, lane: str, **more: object) -> dict[str, object]:
    """As ``note``, of a commit that follows *snapshot*; with its shape and how many rows it has.

    Others' commits are held against these.
    """
    shape = shape_of(snapshot.metadata.action)
    return note(snapshot.version, batch, lane, shape=shape, rows=snapshot.rows, **more)


def note(after: int, batch: int, lane: str, **more: object) -> dict[str, object]:
    """What a commit of ours says of itself: it follows version *after*."""
    return {"sluice": {"after": after, "batch": batch, "lane": lane, **more}}


def _told(orders: Mapping[str, Order]) -> str:
    return json.dumps({name: order.parts for name, order in orders.items()}, sort_keys=True)
