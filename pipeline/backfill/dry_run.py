"""Previews a repair: reads as the repair would, compares with the mirror, and lands nothing.

The mirror is read once it holds everything below the fence. A row that is newer in the mirror than
the fence counts as right, because a repair would not change it. Rows written during the read may
still show as different.

A repair deletes ids of a range that the mirror has and the source does not have. A mirror that is
behind would not show rows that are still to be merged. So dry runs and repairs wait for such a
mirror.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from shlex import quote
from typing import Any

import pyarrow as pa
import structlog

from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirror import MirrorSide
from pipeline.apply.row_metadata import SLUICE
from pipeline.backfill.task import find_key_ranges, require_few, stretch_rows
from pipeline.backfill_state import BackfillRequest, BackfillState, RepairPreview
from pipeline.checkpoint import Checkpoint
from pipeline.errors import ConfigError, ProofError, SluiceError
from pipeline.landing.listing import LandingSource
from pipeline.model import Order, Shard, Table
from pipeline.schema.decode import type_rows
from pipeline.sources.positions import locate_position
from pipeline.sources.row_reader import OpenRows, ReadFence, RowReader, RowsAsked

UNBOUNDED = 1_000_000


@dataclass(eq=False)
class MirrorIds:
    """Reads the mirror's ids once for each range of a request; cached only in this process."""

    open: Callable[[Table], MirrorSide | None]
    _due: dict[tuple[str, str, Order], int] = field(default_factory=dict)
    _known: dict[tuple[tuple[str, str, Order], tuple[int, int]], tuple[int, ...]] = field(
        default_factory=dict
    )

    def of(
        self,
        wish: BackfillRequest,
        shard: Shard,
        table: Table,
        span: tuple[int, int],
        checkpoint: Checkpoint,
        *,
        fence: Order,
    ) -> tuple[int, ...]:
        """Return ids from the first of *span* to the last, ascending; all below *fence* has landed.

        A backfill that restarts at another fence reads its ids again.

        Raises:
            ProofError: the mirror is behind what had landed at the first request.
            ConfigError: there are more ids than *wish* allows.
        """
        begun = (wish.id, str(shard), fence)
        asked = (begun, span)
        if asked not in self._known:
            self._forget(begun)
            due = self._due.setdefault(begun, checkpoint.tables.get(table.name, -1))
            self._known[asked] = self._ids(wish, shard, table, span, due)
        return self._known[asked]

    def keep(self, ids: frozenset[str]) -> None:
        """Forget all requests except these."""
        self._due = {at: batch for at, batch in self._due.items() if at[0] in ids}
        self._known = {at: found for at, found in self._known.items() if at[0][0] in ids}

    def _ids(
        self, wish: BackfillRequest, shard: Shard, table: Table, span: tuple[int, int], due: int
    ) -> tuple[int, ...]:
        mirror = self.open(table)
        if mirror is None and due < 0:
            return ()
        applied = -1 if mirror is None else mirror.batch
        if mirror is None or applied < due:
            msg = f"its mirror is merged through batch {applied}, and must reach {due} first"
            raise ProofError(f"{msg}; sluice explain {quote(table.name)}")
        limit = (wish.rows.most or UNBOUNDED) + 1
        found = mirror.ids(shard, table.key[0], (span[0], span[1] + 1), limit)
        others = (ids for (begun, _), ids in self._known.items() if begun[0] == wish.id)
        require_few(wish, len(found) + sum(map(len, others)))
        return found

    def _forget(self, begun: tuple[str, str, Order]) -> None:
        """Forget the ids of the same shard at another fence."""
        self._known = {
            at: ids for at, ids in self._known.items() if at[0] == begun or at[0][:2] != begun[:2]
        }


AT_ONCE = 10_000  # rows of a SELECT
NAMED = 20
ROUND = 20.0  # seconds after which the other shards wait for the next round
QUEUED = "it waits for its next round"
NO_SHARD = "no shard of the table is known; run `sluice status` to list tables"
NOT_YET = "it waits until all changes below its read position have landed"
log = structlog.get_logger(__name__)
Rows = Mapping[Any, Mapping[str, Any]]


