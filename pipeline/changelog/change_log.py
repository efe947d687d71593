"""Reads and commits the change log of one lane: batches, landing checkpoint and landed rows.

No Spark: the Delta log of the table is read, and each `look` continues from the previous one.
An instance is for one thread.

`put` commits a batch once. A maintenance commit may come first; another batch of the lane may
not.

The landing checkpoint is assembled from the texts of marker rows. A text contains only what its
batch changed, so a missing marker would go unnoticed. Therefore every batch from the newest
full text on must be present exactly once, or the lane is held.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.data_file import PARTITION
from pipeline.changelog.scan import Part, find_parts, may_overlap, order_ends, scan_files
from pipeline.changelog.table import CHANGES, PROPERTIES, Stamp, build_app_id
from pipeline.checkpoint import FULL_EVERY, Checkpoint, CheckpointDelta
from pipeline.delta.commit import commit_actions, create_table
from pipeline.delta.log import Action, ActiveFile, Snapshot, load_snapshot
from pipeline.delta.store import Store
from pipeline.errors import HeldError, LostRaceError, ProofError
from pipeline.model import Op, Order

Texts = Sequence[tuple[int, str]]


def replay_checkpoints(
    texts: Iterable[tuple[int, str]], before: Checkpoint | None = None
) -> Checkpoint:
    """Return the checkpoint after the last of *texts*: (batch, text), unordered, each batch once.

    It starts from *before*, the checkpoint of the batch before the first text. Without it, it
    starts from the newest full text.

    Raises:
        HeldError: ``mark_lost`` if a batch is missing or present twice, or no text is full.
    """
    ordered: Texts = sorted(texts)
    checkpoint = before
    if ordered:
        first = CheckpointDelta.loads(ordered[-1][1]).changed.full
        if checkpoint is None or first > checkpoint.batch:
            checkpoint, ordered = _full(ordered, first)
    if checkpoint is None:
        raise HeldError(
            "mark_lost", "the change log has no checkpoint; restore it, or start with an empty lake"
        )
    for batch, text in ordered:
        if batch != checkpoint.batch + 1:
            raise HeldError("mark_lost", _hole(checkpoint.batch + 1, batch))
        checkpoint = checkpoint.advanced(text)
    return checkpoint


def _full(ordered: Texts, first: int) -> tuple[Checkpoint, Texts]:
    """Return the full checkpoint of batch *first*, and the texts after it."""
    found = [text for batch, text in ordered if batch == first]
    if len(found) != 1:
        detail = f"batch {first} has {len(found)} full markers"
        raise HeldError("mark_lost", f"{detail}; restore it, or begin with an empty lake")
    return Checkpoint.loads(found[0]), [(batch, text) for batch, text in ordered if batch > first]


def _hole(expected: int, found: int) -> str:
    what = f"batch {expected} has no marker, and batch {found} has one"
    if found < expected:
        what = f"batch {found} has more than one marker"
    return f"{what}; restore the change log, or begin with an empty lake"


@dataclass(eq=False)
class CheckpointReader:
    """Returns the checkpoint of any batch of one lane, in rising order; reads only new markers.

    ``texts`` returns (batch, text) of the lane's markers in batches after its argument.
    """

    texts: Callable[[int], Iterable[tuple[int, str]]]
    _known: Checkpoint | None = field(default=None, repr=False)

    def at(self, batch: int) -> Checkpoint:
        """Return the checkpoint as it was after *batch*; read no marker twice.

        Raises:
            HeldError: ``mark_lost`` if a marker that it needs is missing.
        """
        known = self._known
        if known is not None and known.batch == batch:
            return known
        if known is None or not known.batch < batch <= known.batch + FULL_EVERY:
            checkpoint = replay_checkpoints(self._whole(batch))
        else:
            checkpoint = replay_checkpoints(self._after(known.batch, batch), known)
        if checkpoint.batch != batch:
            detail = (
                f"batch {batch} has no marker; the newest marker is of batch {checkpoint.batch}"
            )
            raise HeldError("mark_lost", f"{detail}; restore it, or begin with an empty lake")
        self._known = checkpoint
        return checkpoint

    def _whole(self, batch: int) -> Texts:
        """Return the texts from the newest full one on; the last text names it."""
        last = self._after(batch - 1, batch)
        if len(last) != 1:
            detail = f"batch {batch} has {len(last)} markers"
            raise HeldError("mark_lost", f"{detail}; restore it, or begin with an empty lake")
        first = CheckpointDelta.loads(last[0][1]).changed.full
        return last if first == batch else self._after(first - 1, batch)

    def _after(self, since: int, until: int) -> Texts:
        return [(batch, text) for batch, text in self.texts(since) if batch <= until]


EVERY_OP = tuple(Op)
ROW_OPS = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ)


@dataclass(eq=False)
class ChangeLog:
    """The change log of ``lane``, which numbers the batches; for one thread."""

    store: Store
    lane: str
    _known: Snapshot | None = None
    _checkpoints: CheckpointReader = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read nothing yet."""
        self._checkpoints = CheckpointReader(self._texts)

    def look(self) -> Snapshot | None:
        """Return the newest version; None before the table exists."""
        self._known = load_snapshot(self.store, self._known)
        return self._known

    def know(self, snapshot: Snapshot) -> None:
        """Continue from *snapshot*, which was committed here."""
        self._known = snapshot

    @property
    def snapshot(self) -> Snapshot:
        """Return the version of the last look.

        Raises:
            ProofError: no look has found a change log yet.
        """
        if self._known is None:
            msg = f"there is no change log at {self.store.uri} yet"
            raise ProofError(msg)
        return self._known

    def opened(self, clock: datetime) -> Snapshot:
        """Return the newest version; create the table if it is missing."""
        return self.look() or self._made(clock)

    def batch(self) -> int:
        """Return the newest batch in the version of the last look; -1 before the first."""
        return self.snapshot.transactions.get(build_app_id(self.lane), -1)

    def put(self, actions: Sequence[Action], stamp: Stamp) -> None:
        """Commit the batch of *stamp* once; maintenance may come first, another batch may not.

        Raises:
            HeldError: ``lane_taken`` if the newest batch is not the one before it.
        """
        while True:
            if self.batch() != stamp.batch - 1:
                detail = f"lane {self.lane} is at batch {self.batch()}, not {stamp.batch - 1}"
                raise HeldError("lane_taken", f"{detail}; another service lands it")
            try:
                following = commit_actions(
                    self.store,
                    self.snapshot,
                    actions,
                    operation="WRITE",
                    clock=stamp.received,
                    note={"sluice": {"lane": self.lane, "batch": stamp.batch}},
                    txn=(build_app_id(self.lane), stamp.batch),
                    parameters={"mode": "Append"},
                )
            except LostRaceError:
                self.look()
            else:
                self.know(following)
                return

    def checkpoint(self) -> Checkpoint | None:
        """Return the newest batch's checkpoint; None before the first batch.

        Raises:
            HeldError: ``mark_lost`` if a batch is numbered but its checkpoint is incomplete.
        """
        if self.look() is None or self.batch() < 0:
            return None
        return self._checkpoints.at(self.batch())

    def schema_changes(self, after: int) -> list[tuple[str, Order, str]]:
        """Return source, order, payload of schema changes above batch *after*, as they landed."""
        columns = ("source", "order", "after", "batch", "topic", "offset")
        found = self._of_ops((Op.DDL,), after, columns)
        placed = found.filter(pc.is_valid(found["order"]))
        ordered = placed.sort_by([(name, "ascending") for name in ("batch", "topic", "offset")])
        return [(row["source"], Order(**row["order"]), row["after"]) for row in ordered.to_pylist()]

    def near(
        self, source: str, topics: Sequence[str], logs: Collection[int], columns: Sequence[str]
    ) -> pa.Table:
        """Return landed rows of these topics of a source whose order is in one of the *logs*."""
        files = self._files(lambda file: _meets(file, "log", min(logs), max(logs)))
        found = scan_files(
            self.store, files, among=("topic", topics), ops=EVERY_OP, columns=columns
        )
        log = pc.struct_field(found["order"], "log")
        own = pc.and_(
            pc.equal(found["source"], source), pc.is_in(log, pa.array(sorted(logs), pa.int64()))
        )
        return found.filter(pc.fill_null(own, False))

    def between(
        self, source: str, topic: str, first: int, last: int | None, columns: Sequence[str]
    ) -> pa.Table:
        """Return landed rows of one topic of a source with ``first <= order.log <= last``.

        *columns* must contain ``source`` and ``order``.
        """
        files = self._files(lambda file: _meets(file, "log", first, last))
        found = scan_files(
            self.store, files, among=("topic", (topic,)), ops=EVERY_OP, columns=columns
        )
        log = pc.struct_field(found["order"], "log")
        own = pc.and_(pc.equal(found["source"], source), pc.greater_equal(log, first))
        if last is not None:
            own = pc.and_(own, pc.less_equal(log, last))
        return found.filter(pc.fill_null(own, False))

    def of_key(self, table: str, key: str, since: Order, columns: Sequence[str]) -> pa.Table:
        """Return landed changes of one key of a table, none with an order below *since*."""
        files = self._files(lambda file: _meets(file, "epoch", since.epoch, None))
        wanted = tuple(dict.fromkeys([*columns, "table", "order"]))
        found = scan_files(self.store, files, among=("key", (key,)), ops=ROW_OPS, columns=wanted)
        own = found.filter(pc.equal(found["table"], table))
        above = [Order(**one) >= since for one in own["order"].to_pylist()]  # a key has few changes
        return own.filter(pa.array(above, pa.bool_())).select(list(columns))

    def sent(
        self, source: str, ids: Sequence[str], since: Order | None, columns: Sequence[str]
    ) -> pa.Table:
        """Return landed rows of these transactions of a source.

        *since* only skips files of earlier epochs: older rows of the same files are among them.
        """
        files = self._files(lambda file: since is None or _meets(file, "epoch", since.epoch, None))
        found = scan_files(
            self.store, files, among=("source", (source,)), ops=EVERY_OP, columns=columns
        )
        return found.filter(
            pc.is_in(pc.struct_field(found["tx"], "id"), pa.array(ids, pa.string()))
        )

    def _made(self, clock: datetime) -> Snapshot:
        made = create_table(
            self.store,
            CHANGES,
            clock=clock,
            partition_columns=[PARTITION],
            configuration=PROPERTIES,
            note={"sluice": {"lane": self.lane}},
        )
        self._known = made
        return made

    def _texts(self, since: int) -> Iterator[tuple[int, str]]:
        rows = self._of_ops((Op.MARK,), since, ("lane", "batch", "after"))
        for row in rows.to_pylist():
            if row["lane"] == self.lane:
                yield row["batch"], row["after"]

    def _of_ops(self, ops: Collection[Op], after: int, columns: Sequence[str]) -> pa.Table:
        files = find_parts(self.snapshot, after, self.batch(), ops)
        wanted = tuple(dict.fromkeys([*columns, "lane", "batch"]))
        rows = scan_files(self.store, files, among=("lane", (self.lane,)), ops=ops, columns=wanted)
        return rows.filter(pc.greater(rows["batch"], after)).select(list(columns))

    def _files(self, wanted: Callable[[ActiveFile], bool]) -> list[Part]:
        return [Part(f.path, 0, 0) for f in self.snapshot.files.values() if wanted(f)]


def require_rows_with_a_checkpoint(log: ChangeLog) -> None:
    """Reject a log that has rows of the lane, but no batch number of it.

    Raises:
        HeldError: ``mark_lost``.
    """
    batch = log.batch()
    files = find_parts(log.snapshot, -1, 2**62)
    if batch < 0 and files:
        found = scan_files(
            log.store, files, among=("lane", (log.lane,)), ops=EVERY_OP, columns=("batch",)
        )
        if len(found):
            msg = f"{log.store.uri} holds rows of lane {log.lane} but no checkpoint; restore it"
            raise HeldError("mark_lost", msg)


def _meets(file: ActiveFile, part: str, low: int, high: int | None) -> bool:
    """Return whether the file may hold orders with *part* in ``[low, high]``."""
    return may_overlap(order_ends(file, part), low, high)
