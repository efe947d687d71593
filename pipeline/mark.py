"""W and the landing loop's whole memory: one marker row in each commit of the change log."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pipeline.model import Acknowledged, Fence, Order, PartitionEnd


@dataclass(frozen=True, slots=True)
class Epoch:
    """Sluice's counter for one collector's log, and the highest head seen of its server.

    ``heartbeat`` is the highest number landed when the epoch began: until a higher one has
    landed, the collector may still be sending again what it sent under the epoch before.
    """

    number: int
    identity: str
    log: int
    pos: int
    executed: str = ""
    heartbeat: int = -1


@dataclass(frozen=True, slots=True)
class Snap:
    """A snapshot of one shard while its rows arrive: its order, and whether its end was seen.

    ``batch`` is the one that held its first row (or its schema event, for an empty shard).
    """

    order: Order
    batch: int
    rows: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """What a batch proves about itself and all batches before it, of one lane.

    ``offsets``       W: ``topic:partition`` -> the next offset to read.
    ``acknowledged``  source -> what was acknowledged *before* the end offsets were listed that
                      W has passed: every such transaction is landed.  Dropped when the epoch moves.
    ``heartbeats``    source -> highest heartbeat number landed.
    ``tables``        table -> the last batch that holds a change of it.
    ``epochs``        source -> its epoch now; ``starts``: ``source/epoch/topic:partition`` ->
                      first offset that belongs to it.
    ``high``          ``source/topic:partition`` -> highest LIVE order landed.
    ``shards``        ``source/shard`` -> its table, of every shard ever seen; None if ignored.
    ``bases``         ``source/shard`` -> order its newest base is complete as of.
    ``based``         ``source/shard`` -> batch in which the rows of that base began.
    ``snaps``         ``source/shard`` -> the snapshot that is not complete yet.
    ``grown``         topics that have gained partitions: their keys may have moved.
    ``gaps``          gap id -> JSON of the open :class:`pipeline.report.Gap`.
    ``quarantined``   table (or ``topic:NAME`` if unknown) -> ids of its open quarantined changes.
    """

    lane: str
    batch: int
    offsets: Mapping[str, PartitionEnd] = field(default_factory=dict)
    acknowledged: Mapping[str, Acknowledged] = field(default_factory=dict)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, Epoch] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, Order] = field(default_factory=dict)
    shards: Mapping[str, str | None] = field(default_factory=dict)
    bases: Mapping[str, Order] = field(default_factory=dict)
    based: Mapping[str, int] = field(default_factory=dict)
    snaps: Mapping[str, Snap] = field(default_factory=dict)
    grown: tuple[str, ...] = ()
    gaps: Mapping[str, str] = field(default_factory=dict)
    quarantined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def dumps(self) -> str:
        """Canonical JSON, the text kept in the marker row's ``after``."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> "Mark":
        """Read back what :meth:`dumps` wrote."""
        raw = json.loads(text)
        return cls(
            lane=raw["lane"],
            batch=raw["batch"],
            offsets={k: PartitionEnd(**v) for k, v in raw["offsets"].items()},
            acknowledged={k: Acknowledged(**v) for k, v in raw["acknowledged"].items()},
            heartbeats=raw["heartbeats"],
            tables=raw["tables"],
            epochs={k: Epoch(**v) for k, v in raw["epochs"].items()},
            starts=raw["starts"],
            high={k: Order(**v) for k, v in raw["high"].items()},
            shards=raw["shards"],
            bases={k: Order(**v) for k, v in raw["bases"].items()},
            based=raw["based"],
            snaps={k: Snap(**{**v, "order": Order(**v["order"])}) for k, v in raw["snaps"].items()},
            grown=tuple(raw["grown"]),
            gaps=raw["gaps"],
            quarantined={k: tuple(v) for k, v in raw["quarantined"].items()},
        )

    def covers(self, fence: Fence) -> bool:
        """Whether everything at or below *fence* is landed in this batch or before.

        The heartbeat itself must be landed, and the collector must have finished all below the
        fence's head before the end offsets that W has passed were listed.
        """
        known = self.acknowledged.get(fence.source)
        epoch = self.epochs.get(fence.source)
        if known is None or known.snapshot or epoch is None:
            return False
        if any(name.startswith(f"{fence.source}/") for name in self.snaps):
            return False  # rows deleted before the snapshot are not yet known to be gone
        if epoch.identity != fence.head.identity:
            return False  # positions of two servers are never compared
        if self.heartbeats.get(fence.source, -1) < fence.number:
            return False
        return (known.log, known.pos) >= (fence.head.log, fence.head.pos)
