"""Traces one row: reads every hop for one key in parallel, and judges the answers.

A hop that does not answer in time becomes `Missing` and does not hide the others. The source is
read after a fence, which commits one heartbeat there, as a repair does. Its row is converted to the
types and standards of the mirror, so a column that a standard masks in the mirror is masked here
too. A column that the collector alters (masked, hashed, truncated, omitted) is neither shown nor
compared.

Source and mirror are read one after the other. While the verdict is IN_FLIGHT, the tracer waits
until everything committed before the source was read has landed. Then it reads change log and
mirror again. If a change of the row has landed in between, it also reads the source again.

Limits: the last ``MOST_RECORDS`` records of each partition that have not landed, the newest
``MOST_REFUSED`` open quarantined messages, and the change log as far as the budget allows.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from shlex import quote
from typing import Any

import pyarrow as pa

from checks.trace import (
    LandedChange,
    LandedChanges,
    MirrorFacts,
    TraceFacts,
    TraceState,
    TraceVerdict,
    judge_trace,
)
from monitor.clients import LakeClient
from monitor.quarantine import ErrorTable
from monitor.row_selection import parse_row_key
from pipeline.apply.catalog import Catalog
from pipeline.apply.row_metadata import SLUICE
from pipeline.backfill.dry_run import differing_columns
from pipeline.changelog.key_search import KeyChange, KeySearch, SoughtKeys
from pipeline.checkpoint import Checkpoint
from pipeline.errors import ConfigError, FormatError, HeldError, ProofError, SluiceError
from pipeline.finding import Effect
from pipeline.formats import json_text
from pipeline.model import CaptureScope, Fence, Missing, Op, Order, Origin, Shard, Table
from pipeline.parallel import Answer, DeadlinePool
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column, TableSchema
from pipeline.settings import Router, SourceSettings
from pipeline.sources.row_reader import OpenRows, ReadFence, RowReader, RowsAsked
from pipeline.standards.table_standards import rows_again, source_schema
from pipeline.transports.waiting import MOST_RECORDS, WaitingRecord, WaitingRecords, find_waiting

PATIENCE = timedelta(seconds=8)
"""Longest time for a hop, and for a fence at a source with open transactions.

The change log may take that long in addition to its budget.
"""
POLL = 0.25  # seconds between two checks whether everything has landed
MOST_REFUSED, MOST_OPEN = 20, 100
MOST_SHARDS = 200  # most shards of a traced table: each is a statement at its source
DELETED = str(Op.DELETE)
_WHOLE = re.compile(r"-?\d+")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Which row to trace; with ``at``, also in the version of the mirror at that time.

    ``budget`` is the time for searching the change log. ``wait`` is how long a row in flight is
    read again.
    """

    table: Table
    key: str
    at: datetime | None = None
    budget: timedelta = timedelta(seconds=1.5)
    wait: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class SourceLook:
    """The row at its source, as the mirror would have it; None if the source does not have it.

    ``hidden``: column -> setting, for columns that the row does not have here because the collector
    alters them. ``unseen`` says why the row has no values at all; empty if it has values.
    ``key`` is the row's key in the form of the log, before standards. Its letter case may differ
    from the requested key, because of a collation.
    """

    row: Row | None
    hidden: Mapping[str, str] = field(default_factory=dict)
    unseen: str = ""
    key: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class MirrorLook:
    """The row in a version of the mirror, with its origin, the column ``_sluice``.

    ``rows`` is the number of rows with the key in that version; 1 is right.
    ``committed`` is when the version was committed; set only for an older version.
    """

    version: int
    applied: int
    row: Row | None = None
    origin: Row = field(default_factory=dict)
    committed: datetime | None = None
    rows: int = 1

    @property
    def order(self) -> Order | None:
        """The order of the change that wrote the row; None without a row, or if adopted."""
        raw = self.origin.get("order")
        return None if raw is None else Order(**raw)

    @property
    def archived(self) -> bool:
        """Whether the source has archived the row."""
        return self.row is not None and self.origin.get("op") == DELETED


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """An open quarantined message that carries the key."""

    id: str
    why: str
    received: datetime


