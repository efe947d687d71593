"""Keeps the registry of tables with shards and keys, and the merge demand.

Names and shards come from the landing checkpoint. A table is watched until it is dropped,
ignored, or its source leaves the config. A shard that the source has and that folds into a
watched table is listed even if it never landed. Such a shard has no base, so its table cannot
be READY.

Sources are asked in parallel, and a sampling does not wait long for any of them. A late answer
counts from the next sampling.

Tables with merge demand do not wait for their merge interval.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol
from zlib import crc32

import structlog

from pipeline.checkpoint import Checkpoint, Existence, active_shards, shard_exists
from pipeline.clocks import has_passed
from pipeline.errors import SluiceError, UnreachableError
from pipeline.model import Order, Shard, Table
from pipeline.parallel import Answer, DeadlinePool
from pipeline.schema.model import Column
from pipeline.settings import Router, TableRule
from pipeline.standards.table_standards import NO_STANDARDS, Standards

KEYS_AGAIN = timedelta(hours=1)
ALL = r"(?s:.*)"  # each name, also one with a line break
log = structlog.get_logger(__name__)


class TableDictionary(Protocol):
    """The tables of a source, from its catalogue."""

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        """Return the tables whose full names match *pattern*."""
        ...

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        """Return the columns of the primary key, in order."""
        ...

    def columns(self, shard: Shard) -> Sequence[Column]:
        """Return the columns, in order."""
        ...


AskedKey = tuple[Table, tuple[Existence | None, ...]]
"""A table without its key, and the newest schema change of each of its shards."""


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """A ``table`` with the key from its source; the answer to a question ``about`` this state.

    It is valid ``until`` that time.
    """

    about: AskedKey
    until: datetime
    table: Table


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tables that ``changed`` between a checkpoint and shards; cached by their identities."""

    checkpoint: Checkpoint
    shards: Mapping[Shard, str] | None
    changed: frozenset[str]