@dataclass(eq=False)
class Previews:
    """Runs dry runs of range requests; their state is kept only in this process."""

    feeds: tuple[LandingSource, ...]
    open_rows: OpenRows
    open_mirror: Callable[[Table], MirrorSide | None]
    clock: Callable[[], datetime]
    _fences: dict[tuple[str, str], tuple[ReadFence, Order]] = field(default_factory=dict)
    _done: dict[tuple[str, str], BackfillState] = field(default_factory=dict)
    _next: tuple[str, str] = ("", "")
    _ids: MirrorIds = field(init=False)

    def __post_init__(self) -> None:
        """Set up the wait for mirrors, as repairs have it."""
        self._ids = MirrorIds(self.open_mirror)

    def run(
        self, landed: LandedState, wishes: Sequence[tuple[BackfillRequest, Table]]
    ) -> tuple[BackfillState, ...]:
        """Run one round; a request has ended once each of its shards was previewed, once each.

        A round has a time limit, because all backfills wait for it. The next round begins with the
        first shard that was left out.
        """
        self._keep(frozenset(wish.id for wish, _ in wishes))
        unknown = [
            BackfillState(w.id, w.table, "", why=NO_SHARD) for w, t in wishes if not t.shards
        ]
        targets = [(wish, table, shard) for wish, table in wishes for shard in table.shards]
        first = next((n for n, (w, _, s) in enumerate(targets) if (w.id, str(s)) == self._next), 0)
        found, until = list[BackfillState](), time.monotonic() + ROUND
        for wish, table, shard in (*targets[first:], *targets[:first]):
            state = self._done.get((wish.id, str(shard)))
            if state is None and found and time.monotonic() > until:
                state = BackfillState(wish.id, wish.table, str(shard), why=QUEUED)
            state = state or self._state(wish, table, shard, landed)
            if state.done is not None:
                self._done[wish.id, str(shard)] = state
            found.append(state)
        waiting = next((one for one in found if one.why == QUEUED), None)
        self._next = (waiting.id, waiting.shard) if waiting else ("", "")
        return (*found, *unknown)

    def _keep(self, ids: frozenset[str]) -> None:
        """Forget all requests except these."""
        self._fences = {at: one for at, one in self._fences.items() if at[0] in ids}
        self._done = {at: one for at, one in self._done.items() if at[0] in ids}
        self._ids.keep(ids)

    def _state(
        self, wish: BackfillRequest, table: Table, shard: Shard, landed: LandedState
    ) -> BackfillState:
        identity = (wish.id, wish.table, str(shard))
        try:
            found = self._look(wish, table, shard, landed)
        except SluiceError as error:
            return BackfillState(*identity, why=str(error), refused=isinstance(error, ConfigError))
        except Exception as error:  # the boundary of one request: the others continue
            log.exception("preview_failed", table=wish.table)
            why = f"{type(error).__name__}: {error}; see the log"
            return BackfillState(*identity, why=why, refused=True)
        if found is None:
            return BackfillState(*identity, why=NOT_YET)
        return BackfillState(*identity, done=landed.checkpoint.batch, preview=found)

    def _look(
        self, wish: BackfillRequest, table: Table, shard: Shard, landed: LandedState
    ) -> RepairPreview | None:
        feed = next(one for one in self.feeds if one.settings.name == shard.source)
        with closing(self.open_rows(feed.connected())) as server:
            fence, at = self._fence(wish, shard, landed, server)
            if not landed.checkpoint.passed(shard.source, at):
                return None
            found, count = RepairPreview(), 0
            for number, stretch in enumerate(find_key_ranges(wish, shard, table, tuple)):
                span = stretch_rows(wish, shard, number).span
                if span is None:
                    what = f"a dry run needs an integer key, which {table.name} does not have"
                    raise ConfigError(f"{what}; leave out --dry-run")
                # raises until the mirror is merged up to the fence
                self._ids.of(wish, shard, table, span, landed.checkpoint, fence=at)
                asked = RowsAsked(shard, table.key, stretch.read, stretch.until, AT_ONCE)
                texts = _read(server, fence, asked, wish, count)
                count += len(texts)
                source = _typed(texts, table, landed.catalog)
                found = found.with_more(
                    preview_repair(source, self._mirror(table, shard, span), at)
                )
            return found

    def _fence(
        self, wish: BackfillRequest, shard: Shard, landed: LandedState, server: RowReader
    ) -> tuple[ReadFence, Order]:
        known, epoch = (wish.id, str(shard)), landed.checkpoint.epochs.get(shard.source)
        if epoch is None:
            raise ProofError(f"source:{shard.source}: its server is not known yet")
        if known not in self._fences:
            at_least = landed.checkpoint.heartbeats.get(shard.source, -1) + 1
            fence = server.fence(at_least, self.clock())
            self._fences[known] = fence, Order(epoch.number, *locate_position(fence.head.position))
        fence, at = self._fences[known]
        if (epoch.number, epoch.identity) != (at.epoch, fence.head.identity):
            del self._fences[known]
            raise ProofError(
                f"source:{shard.source}: the server has changed; the dry run starts again"
            )
        return fence, at

    def _mirror(self, table: Table, shard: Shard, span: tuple[int, int]) -> Rows:
        mirror = self.open_mirror(table)
        found = mirror.rows_of(shard, table.key[0], (span[0], span[1] + 1)) if mirror else ()
        return {row[table.key[0]]: row for row in found}