@dataclass(frozen=True, slots=True)
class ShardTrace:
    """The row in one shard: the verdict, and the answer of each hop."""

    shard: Shard
    verdict: TraceVerdict
    source: SourceLook | Missing
    waiting: tuple[WaitingRecord, ...] | Missing
    changes: tuple[KeyChange, ...] | Missing
    refused: tuple[RefusedMessage, ...] | Missing
    mirror: MirrorLook | Missing
    before: MirrorLook | Missing | None = None

    @property
    def nothing(self) -> bool:
        """Whether all hops answered and no hop has the row."""
        return self.verdict.state is TraceState.ABSENT


@dataclass(frozen=True, slots=True)
class Trace:
    """One row in all shards that have it, or in the first one if none has.

    ``key`` has the form of the change log, without source and shard. ``respelled``: the source
    spells the key differently (letter case) than the request; ``key`` is then the source's.
    ``shards`` is the number of shards of the table. ``records`` and ``search`` say how far topics
    and change log were searched.
    """

    table: str
    key: str
    traces: tuple[ShardTrace, ...]
    shards: int
    records: WaitingRecords | Missing
    search: KeySearch | Missing
    seconds: float
    respelled: bool = False


@dataclass(frozen=True, slots=True)
class _Subject:
    """The traced row: its key at the source, in the log by shard, and in the mirror.

    ``keys`` are all spellings that its key may have, with plain digits last: a large integer may be
    base64.  ``own`` are the same keys after standards, as in the change log.
    """

    request: TraceRequest
    keys: tuple[str, ...]
    own: tuple[str, ...]
    catalog: Catalog
    schema: TableSchema | Missing
    shards: tuple[Shard, ...]
    respelled: bool = False

    @property
    def table(self) -> Table:
        return self.request.table

    @property
    def log_keys(self) -> tuple[str, ...]:
        unique = self.table.unique_across_shards
        found = (
            json_text.canonical_key(json_text.parse_key(key), one.source, one.name, unique=unique)
            for one in self.shards
            for key in self.own
        )
        return tuple(dict.fromkeys(found))

    def asked(self, shard: Shard) -> RowsAsked:
        """Return the query for the row; an integer key as a range, which has only one spelling."""
        declared = self.catalog.newest(shard.source, shard.name)
        key, text = self.table.key, str(json_text.parse_key(self.keys[-1])[0])
        if self.table.id_column is not None and _WHOLE.fullmatch(text):
            span = (str(int(text) - 1),), (text,)
            return RowsAsked(shard, key, *span, 2, declared=declared)
        return RowsAsked(shard, key, None, None, 2, keys=self.keys[:1], declared=declared)

    def typed(self, text: str) -> Row:
        """Return the values of a row of the log, with the types of the mirror.

        Raises:
            ProofError: a value does not fit its column, or the columns are unknown.
        """
        if isinstance(self.schema, Missing):
            raise ProofError(self.schema.why)
        made = type_rows(pa.array([text], pa.string()), self.schema.columns)
        if made.misread[0].as_py():
            raise ProofError("a value of the row does not fit the type of its column")
        found: Row = made.rows.to_pylist()[0]
        return found

    def mirror_key(self) -> Row:
        """Return typed values of the key's columns.

        Raises:
            ProofError: the columns are unknown.
        """
        if isinstance(self.schema, Missing):
            raise ProofError(self.schema.why)
        found = dict[str, Any]()
        spelled = zip(*map(json_text.parse_key, self.own), strict=True)
        for name, texts in zip(self.table.key, spelled, strict=True):
            column = self.schema.column(name)
            if column is None:
                raise ProofError(f"{self.table.name} has no key column {name}")
            values = column.dialect.values(column, pa.array(texts, pa.string())).to_pylist()
            found[name] = next((one for one in values if one is not None), None)
        return found


@dataclass(frozen=True, slots=True)
class _Sighting:
    """The rows at the sources, and the newest batch known before they were read.

    ``covered`` are sources whose commits before that reading have all landed.
    """

    rows: Mapping[Shard, SourceLook | Missing]
    known_batch: int
    covered: frozenset[str] = frozenset()