@dataclass(eq=False)
class TableRegistry:
    """The tables of the newest checkpoint; asks sources every ``every``, or when shards change.

    Sources are asked for a table's key when a schema change of it has landed, and occasionally.  A
    source that does not answer is not asked for further keys until the next time.
    """

    sources: Callable[[], Mapping[str, TableDictionary]]
    rules: InitVar[tuple[TableRule, ...]]
    clock: Callable[[], datetime]
    every: timedelta = timedelta(seconds=60)
    standards: Standards = NO_STANDARDS
    _tables: tuple[Table, ...] = ()
    _named: Mapping[str, Table] = field(default_factory=dict)
    _described: tuple[object, object] | None = None  # the parts of the checkpoint behind _shards
    _shards: Mapping[Shard, str] | None = None
    _compared: Comparison | None = None
    _existing: Mapping[Shard, Existence] = field(default_factory=dict)
    _bases: Mapping[Shard, Order] = field(default_factory=dict)
    _declared: Mapping[str, str] = field(default_factory=dict)
    _there: dict[str, tuple[Shard, ...]] = field(default_factory=dict)  # shards matched by a rule
    _silent: Mapping[str, str] = field(default_factory=dict)
    _moving: frozenset[str] = frozenset()
    _new: tuple[str, ...] = ()  # sources from which nothing has landed
    _keys: dict[str, KeyAnswer] = field(default_factory=dict)
    _asked: datetime | None = None
    _unanswered: set[str] = field(default_factory=set)  # sources without an answer last time
    _late: frozenset[str] = frozenset()  # questions that were open when the tables were made
    _lock: threading.Lock = field(default_factory=threading.Lock)
    asking: DeadlinePool[Any] = field(init=False)
    router: Router = field(init=False)

    def __post_init__(self, rules: tuple[TableRule, ...]) -> None:
        """Create the thread pool, without connecting."""
        self.asking = DeadlinePool(self.clock, 3 * self.every)
        self.router = Router(rules)  # shared: it caches the rule of each shard

    @property
    def known(self) -> bool:
        """Whether a checkpoint was ever read; before that, no name can be called unknown."""
        return self._shards is not None

    def tables(self) -> tuple[Table, ...]:
        """Return all tables, sorted by name."""
        return self._tables

    def table(self, name: str) -> Table | None:
        """Return the table *name*, or None."""
        return self._named.get(name)

    def has_source_of(self, name: str) -> bool:
        """Whether a source has a table that the rules route to *name*, even if nothing has landed.

        A Postgres table without rows never lands.  This method queries the sources.
        """
        asked = {
            f"table {name} of source {source}": partial(one.shards, ALL)
            for source, one in self.sources().items()
        }
        answers = self.asking.ask(asked).values()
        found = (shard for one in answers if isinstance(one, Answer) for shard in one.value)
        return any(self.router.table(shard.name) == name for shard in found)

    def columns(self, table: Table) -> tuple[Column, ...]:
        """Return the columns of *table*'s first shard; empty if its source does not answer.

        This method queries the source, and waits as long as a query may take.
        """
        shard = table.shards[0]
        if (source := self.sources().get(shard.source)) is None:
            return ()
        asked = f"columns of {table.name}"
        answer = self.asking.ask({asked: partial(source.columns, shard)})[asked]
        return tuple(answer.value) if isinstance(answer, Answer) else ()

    def existing(self) -> Mapping[Shard, Existence]:
        """Return the newest landed schema change of each shard."""
        return self._existing

    def bases(self) -> Mapping[Shard, Order]:
        """Return, by shard, the order at which its newest base is complete."""
        return self._bases

    def declared(self) -> Mapping[str, str]:
        """Return ``shards`` of each rule -> why no table is collected for it; else empty.

        Rules that ignore tables are left out.
        """
        return self._declared

    def unlisted(self, table: Table, checkpoint: Checkpoint | None = None) -> str:
        """Return why *table* may have shards that it does not list; empty if it cannot.

        The last answer of a source counts.  A source that has never answered may have any shard, if
        it is a source of *table* or nothing has landed from it.
        If *checkpoint* is given, *table* must match it: another caller may have used a newer
        checkpoint, in which a shard was dropped.
        """
        if checkpoint is not None and table.name in self._changed(checkpoint):
            return "its shards changed during the request; ask again"
        if table.name in self._moving:
            return "its rule is new, and nothing has landed under it yet"
        if all(self.router.rule(shard.name) is None for shard in table.shards):
            return ""
        silent = ((name, self._silent.get(name)) for name in (*table.sources, *self._new))
        return next(
            (f"source {name} has not listed its tables: {why}" for name, why in silent if why), ""
        )

    def gains_shard(self, table: str) -> bool:
        """Whether new rules send *table* a shard whose earlier changes it does not have."""
        return table in self._moving

    def update(self, checkpoint: Checkpoint) -> None:
        """Use the shards of *checkpoint*; ask the sources if that is due."""
        now, self._existing, self._bases = self.clock(), checkpoint.existing, checkpoint.bases
        with self._lock:
            shards = self._living(checkpoint)
            due = (
                self._asked is None
                or has_passed(self._asked, self.every, now)
                or shards != self._shards
            )
            if not due and self._late <= self.asking.open:
                return
            if due:
                self._asked = now
                self._silent = dict(self._ask())
            tables = tuple(self._build(shards))  # an interrupted build is repeated the next time
            self._described, self._shards, self._tables = _telling(checkpoint), shards, tables
            self._named = {table.name: table for table in self._tables}
            self._moving = frozenset(_moving(checkpoint, self.router))
            self._new = tuple(
                sorted(self.sources().keys() - {shard.source for shard in checkpoint.shards})
            )

    def _changed(self, checkpoint: Checkpoint) -> frozenset[str]:
        """Return tables whose shards differ in *checkpoint*; computed once per look."""
        known, shards = self._compared, self._shards
        if known is None or known.checkpoint is not checkpoint or known.shards is not shards:
            known = self._compared = Comparison(
                checkpoint, shards, self._compare(checkpoint, shards or {})
            )
        return known.changed

    def _compare(self, checkpoint: Checkpoint, shards: Mapping[Shard, str]) -> frozenset[str]:
        if _telling(checkpoint) == self._described:
            return frozenset()
        others = active_shards(checkpoint, self.router).items() ^ shards.items()
        return frozenset(table for _, table in others)

    def _living(self, checkpoint: Checkpoint) -> Mapping[Shard, str]:
        """Return the active shards; computed only if the checkpoint's shards have changed."""
        if self._shards is not None and _telling(checkpoint) == self._described:
            return self._shards
        shards = active_shards(checkpoint, self.router)
        if shards == self._shards:
            self._described = _telling(checkpoint)
        return shards

    def _build(self, shards: Mapping[Shard, str]) -> list[Table]:
        router, sources = self.router, self.sources().keys()
        seen = {shard: table for shard, table in shards.items() if shard.source in sources}
        names = set(seen.values())
        folding = tuple(self._folding(router))
        self._declared = _uncollected(router, seen, [shard for shard, _ in folding])
        unseen = {shard: table for shard, table in folding if table in names}
        folded: dict[str, list[Shard]] = {}
        for shard, table in sorted({**unseen, **seen}.items()):
            folded.setdefault(table, []).append(shard)
        plain = [
            _plain(name, tuple(own), router.rule(own[0].name))
            for name, own in sorted(folded.items())
        ]
        self._learn_keys(plain)
        return [self._with_key(table) for table in plain]

    def _folding(self, router: Router) -> Iterator[tuple[Shard, str | None]]:
        """Yield shards in the sources' last answers that match a rule, with their tables."""
        for found in self._there.values():
            yield from ((shard, router.table(shard.name)) for shard in found)

    def _ask(self) -> Iterator[tuple[str, str]]:
        """Ask each source for shards that match rules; yield why a source has never answered."""
        if not self.router.rules:
            return
        asked = {
            f"source {name}": (name, partial(self._list, one))
            for name, one in self.sources().items()
        }
        said = self.asking.ask({who: put for who, (_, put) in asked.items()})
        self._unanswered = {name for who, (name, _) in asked.items() if _silent(said[who])}
        for who, (name, _) in asked.items():
            answer = said[who]
            if isinstance(answer, Answer):
                self._there[name] = answer.value
                continue
            why = answer.why.removeprefix(f"source:{name}: ").removeprefix(f"{who} ")
            log.info("source was not asked for shards", source=name, why=why)
            if name not in self._there:
                yield name, why

    def _list(self, source: TableDictionary) -> tuple[Shard, ...]:
        """Return all shards that match a rule; one query, because a source lists all names."""
        found = source.shards(ALL)
        return tuple(shard for shard in found if self.router.rule(shard.name) is not None)

    def _learn_keys(self, tables: Sequence[Table]) -> None:
        """Ask for unknown or old keys; each answer counts as soon as it arrives.

        A source that still owes an answer is not asked.
        """
        now, owing = self.clock(), self.asking.open
        asked: dict[tuple[str, ...], list[Table]] = {}
        for table in tables:
            known = self._keys.get(table.name)
            if known is None or known.about != self._about(table) or now >= known.until:
                asked.setdefault(table.sources, []).append(table)
        self.asking.ask(
            {
                f"keys of {' and '.join(names)}": partial(self._learn, own, self.sources())
                for names, own in asked.items()
                if not self._unanswered & {*names} | owing & {f"source {name}" for name in names}
            }
        )
        self._late = self.asking.open

    def _learn(self, tables: Sequence[Table], sources: Mapping[str, TableDictionary]) -> None:
        """Ask for one key after the other; stop if a source does not answer."""
        for table in tables:
            about, until = self._about(table), self.clock() + _some(KEYS_AGAIN, table.name)
            try:
                self._keys[table.name] = KeyAnswer(about, until, self._keyed(table, sources))
            except SluiceError as error:
                log.info("keys of a table are not known", table=table.name, why=str(error))
                if isinstance(error, UnreachableError):
                    return

    def _keyed(self, table: Table, sources: Mapping[str, TableDictionary]) -> Table:
        return _keyed(table, sources).with_standards(self.standards.columns(table.name))

    def _with_key(self, table: Table) -> Table:
        """Return the table with its last known key, also if its source is silent now."""
        known = self._keys.get(table.name)
        if known is not None and known.about == self._about(table):
            return known.table
        before = self._named.get(table.name)
        if before is None:
            return table
        key, ranged = before.key, before.id_column
        return replace(table, key=key, id_column=ranged, by_standard=before.by_standard)

    def _about(self, table: Table) -> AskedKey:
        return table, tuple(self._existing.get(shard) for shard in table.shards)