def _read(
    server: RowReader, fence: ReadFence, asked: RowsAsked, wish: BackfillRequest, before: int
) -> list[str]:
    """Read the rows as the log would have them; *before* counts rows read earlier."""
    texts, ended = list[str](), False
    while not ended:
        read = server.read(fence, asked)
        texts += read.rows["after"].to_pylist()
        require_few(wish, before + len(texts))
        asked, ended = replace(asked, after=read.last), read.ended
    return texts


def _typed(texts: Sequence[str], table: Table, catalog: Catalog) -> Rows:
    """Type the rows as in the mirror, and return them by id."""
    own, columns = catalog.standards.of(table.name), catalog.schema(table).columns
    texts = texts if own is None else [own.row(one) for one in texts]
    rows = type_rows(pa.array(texts, pa.string()), columns).rows.to_pylist()
    return {row[table.key[0]]: row for row in rows}


def preview_repair(source: Rows, mirror: Rows, at: Order) -> RepairPreview:
    """Return what a repair at *at* would write, delete and replace."""
    standing = {id_ for id_, row in mirror.items() if not _is_newer(row, at)}
    missing = sorted(source.keys() - mirror.keys())
    extra = sorted(standing - source.keys())
    both = sorted(source.keys() & standing)
    different = [one for one in both if differing_columns(source[one], mirror[one])]
    named = [*_named("missing", missing), *_named("extra", extra), *_named("different", different)]
    return RepairPreview(len(missing), len(extra), len(different), tuple(named))


def _named(what: str, ids: Sequence[Any]) -> Iterator[str]:
    yield from (f"{what}: {id_}" for id_ in ids[:NAMED])


def _is_newer(row: Mapping[str, Any], at: Order) -> bool:
    came = (row.get(SLUICE) or {}).get("order")
    return came is not None and Order(**came) > at


def differing_columns(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns of *one* that do not have the same value in *other*; both have typed values."""
    return tuple(name for name, value in one.items() if not _alike(value, other.get(name)))


def _alike(one: Any, other: Any) -> bool:
    """Whether both are one value: JSON has several spellings, and NaN equals NaN here."""
    if one == other or (one != one and other != other):  # noqa: PLR0124 - NaN
        return True
    if not (isinstance(one, str) and isinstance(other, str) and one[:1] in tuple("{[")):
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False