@dataclass(eq=False)
class _Session:
    """The row readers and thread pools of one trace, so that traces do not wait for each other.

    ``log_pool`` is for the change log, which gets more time than the other hops.
    ``_asked`` counts how often each hop was asked, so a late answer is not used for a newer query.
    """

    open_rows: OpenRows
    addresses: Mapping[str, Callable[[], SourceSettings]]
    clock: Callable[[], datetime]
    closing: ExitStack
    pool: DeadlinePool[Any]
    log_pool: DeadlinePool[Any]
    _asked: Counter[str] = field(default_factory=Counter)
    _open: dict[str, RowReader] = field(default_factory=dict)
    _number: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, questions: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Return the answer of each hop, or `Missing` with the reason."""
        return self._ask(self.pool, questions)

    def ask_log(self, search: Callable[[], KeySearch]) -> KeySearch | Missing:
        """Return the answer of the change log, or `Missing` with the reason."""
        found: KeySearch | Missing = self._ask(self.log_pool, {"log": search})["log"]
        return found

    def _ask(
        self, pool: DeadlinePool[Any], questions: Mapping[str, Callable[[], Any]]
    ) -> dict[str, Any]:
        self._asked.update(questions.keys())
        names = {name: _numbered(name, self._asked[name]) for name in questions}
        answers = pool.ask({names[name]: put for name, put in questions.items()})
        found = {name: answers[names[name]] for name in questions}
        return {name: one.value if isinstance(one, Answer) else one for name, one in found.items()}

    def of(self, source: str) -> RowReader:
        with self._lock:
            if source not in self._open:
                if source not in self.addresses:
                    raise ConfigError(f"source {source} is not in the config any more")
                server = self.open_rows(self.addresses[source]())
                self._open[source] = self.closing.enter_context(closing(server))
            return self._open[source]

    def fence(self, source: str, checkpoint: Checkpoint | None) -> ReadFence:
        landed = -1 if checkpoint is None else checkpoint.heartbeats.get(source, -1)
        at_least = max(landed, self._number.get(source, -1)) + 1
        fence = self.of(source).fence(at_least, self.clock())
        self._number[source] = fence.number
        return fence


@dataclass(eq=False)
class Tracer:
    """Traces rows, for any number of threads.

    ``schemas`` returns the landed schemas. By source, ``addresses`` returns the settings with the
    present address, and ``captures`` what the collector sends. ``hold`` returns why the mirror of a
    table does not merge; empty if it does.
    """

    lake: LakeClient
    schemas: Callable[[], Catalog]
    addresses: Mapping[str, Callable[[], SourceSettings]]
    open_rows: OpenRows
    errors: ErrorTable
    clock: Callable[[], datetime]
    captures: Mapping[str, Callable[[], CaptureScope]]
    hold: Callable[[str], str] = lambda _: ""
    patience: timedelta = PATIENCE

    def trace(self, request: TraceRequest) -> Trace:
        """Read all hops, and repeat while the row is in flight.

        Raises:
            ConfigError: the key is not a key of the table.
        """
        began, until = time.monotonic(), time.monotonic() + request.wait.total_seconds()
        with ExitStack() as closing_:
            pool = DeadlinePool[Any](self.clock, timedelta(), self.patience)
            log_pool = DeadlinePool[Any](self.clock, timedelta(), self.patience + request.budget)
            session = _Session(self.open_rows, self.addresses, self.clock, closing_, pool, log_pool)
            checkpoint, subject = self._subject(request, session)
            subject, seen = self._respell(subject, self._sight(subject, session, checkpoint))
            found = self._look(subject, session, seen, checkpoint)
            while _is_moving(found) and time.monotonic() < until:
                covered = self._await(seen, session, checkpoint, until)
                if covered == seen.covered:
                    break
                seen = replace(seen, covered=covered)
                checkpoint = session.ask({"landing": self._checkpoint})["landing"]
                found = self._look(subject, session, seen, checkpoint)
                if _is_moving(found) and time.monotonic() < until:
                    seen = self._sight(subject, session, checkpoint)
                    subject, seen = self._respell(subject, seen)
                    found = self._look(subject, session, seen, checkpoint)
        return replace(found, seconds=time.monotonic() - began)

    def _checkpoint(self) -> Checkpoint:
        found = self.lake.lake.checkpoint()
        if found is None:
            raise ProofError("nothing has landed yet")
        return found

    def _subject(
        self, request: TraceRequest, session: _Session
    ) -> tuple[Checkpoint | Missing, _Subject]:
        answers = session.ask({"landing": self._checkpoint, "schemas": self.schemas})
        checkpoint, catalog, table = answers["landing"], answers["schemas"], request.table
        schema: TableSchema | Missing
        if isinstance(catalog, Missing):
            schema, catalog = catalog, Catalog(Router(self.lake.rules))
        else:
            try:
                schema = catalog.schema(table)
            except HeldError as error:
                schema = Missing(str(error))
        columns = () if isinstance(schema, Missing) else source_schema(schema).columns
        selected = parse_row_key(table, request.key, columns)
        keys = _spell_key(table, selected.values, columns)
        owns = self._standardise(table, keys)
        shards = [one for one in table.shards if selected.shard in ("", str(one))]
        if len(shards) > MOST_SHARDS:
            msg = f"table {table.name} has {len(shards)} shards, and {MOST_SHARDS} are traced"
            raise ConfigError(f'{msg} at once; name one: ["SOURCE","SHARD","KEY"]')
        return checkpoint, _Subject(request, keys, owns, catalog, schema, tuple(shards))

    def _standardise(self, table: Table, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Apply the standards of the table to *keys*, as in the change log.

        Raises:
            ConfigError: a value of a key has no standard value.
        """
        own = self.lake.standards.of(table.name)
        try:
            return keys if own is None else tuple(map(own.key_values, keys))
        except FormatError as error:
            raise ConfigError(f"the key has no standard value: {error}") from error

    def _respell(self, subject: _Subject, seen: _Sighting) -> tuple[_Subject, _Sighting]:
        """Continue with the key as the source spells it.

        Log and mirror are searched for only one key. If a shard has the row under another key, its
        source counts as missing.
        """
        source_keys = {
            shard: one.key for shard, one in seen.rows.items() if isinstance(one, SourceLook)
        }
        found = {key for key in source_keys.values() if key}
        if found <= {*subject.keys}:
            return subject, seen
        if len(found) == 1:
            keys = (*found,)
            own = self._standardise(subject.table, keys)
            return replace(subject, keys=keys, own=own, respelled=True), seen
        secret = any(map(subject.table.restates, subject.table.key))
        rows = {**seen.rows}
        for shard, key in source_keys.items():
            if key and key not in subject.keys:
                name = "a key in another spelling" if secret else f"the key {key}"
                rows[shard] = Missing(f"it has the row under {name}; trace that key")
        return subject, replace(seen, rows=rows)

    def _sight(
        self, subject: _Subject, session: _Session, checkpoint: Checkpoint | Missing
    ) -> _Sighting:
        """Read the row at each source."""
        known = None if isinstance(checkpoint, Missing) else checkpoint
        sources = sorted({shard.source for shard in subject.shards})

        def read(source: str) -> dict[Shard, SourceLook | Missing]:
            fence = session.fence(source, known)
            own = [shard for shard in subject.shards if shard.source == source]
            return {shard: self._read(subject, session.of(source), fence, shard) for shard in own}

        answers = session.ask(
            {
                **{f"source:{name}": partial(read, name) for name in sources},
                **{f"collector:{name}": partial(self._scope, name) for name in sources},
            }
        )
        rows = dict[Shard, SourceLook | Missing]()
        for shard in subject.shards:
            answer, scope = (answers[f"{part}:{shard.source}"] for part in ("source", "collector"))
            own = answer if isinstance(answer, Missing) else answer[shard]
            rows[shard] = own if isinstance(own, Missing) else _hide_altered(own, shard, scope)
        return _Sighting(rows, -1 if known is None else known.batch)

    def _scope(self, source: str) -> CaptureScope:
        if source not in self.captures:
            raise ConfigError(f"source {source} is not in the config any more")
        return self.captures[source]()

    def _read(
        self, subject: _Subject, server: RowReader, fence: ReadFence, shard: Shard
    ) -> SourceLook | Missing:
        try:
            rows = server.read(fence, subject.asked(shard)).rows
            keys = rows["key_values"].to_pylist()
            own = self.lake.standards.of(subject.table.name)
            if own is not None:
                rows = rows_again(rows, subject.table.key, own)
            texts = rows["after"].to_pylist()
            return SourceLook(subject.typed(texts[0]), key=keys[0]) if texts else SourceLook(None)
        except SluiceError as error:
            return Missing(str(error))

    def _await(
        self, seen: _Sighting, session: _Session, checkpoint: Checkpoint | Missing, until: float
    ) -> frozenset[str]:
        """Wait, and return the sources whose commits before they were read have all landed."""
        known = None if isinstance(checkpoint, Missing) else checkpoint
        sources = sorted({shard.source for shard in seen.rows} - seen.covered)
        questions = {name: partial(session.fence, name, known) for name in sources}
        fences = {
            name: Fence(name, answer.number, self.clock(), answer.head)
            for name, answer in session.ask(questions).items()
            if isinstance(answer, ReadFence)
        }
        covered = seen.covered
        while fences:
            now = session.ask({"landing": self._checkpoint})["landing"]
            if isinstance(now, Checkpoint):
                covered |= {name for name, fence in fences.items() if now.covers(fence)}
            if covered >= fences.keys() or time.monotonic() > until:
                break
            time.sleep(POLL)
        return covered

    def _look(
        self,
        subject: _Subject,
        session: _Session,
        seen: _Sighting,
        checkpoint: Checkpoint | Missing,
    ) -> Trace:
        """Read topic, quarantine, mirror and log, and judge each shard.

        The mirror is read before the log, so the log is never older than the mirror.
        """
        at, lake = subject.request.at, self.lake.lake
        answers = session.ask(
            {
                "mirror": partial(self._mirror, subject),
                "quarantine": partial(self._refused, subject, checkpoint),
                **({} if at is None else {"before": partial(self._mirror_at, subject, at)}),
                **{
                    f"topic:{name}": partial(self._waiting, subject, name, checkpoint)
                    for name in sorted({shard.source for shard in subject.shards})
                },
            }
        )
        names = (lake.settings.lane, subject.table.name)
        sought = SoughtKeys(*names, subject.log_keys, subject.request.budget)
        search = session.ask_log(partial(lake.key_changes, sought))
        topics = {name[6:]: one for name, one in answers.items() if name.startswith("topic:")}
        said = (answers["quarantine"], answers["mirror"], answers.get("before"), search)
        traces = []
        for shard in subject.shards:
            hops = _Hops(
                subject, shard, seen.rows[shard], topics[shard.source], *said, seen.known_batch
            )
            traces.append(self._judge(hops, seen, checkpoint))
        kept = tuple(one for one in traces if not one.nothing) or tuple(traces[:1])
        records = sum(
            (one for one in topics.values() if isinstance(one, WaitingRecords)), WaitingRecords()
        )
        silent = next((one for one in topics.values() if isinstance(one, Missing)), None)
        return Trace(
            *(subject.table.name, subject.own[-1], kept, len(subject.table.shards)),
            *(silent or records, search, 0.0, subject.respelled),
        )

    def _judge(
        self, hops: "_Hops", seen: _Sighting, checkpoint: Checkpoint | Missing
    ) -> ShardTrace:
        source, shard, refused = hops.source, hops.shard, hops.refused
        changes, mirror, waiting = hops.changes, hops.mirror_row, hops.waiting
        facts = TraceFacts(
            source=source if isinstance(source, Missing) else source.row is not None,
            waiting=hops.newest_waiting,
            log=hops.landed,
            refused=refused if isinstance(refused, Missing) else tuple(one.id for one in refused),
            mirror=mirror if isinstance(mirror, Missing) else _mirror_facts(mirror),
            differing=_differing(source, mirror),
            hidden=() if isinstance(source, Missing) else tuple(source.hidden),
            unseen="" if isinstance(source, Missing) else source.unseen,
            covered=shard.source in seen.covered,
            known_batch=seen.known_batch,
            base=_has_base(shard, checkpoint, mirror),
            hold=self.hold(hops.subject.table.name),
        )
        row = (source, waiting, changes, refused, mirror, hops.row_before)
        return ShardTrace(shard, judge_trace(facts), *row)

    def _mirror(self, subject: _Subject) -> tuple[MirrorLook, ...]:
        if self.lake.lake.applied(subject.table.name) is None:
            return (MirrorLook(-1, -1),)
        side = self.lake.lake.mirror(subject.table)
        rows = side.rows_with_key(subject.mirror_key())
        return _rows_in(MirrorLook(side.version, side.batch), rows)

    def _mirror_at(self, subject: _Subject, at: datetime) -> tuple[MirrorLook, ...]:
        version, committed = self.lake.lake.version_at(subject.table.name, at)
        side = self.lake.lake.mirror(subject.table).as_of(version)
        look = MirrorLook(version, side.batch, committed=committed)
        return _rows_in(look, side.rows_with_key(subject.mirror_key()))

    def _waiting(
        self, subject: _Subject, source: str, checkpoint: Checkpoint | Missing
    ) -> WaitingRecords:
        if isinstance(checkpoint, Missing):
            raise ProofError(f"it is unknown what has landed: {checkpoint.why}")
        if source not in self.lake.origins:
            raise ConfigError(f"source {source} is not in the config any more")
        origin, transport = self.lake.origins[source], self.lake.transport(Tracer)
        return find_waiting(
            subject.table, origin, transport, checkpoint.offsets, frozenset(subject.log_keys)
        )

    def _refused(
        self, subject: _Subject, checkpoint: Checkpoint | Missing
    ) -> tuple[RefusedMessage, ...]:
        """Open quarantined messages of the table that carry the key.

        A message of unknown table counts if its topic is named for one of the shards.

        Raises:
            ProofError: no message shows the key, and not all of them can be read.
        """
        table, unknown = (
            subject.table.name,
            {} if isinstance(checkpoint, Missing) else checkpoint.quarantine,
        )
        names = [name for name in unknown if _is_topic_of(name, subject.shards)]
        rows = [row for name in (table, *names) for row in self.errors.rows(name, MOST_OPEN)]
        still = self.errors.open(rows)
        rows = [row for row in rows if still[row.change]]
        values = zip(*map(json_text.parse_key, subject.keys), strict=True)
        named = dict(zip(subject.table.key, values, strict=True))
        found, hidden = list[RefusedMessage](), max(len(rows) - MOST_REFUSED, 0)
        for row in rows[:MOST_REFUSED]:
            shown = [*self.errors.message(row.change).objects()]
            keys = [one for one in shown if named.keys() <= one.keys()]
            if any(all(str(one[name]) in named[name] for name in named) for one in keys):
                found.append(RefusedMessage(row.change, row.why, row.received))
            hidden += not keys
        if not found and hidden:
            msg = f"{hidden} refused messages of the table do not show their keys"
            raise ProofError(f"{msg}; list them: sluice quarantine list {quote(table)}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Hops:
    """The answers of all hops, and the parts of them for one shard."""

    subject: _Subject
    shard: Shard
    source: SourceLook | Missing
    topic: WaitingRecords | Missing
    refused: tuple[RefusedMessage, ...] | Missing
    mirror: tuple[MirrorLook, ...] | Missing
    before: tuple[MirrorLook, ...] | Missing | None
    search: KeySearch | Missing
    known_batch: int

    @property
    def changes(self) -> tuple[KeyChange, ...] | Missing:
        if isinstance(self.search, Missing):
            return self.search
        return tuple(one for one in self.search.changes if one.shard == self.shard)

    @property
    def waiting(self) -> tuple[WaitingRecord, ...] | Missing:
        """Records that had not landed when the log was searched.

        A partition lands in the order of its offsets. So records below one that has landed since
        the trace began have landed, too, even if the search leaves them out.
        """
        if isinstance(self.topic, Missing):
            return self.topic
        changes = () if isinstance(self.changes, Missing) else self.changes
        landed, highest = {(one.place, one.offset) for one in changes}, dict[Any, int]()
        for one in changes:
            if one.batch > self.known_batch:
                highest[one.place] = max(one.offset, highest.get(one.place, -1))
        own = (one for one in self.topic.found if one.shard == self.shard)
        above = (one for one in own if one.offset > highest.get(one.at, -1))
        return tuple(one for one in above if (one.at, one.offset) not in landed)

    @property
    def newest_waiting(self) -> str | Missing:
        waiting = self.waiting
        if isinstance(waiting, Missing):
            return waiting
        if waiting:
            return str(waiting[-1])
        if isinstance(self.topic, WaitingRecords) and self.topic.skipped:
            msg = f"{self.topic.skipped} records before the last {MOST_RECORDS} were not looked at"
            return Missing(msg)
        return ""

    @property
    def mirror_row(self) -> MirrorLook | Missing:
        return self.mirror if isinstance(self.mirror, Missing) else self._own(self.mirror)

    @property
    def row_before(self) -> MirrorLook | Missing | None:
        if self.before is None or isinstance(self.before, Missing):
            return self.before
        return self._own(self.before)

    @property
    def landed(self) -> LandedChanges | Missing:
        changes, search, mirror = self.changes, self.search, self.mirror_row
        if isinstance(changes, Missing) or isinstance(search, Missing):
            return Missing(str(getattr(search, "why", "")))
        batch = -1 if isinstance(mirror, Missing) else mirror.origin.get("batch") or -1
        whole = search.whole or batch >= search.down_to
        searched = f"{search.footers} of {search.files} files, batches from {search.down_to} on"
        return LandedChanges(tuple(map(_landed, changes)), whole, searched, search.dropped)

    def _own(self, looks: tuple[MirrorLook, ...]) -> MirrorLook:
        """Return the row of the shard; in a table with one shard, every row belongs to it."""
        table, own = self.subject.table, (self.shard.source, self.shard.name)
        only = len(table.shards) == 1
        there = [one for one in looks if one.row is not None]
        mine = [
            one
            for one in there
            if only or (one.origin.get("source"), one.origin.get("shard")) == own
        ]
        if not mine:
            return replace(looks[0], row=None, origin={})
        return replace(mine[0], rows=len(there if table.unique_across_shards else mine))


def _spell_key(table: Table, key: str, columns: Sequence[Column]) -> tuple[str, ...]:
    """Return all spellings of the canonical *key*, with plain digits last."""
    known = {column.name: column for column in columns}
    spelled = list[tuple[str, ...]]()
    for name, text in zip(table.key, json_text.parse_key(key), strict=True):
        column, written = known.get(name), str(text)
        whole = column is not None and column.dialect.whole(column) and _WHOLE.fullmatch(written)
        if column is not None and whole and not table.restates(name):
            spelled.append(column.dialect.spellings(column, int(written)))
        else:
            spelled.append((written,))
    made = (json_text.canonical_key(one, "", "", unique=True) for one in product(*spelled))
    return tuple(dict.fromkeys(made))


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name} (look {count})"