def find_table(
    name: str,
    checkpoint: Checkpoint,
    rules: Sequence[TableRule],
    sources: Mapping[str, TableDictionary],
    standards: Standards,
) -> Table | None:
    """Return table *name* as its *sources* describe it now; None if no shard exists.

    Shards that a source has and that have not landed yet are included.

    Raises:
        UnreachableError: a source did not answer.
    """
    router = Router(tuple(rules))
    landed = {shard for shard, of in active_shards(checkpoint, router).items() if of == name}
    there = {
        shard
        for source in sources.values()
        for shard in source.shards(ALL)
        if router.rule(shard.name) is not None and router.table(shard.name) == name
    }
    shards = tuple(sorted({*there, *(one for one in landed if one.source in sources)}))
    if not shards:
        return None
    table = _plain(name, shards, router.rule(shards[0].name))
    return _keyed(table, sources).with_standards(standards.columns(name))


def _plain(name: str, shards: tuple[Shard, ...], rule: TableRule | None) -> Table:
    return Table(
        name,
        shards,
        key=rule.key if rule else (),
        unique_across_shards=bool(rule and rule.unique_across_shards),
        tier=rule.tier if rule else 1,
    )


def _telling(checkpoint: Checkpoint) -> tuple[object, object]:
    return checkpoint.shards, checkpoint.existing


