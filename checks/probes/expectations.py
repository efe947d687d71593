"""Evaluates suites of Great Expectations on every changed row of a mirror, and on the whole.

Each look evaluates the rows that changed since the last one, in their present state. A row that
does not meet an expectation is evaluated again by each look, so a later good row does not end the
finding about an earlier bad one. If such rows are many, or cannot be found by their keys, each look
evaluates all rows changed since the first of them. Expectations about a set of rows (unique values,
a mean, a row count) are evaluated on the whole mirror. The first look evaluates the whole mirror,
and so does the first one after a new base, a schema change or a change of the suite.

Cannot detect: a plausible value that differs from the source; changes that a later change replaced
between two looks; for set expectations, anything between two looks at the whole.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import structlog

from checks.counting import load_instant
from checks.model import MOST_KEYS, FailKind, NotYet, OneOrMore, Outcome, Ruling, Span, Undecided
from checks.named_rows import describe_all, describe_count
from checks.run import Probe
from checks.validation import CHANGES, MEMORY, WHOLE, ValidationResult, bound_results
from checks.world import MirrorSide, World
from pipeline.errors import ConfigError, ProofError, SluiceError
from pipeline.installed import require_package
from pipeline.invariants.expectations import HOLDING
from pipeline.invariants.expectations import Expectations as Held
from pipeline.model import Fence, Table
from pipeline.settings import InvariantRule
from pipeline.suites import (
    SLUICE,
    ExpectationResult,
    ExpectationSettings,
    SuiteAnswer,
    SuiteLook,
    evaluate_rows,
    explain_spark_need,
    import_expectations,
    is_share,
    list_column_mistakes,
    list_mistakes,
    list_read_columns,
    list_suites,
    name_row,
    resolve_suites,
    split_expectations,
)

Parts = tuple[tuple[ExpectationSettings, ...], ...]
"""The suites of one table."""
NAME = "expectations"
MOST_AGAIN = 20  # most unmet rows that each look finds by their keys
MOST_STATES = 10_000  # most tables whose state is kept
MOST_BYTES = 64 * 2**20  # of rows that one look reads into memory
AGAIN = timedelta(hours=1)
"""How long after a failed check of a whole mirror the next one starts."""
log = structlog.get_logger(__name__)
_states: dict[str, tuple[Parts, str, str]] = {}
_looked: dict[str, str] = {}
"""By table the state of the last look of this process."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at ``rows`` rows that changed after batch ``after``; at all rows if it is None.

    ``again`` of the rows are older, and did not meet an expectation before.
    """

    after: int | None
    rows: int
    results: tuple[ExpectationResult, ...]
    again: int = 0

    @property
    def unmet(self) -> tuple[ExpectationResult, ...]:
        """Results that are not met and have a severity above `info`."""
        return tuple(one for one in self.unmet_or_info if one.severity != "info")

    @property
    def unmet_or_info(self) -> tuple[ExpectationResult, ...]:
        """Results that are not met, of any severity."""
        return tuple(one for one in self.results if one.met is False)

    @property
    def is_done(self) -> bool:
        """Whether its rows need no further look: all was evaluated, and ``unmet`` is empty."""
        return not self.unmet and all(one.met is not None for one in self.results)

    @property
    def scope(self) -> str:
        """The rows that it evaluated, as text."""
        if self.after is None:
            return describe_all(self.rows)
        before = f", and {self.again} that did not meet one before" if self.again else ""
        return f"{describe_count(self.rows - self.again)} changed after batch {self.after}{before}"


@dataclass(frozen=True, slots=True)
class Content:
    """The results of the suite: the newest look, and the last one at the whole before it.

    ``nothing`` says why there is nothing to evaluate, and so why earlier findings end.
    """

    looks: tuple[Look, ...]
    as_of: tuple[Fence, ...] = ()
    nothing: str = ""

    @property
    def results(self) -> tuple[ExpectationResult, ...]:
        """The results of all looks."""
        return tuple(one for look in self.looks for one in look.results)

    @property
    def value(self) -> float:
        """Number of expectations that are not met."""
        return float(_count_expectations(look.unmet_or_info for look in self.looks))

    @property
    def is_unmet(self) -> bool:
        """Whether an expectation with a severity above `info` is not met."""
        return any(look.unmet for look in self.looks)

    @property
    def is_broken(self) -> bool:
        """Whether an expectation could not be evaluated."""
        return any(one.met is None for one in self.results)


@dataclass(frozen=True, slots=True)
class Seen:
    """The stored progress: rows are evaluated up to ``batch``; those after ``since`` may be unmet.

    ``state`` identifies suite and rows; if it changes, a look at the whole is due. ``whole`` is the
    last look at the whole, at ``whole_at``, without the results that were met. ``again`` names all
    unmet rows up to ``batch``; if empty, the next look evaluates all rows changed after ``since``.
    """

    state: str
    batch: int
    since: int
    whole: Look
    whole_at: datetime
    again: tuple[str, ...] = ()

    def is_whole_due(self, every: timedelta, now: datetime) -> bool:
        """Whether a look at the whole is due."""
        return now - self.whole_at >= (every if self.whole.is_done else min(every, AGAIN))

    @property
    def is_open(self) -> bool:
        """Whether changed rows do not meet an expectation, or one could not be evaluated."""
        return self.since != self.batch

    def dumps(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "whole_at": self.whole_at.isoformat()}

    @staticmethod
    def loads(known: Mapping[str, Any]) -> "Seen":
        """Read back what :meth:`dumps` returned."""
        whole = known["whole"]
        results = (
            ExpectationResult(**{**one, "keys": tuple(one["keys"])}) for one in whole["results"]
        )
        look = Look(whole["after"], int(whole["rows"]), tuple(results))
        batch, since = int(known["batch"]), int(known["since"])
        again = tuple(map(str, known.get("again", ())))
        return Seen(known["state"], batch, since, look, load_instant(known["whole_at"]), again)


@dataclass(frozen=True, slots=True)
class Expectations:
    """Fail when rows of the mirror do not meet an expectation."""

    suite: tuple[ExpectationSettings, ...] = ()
    """Expectations for each table that the probe checks."""
    suites: Mapping[str, str] = field(default_factory=dict)
    """Files of suites, as Great Expectations 1.x exports them, by table or pattern of tables.

    All suites that match a table apply.
    """
    modules: tuple[str, ...] = ()
    """Full names of modules with expectations of your own."""
    rows: OneOrMore = 100_000
    """Most rows that one look reads into memory; more, or more than 64 MiB, Spark evaluates.

    Only the columns that the suite names are read, unless an expectation is about the whole table
    or is one of your own.
    """
    gate: bool = False
    """Whether changes that do not meet a critical expectation about single rows are held.

    They reach neither the mirror nor an image, as with an [invariant](../guides/invariants.md).
    """
    whole_every: Span = timedelta(days=1)
    """Time between two looks at the whole mirror; at most 1h after a look that was not met."""
    limit: Span = timedelta(minutes=2)
    every: ClassVar[timedelta] = timedelta(minutes=1)
    gating: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.SUSPECT

    def __post_init__(self) -> None:
        """Reject a suite if the package that evaluates it is not installed."""
        if self.suite or self.suites:
            require_package("great_expectations")

    @property
    def looks_by_spark(self) -> bool:
        """Whether the probe may request looks by Spark."""
        return bool(self.suite or self.suites)

    def located_from(self, folder: Path) -> "Expectations":
        """Return it with files relative to *folder*.

        Raises:
            ConfigError: a file is missing or is not a suite.
        """
        return replace(self, suites=resolve_suites(self.suites, folder))

    @property
    def gate_rules(self) -> tuple[InvariantRule, ...]:
        """Rules that hold changes before they reach a mirror; empty unless ``gate`` is set."""
        if not self.gate:
            return ()
        held = [(name, Held((), {name: path}, self.modules)) for name, path in self.suites.items()]
        held += [("*", Held(self.suite, {}, self.modules))] if self.suite else []
        return tuple(InvariantRule(name, ((NAME, one),)) for name, one in held)

    def doubts(self) -> Iterator[str]:
        """Yield each setting without effect as ``key: why``."""
        if not self.suite and not self.suites:
            given = [name for name in ("modules", "gate") if getattr(self, name)]
            yield from (f"{one}: has no effect without `suite` or `suites`" for one in given)
        elif self.gate:
            held = Held(self.suite, self.suites, self.modules)
            yield from held.share_doubts()
            if not held.holds_any:
                yield f"gate: has no effect without {HOLDING}; add one, or remove gate"

    def mistakes(self) -> Iterator[str]:
        """Yield each expectation that cannot be evaluated on any table, after its key."""
        if self.suite or self.suites:
            yield from list_mistakes(self.suite, self.suites, self.modules)

    def column_mistakes(self, table: str, columns: Sequence[str]) -> Iterator[str]:
        """Yield each expectation about a column that the *table* does not have."""
        return list_column_mistakes(self.suite, self.suites, table, columns)

    def measure(self, table: Table, world: World) -> Content | NotYet | Undecided:
        """Evaluate the suite on changed rows, or on the whole mirror if that is due."""
        try:
            parts = tuple(own for _, own in self._of(table.name))
            if not any(parts):
                return _forget(table, world, "no expectations are set for it")
            import_expectations(self.modules)
        except ConfigError as error:
            return Undecided("broken", str(error))
        mirror = world.mirror(table)
        if not world.reached(table, ()):
            return NotYet("its first snapshot is not merged yet")
        suite = tuple(one for own in parts for one in own)
        state = _digest_once(table.name, parts, mirror.rewritten)
        seen = _recall(table, world, state, mirror.batch)
        round_ = Round(table, world, suite, state)
        if seen is None:
            return self._look_at_whole(round_)[0]
        if seen.is_whole_due(self.whole_every, world.now):
            return self._look_at_due_whole(round_, seen)
        return self._look_at_changes(round_, seen)

    def judge(self, reading: Content, past: Sequence[float]) -> Ruling:
        """Return FAIL if an expectation is not met, UNKNOWN if one could not be evaluated."""
        if reading.nothing:
            return Ruling(Outcome.PASS, reading.nothing)
        broken = [one.text for one in reading.results if one.met is None]
        looked = " and ".join(look.scope for look in reading.looks)
        for look in reading.looks:
            if look.unmet:
                return _fail(reading, look)
        if broken:
            return Ruling(Outcome.UNKNOWN, f"could not be evaluated: {broken[0]}", "broken")
        info = [one.text for one in reading.results if one.met is False]
        mentioned = f"; not met, and only mentioned: {info[0]}" if info else ""
        met = _count_met(reading.looks[0].results)
        return Ruling(Outcome.PASS, f"{met} by {looked}{mentioned}")

    def _of(self, table: str) -> Iterator[tuple[str, tuple[ExpectationSettings, ...]]]:
        """Yield the suites of *table*, each after the place where it is configured."""
        if self.suite:
            yield "suite", self.suite
        yield from list_suites(self.suites, table)

    def _look_at_due_whole(self, round_: "Round", seen: Seen) -> Content | NotYet:
        """Look at the whole; until it is evaluated, what changed rows do not meet still counts."""
        whole: Content | NotYet | SluiceError
        try:
            whole, batch = self._look_at_whole(round_)
        except SluiceError as error:
            whole, batch = error, seen.batch
        if isinstance(whole, Content):
            if seen.is_open and batch < seen.batch and not whole.is_unmet:
                return NotYet("rows that changed after the look at the whole are evaluated next")
            return whole
        found: Content | NotYet | None = None
        with suppress(SluiceError):  # the error of the whole is told, or that it is awaited
            found = self._look_at_changes(round_, seen)
        is_awaited = isinstance(whole, NotYet)
        if isinstance(found, Content) and (found.is_unmet or (is_awaited and found.is_broken)):
            return found
        if isinstance(found, NotYet) and (seen.is_open or seen.whole.unmet):
            return found  # the last verdict stays
        if isinstance(whole, SluiceError):
            raise whole
        return whole

    def _look_at_whole(self, round_: "Round") -> tuple[Content | NotYet, int]:
        """Evaluate all rows; also return the batch through which they were read."""
        look, batch = self._look(round_, round_.suite, None)
        if isinstance(look, NotYet):
            return look, batch
        if not look.rows and not split_expectations(round_.suite)[1]:
            return _forget(round_.table, round_.world, "the mirror is empty"), batch
        found = replace(look, results=tuple(one for one in look.results if one.met is not True))
        round_.remember(Seen(round_.state, batch, batch, found, round_.world.now))
        round_.keep_results(round_.suite, look, batch)
        return Content((look,)), batch

    def _look_at_changes(self, round_: "Round", seen: Seen) -> Content | NotYet:
        told = not seen.is_open or _looked.get(round_.table.name) == round_.state
        if told and seen.batch == round_.mirror.batch:  # a killed process may not have told it
            return NotYet("nothing was merged since the last look")
        single, _ = split_expectations(round_.suite)
        if not single:
            return NotYet("its expectations are about the whole table")
        look, batch = self._look(round_, single, seen)
        if isinstance(look, NotYet):
            return look
        since = batch if look.is_done else seen.since
        if look.results:
            round_.keep_results(single, look, batch)
        again = _name_open_rows(single, look)
        fresh = [name for name in again if name not in seen.again]
        if {name_row(round_.table, row) for row in _find_rows(round_, fresh, batch)} != {*fresh}:
            again = ()
        round_.remember(replace(seen, batch=batch, since=since, again=again))
        return Content((look, seen.whole) if seen.whole.results else (look,))

    def _look(
        self, round_: "Round", suite: tuple[ExpectationSettings, ...], seen: Seen | None
    ) -> tuple[Look | NotYet, int]:
        """Evaluate here, or by Spark if there are too many rows; also return the read batch."""
        table, mirror = round_.table, round_.mirror
        after = None if seen is None else seen.since
        large = round_.world.large_looks()
        asked = SuiteLook(
            *(table, mirror.version, mirror.batch, after, round_.state, suite, self.modules)
        )
        found = large.answer(asked.key)
        if isinstance(found, SuiteAnswer):
            return Look(after, found.rows, found.results), found.batch
        if found is not None:
            return found, mirror.batch
        rows: pa.Table | str
        rows, again = explain_spark_need(suite), 0
        if not rows:
            columns = list_read_columns(suite, table.key)
            after, rows, again = self._take_rows(round_, seen, columns)
        if isinstance(rows, str):
            large.ask(asked)
            return NotYet(f"Spark evaluates it: {rows}"), mirror.batch
        if not rows.num_rows and after is not None:
            return Look(after, 0, ()), mirror.batch
        results = evaluate_rows(rows, table, suite)
        return Look(after, rows.num_rows, results, again), mirror.batch

    def _take_rows(
        self, round_: "Round", seen: Seen | None, columns: Collection[str] | None
    ) -> tuple[int | None, pa.Table | str, int]:
        """Return the batch after which rows are evaluated, the rows, and how many are older.

        The rows have only *columns*, if these are known. Instead of rows it returns why they are
        too many.
        """
        mirror = round_.mirror
        if seen is None:
            if mirror.rows() > self.rows:
                return None, _too_many(self.rows), 0
            return None, _take(mirror.rows_after(None, columns), self.rows), 0
        after = seen.batch if seen.again else seen.since
        again = _find_rows(round_, seen.again, seen.batch)
        rows = _take(mirror.rows_after(after, columns), self.rows)
        if isinstance(rows, str) or not again:
            return after, rows, 0
        if not rows.num_columns:  # without a row the types of columns are not known
            return seen.since, _take(mirror.rows_after(seen.since, columns), self.rows), 0
        older = pa.Table.from_pylist(again, rows.schema)
        return after, pa.concat_tables([rows, older]), len(again)


@dataclass(frozen=True, slots=True)
class Round:
    """One round on a table; ``state`` identifies its suite and rows."""

    table: Table
    world: World
    suite: tuple[ExpectationSettings, ...]
    state: str

    @property
    def mirror(self) -> MirrorSide:
        """The pinned mirror of the table."""
        return self.world.mirror(self.table)

    def remember(self, seen: Seen) -> None:
        """Store *seen* for the next round."""
        self.world.remember(self.table, NAME, seen.dumps())
        if len(_looked) >= MOST_STATES:
            _looked.clear()
        _looked[self.table.name] = self.state

    def keep_results(self, suite: Sequence[ExpectationSettings], look: Look, batch: int) -> None:
        """Store the results of *look* for the page of the table.

        A look at the whole replaces the results of earlier looks at changes.
        """
        shown, left_out = bound_results(suite, look.results)
        found = ValidationResult(self.world.now, look.after, look.rows, batch, shown, left_out)
        older: Mapping[str, Any] = {}
        if look.after is not None:
            with suppress(ProofError):  # an unreadable row is replaced
                older = self.world.recall(self.table, MEMORY) or older
        kept = {**older, WHOLE if look.after is None else CHANGES: found.dumps()}
        self.world.remember(self.table, MEMORY, kept)


def _take(batches: Iterator[pa.RecordBatch], most: int) -> pa.Table | str:
    """Return all rows; if they are more than *most* or `MOST_BYTES`, say so and read no further."""
    taken, count, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        count += batch.num_rows
        if count > most:
            return _too_many(most)
        if size + sum(map(_count_viewed, batch.columns)) > MOST_BYTES:
            return TOO_LARGE
        taken.append(_copy_views(batch))
        size += taken[-1].nbytes
        if size > MOST_BYTES:
            return TOO_LARGE
    return pa.Table.from_batches(taken) if taken else pa.table({})


TOO_LARGE = f"the rows have more than {MOST_BYTES >> 20} MiB"


def _too_many(most: int) -> str:
    return f"there are more than {most} rows"


def _count_viewed(column: pa.Array) -> int:
    """The bytes of the texts in *column* that are views, without a copy of them."""
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(map(_count_viewed, column.flatten()))
    if pa.types.is_list(kind):
        return _count_viewed(column.flatten())
    if kind not in (pa.string_view(), pa.binary_view()) or not len(column):
        return 0
    first = 4 * column.offset  # a view has four numbers, of which the first is its length
    lengths = np.frombuffer(column.buffers()[1], np.int32)[first::4][: len(column)]
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    return int(lengths.sum(where=is_valid, dtype=np.int64))


def _copy_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy texts that are views: one keeps all texts of its file in memory, also of other rows."""
    plain = pa.schema([one.with_type(_plain_type(one.type)) for one in batch.schema])
    return batch if plain == batch.schema else batch.cast(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_plain_type(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def _name_open_rows(suite: Sequence[ExpectationSettings], look: Look) -> tuple[str, ...]:
    """Return the names of all rows that do not meet an expectation.

    Empty if there are too many, if some have no name, or if an expectation was not evaluated. Also
    empty if a share of rows may be unmet (``mostly``), because that share is of all rows.
    """
    shares = any(map(is_share, suite))
    broken = any(one.met is None for one in look.results)
    unnamed = any(len(one.keys) != max(one.unexpected, 1) for one in look.unmet)
    names = tuple(dict.fromkeys(key for one in look.unmet for key in one.keys))
    return () if shares or broken or unnamed or len(names) > MOST_AGAIN else names


def _find_rows(round_: Round, names: Sequence[str], batch: int) -> list[Mapping[str, Any]]:
    """Return the rows of the mirror with these names that have not changed after *batch*.

    Rows are left out if the key of the table is not one integer.
    """
    table, mirror = round_.table, round_.mirror
    shards = {str(shard): shard for shard in table.shards}
    found = list[Mapping[str, Any]]()
    for name in names:
        shard, _, id_ = name.rpartition(":")
        if len(table.key) == 1 and shard in shards and re.fullmatch("-?[0-9]+", id_):
            span = int(id_), int(id_) + 1
            rows = mirror.rows_of(shards[shard], table.key[0], span)
            found += [row for row in rows if _changed_by(row, batch)]
    return found


def _changed_by(row: Mapping[str, Any], batch: int) -> bool:
    own = (row.get(SLUICE) or {}).get("batch")
    return own is not None and own <= batch


def _digest_once(table: str, parts: Parts, rewritten: str) -> str:
    """Return the digest of suite and rows; cached as long as the suites are the same objects."""
    known = _states.get(table)
    if known is not None and [*map(id, known[0])] == [*map(id, parts)] and known[1] == rewritten:
        return known[2]
    state = _digest([one for own in parts for one in own], rewritten)
    if len(_states) >= MOST_STATES:
        _states.clear()
    _states[table] = parts, rewritten, state
    return state


def _digest(suite: Sequence[ExpectationSettings], rewritten: str) -> str:
    text = json.dumps([asdict(one) for one in suite], sort_keys=True, default=str)
    return hashlib.sha256(f"{rewritten}\n{text}".encode()).hexdigest()[:16]


def _recall(table: Table, world: World, state: str, batch: int) -> Seen | None:
    """Return the stored progress if it is readable and belongs to this suite and these rows."""
    try:
        known = world.recall(table, NAME)
        seen = Seen.loads(known) if known else None
    except (AttributeError, LookupError, OverflowError, ProofError, TypeError, ValueError) as error:
        why = type(error).__name__
        log.warning("what was seen is unreadable, so all is looked at", table=table.name, why=why)
        return None
    return seen if seen is not None and seen.state == state and seen.batch <= batch else None


def _forget(table: Table, world: World, why: str) -> Content | NotYet:
    """End earlier findings, which no later look would end; NotYet if there was no earlier look."""
    with suppress(ProofError):  # an unreadable memory may have a finding
        if not world.recall(table, NAME, lasting=True):
            return NotYet(why)
    world.remember(table, NAME, {})
    world.remember(table, MEMORY, {})
    return Content((), nothing=why)


def _count_met(results: Sequence[ExpectationResult]) -> str:
    met, total = sum(one.met is True for one in results), len(results)
    if met < total:
        return f"{met} of {total} expectations {'is' if met == 1 else 'are'} met"
    return "1 expectation is met" if met == 1 else f"{met} expectations are met"


def _count_expectations(looks: Iterable[Sequence[ExpectationResult]]) -> int:
    """Count the expectations with *looks*' results; one with a result in two looks counts once."""
    counts = Counter[tuple[str, str]]()
    for results in looks:
        counts |= Counter((_name_of(one), one.severity) for one in results)
    return counts.total()


def _name_of(result: ExpectationResult) -> str:
    """The text of *result* without its numbers of rows, which differ between two looks."""
    return result.text.removesuffix(f": {result.unexpected} of {result.rows} rows")


def _fail(reading: Content, first: Look) -> Ruling:
    unmet = [one for look in reading.looks for one in look.unmet]
    others = _count_expectations(look.unmet for look in reading.looks) - 1
    more = f" and {others} more" if others else ""
    keys = tuple(dict.fromkeys(key for one in unmet for key in one.keys))
    unnamed = sum(max(one.unexpected, 1) - len(one.keys) for one in unmet)
    unnamed += len(keys[MOST_KEYS:])
    text = f"not met: {unmet[0].text}{more}; looked at {first.scope}"
    return Ruling(Outcome.FAIL, text, "not_met", keys[:MOST_KEYS], unnamed)


PROBE: type[Probe[Content]] = Expectations