def _is_moving(found: Trace) -> bool:
    return any(one.verdict.transient for one in found.traces)


def _is_topic_of(subject: str, shards: Sequence[Shard]) -> bool:
    kind, _, topic = subject.partition(":")
    return kind == "topic" and any(topic.endswith(f".{shard.name}") for shard in shards)


def _rows_in(look: MirrorLook, rows: Sequence[Row]) -> tuple[MirrorLook, ...]:
    """Return one look for each of *rows*; *look* itself without any."""
    return tuple(
        replace(
            look,
            row={name: value for name, value in row.items() if name != SLUICE},
            origin=row.get(SLUICE) or {},
        )
        for row in rows
    ) or (look,)


def _landed(one: KeyChange) -> LandedChange:
    return LandedChange(one.op, one.batch, one.order, one.at, one.origin is Origin.LIVE)


def _mirror_facts(look: MirrorLook) -> MirrorFacts:
    return MirrorFacts(look.row is not None, look.applied, look.order, look.archived, look.rows)


def _hide_altered(look: SourceLook, shard: Shard, scope: CaptureScope | Missing) -> SourceLook:
    """Remove columns that the collector alters; all columns if it is unknown which ones."""
    if look.row is None:
        return look
    if isinstance(scope, Missing):
        why = f"it is unknown which columns the collector alters: {scope.why}"
        return replace(look, row={}, unseen=why)
    for one in scope.hazards:
        if one.effect is Effect.REWRITES and one.affects(shard.name):
            return replace(look, row={}, unseen=f"the collector rewrites values: {one.identity}")
    if scope.alters is None:
        return look
    found = {name: scope.alters(f"{shard.name}.{name}") for name in look.row}
    hidden = {name: by for name, by in found.items() if by}
    row = {name: one for name, one in look.row.items() if name not in hidden}
    return replace(look, row=row, hidden=hidden)


def _differing(source: SourceLook | Missing, mirror: MirrorLook | Missing) -> tuple[str, ...]:
    """Return the columns in which the rows of source and mirror differ, if both exist."""
    if isinstance(source, Missing) or isinstance(mirror, Missing):
        return ()
    if source.row is None or mirror.row is None:
        return ()
    return differing_columns(source.row, mirror.row)


def _has_base(shard: Shard, checkpoint: Checkpoint | Missing, mirror: MirrorLook | Missing) -> bool:
    """Whether the newest base of the shard is merged; true while that is unknown."""
    if isinstance(checkpoint, Missing) or isinstance(mirror, Missing):
        return True
    return (
        shard in checkpoint.bases
        and checkpoint.complete.get(shard, mirror.applied + 1) <= mirror.applied
    )