def _silent(answer: object) -> bool:
    return not isinstance(answer, Answer)


def _keyed(table: Table, sources: Mapping[str, TableDictionary]) -> Table:
    asked = ((one, table.key or sources[one.source].key_columns(one)) for one in table.shards)
    shard, key = next(((one, key) for one, key in asked if key), (table.shards[0], ()))
    if len(key) != 1:
        return replace(table, key=key)
    columns = sources[shard.source].columns(shard)
    whole = any(c.name == key[0] and c.dialect.whole(c) for c in columns)
    return replace(table, key=key, id_column=key[0] if whole else None)


def _some(length: timedelta, name: str) -> timedelta:
    """Return a time between *length* and twice that, so that tables are not all due at once."""
    return length * (1 + crc32(name.encode()) % 1_000 / 1_000)


def _uncollected(router: Router, landed: Iterable[Shard], there: Iterable[Shard]) -> dict[str, str]:
    """Return ``shards`` of each rule that does not ignore -> why nothing is collected, or ""."""
    collected = {router.rule(shard.name) for shard in landed}
    found: dict[TableRule | None, list[Shard]] = {}
    for shard in sorted(there):
        found.setdefault(router.rule(shard.name), []).append(shard)
    return {
        rule.shards: "" if rule in collected else _why_uncollected(found.get(rule, []))
        for rule in router.rules
        if not rule.ignore
    }


def _why_uncollected(found: Sequence[Shard]) -> str:
    if not found:
        return "no source is known to have a table that it matches, and none has landed"
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0].name} of source {found[0].source}{more}: nothing of it has landed"


def _moving(checkpoint: Checkpoint, router: Router) -> Iterator[str]:
    """Yield tables that get, by the present rules, a shard that landed for another or no table."""
    for shard, table in checkpoint.shards.items():
        now = router.table(shard.name)
        if now is not None and now != table and shard_exists(checkpoint, shard):
            yield now


REMEMBERED = timedelta(minutes=2)  # a client that polls asks again before that


@dataclass(eq=False)
class MergeDemand:
    """Tables that clients wait for; thread-safe.

    A demand ends when it is met, or after `REMEMBERED` unless it is repeated.
    """

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _wishes: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)  # asked, cut
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def want(self, tables: Iterable[str], cut: datetime) -> None:
        """Record that a client waits until *tables* are complete up to *cut*."""
        now = self.clock()
        with self._lock:
            for name in tables:
                asked, latest = self._wishes.get(name, (now, cut))
                if has_passed(asked, REMEMBERED, now):
                    latest = cut
                self._wishes[name] = (now, max(latest, cut))

    def meet(self, tables: Iterable[str], cut: datetime) -> None:
        """End demands for *tables* up to *cut*, because they are complete up to it."""
        with self._lock:
            for name in tables:
                if name in self._wishes and self._wishes[name][1] <= cut:
                    del self._wishes[name]

    def __call__(self) -> frozenset[str]:
        """Return the tables that clients wait for."""
        now = self.clock()
        with self._lock:
            self._wishes = {
                n: one for n, one in self._wishes.items() if not has_passed(one[0], REMEMBERED, now)
            }
            return frozenset(self._wishes)
