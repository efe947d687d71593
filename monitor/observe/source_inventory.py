"""Asks sources rarely about their servers and tables, and stores the answers.

An answer stays valid until the next one, also over restarts. A slow or silent source is asked
again a little later.

An answer does not count if it is too old, or if heartbeats now go to another server. It does
not count for a shard that a landed statement has changed since. Such a change may be what makes
rows change without a log entry.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog

from checks.blocks import unproven_reason
from monitor.store.history import CheckMemory
from pipeline.checkpoint import Existence
from pipeline.clocks import has_passed
from pipeline.errors import ProofError, SluiceError
from pipeline.model import Missing, Order, Shard, Table
from pipeline.parallel import DeadlinePool
from pipeline.settings import SourceSettings
from pipeline.sources.source import LogBacklog, SourceDescription

CHECK = "census"
WHO = ("host", "port", "user")  # settings that identify the server and the user of an answer
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class InventoryQuestion:
    """The source to ask, and the shards (``database.table``) to ask about.

    ``changed`` has the order of each shard's newest schema change that had landed by then.
    """

    settings: SourceSettings
    shards: frozenset[str]
    changed: frozenset[tuple[str, Order]] = frozenset()

    def alike(self, other: "InventoryQuestion") -> bool:
        """Whether the same source is asked about the same shards, regardless of ``changed``."""
        return (self.settings, self.shards) == (other.settings, other.shards)

    def concerns(self, shard: str, changed: Order | None) -> bool:
        """Whether *shard* was asked about after its newest schema change *changed* had landed."""
        return shard in self.shards and (changed is None or (shard, changed) in self.changed)


@dataclass(frozen=True, slots=True)
class InventoryAnswer:
    """The answer of a source; ``began`` and ``ended`` are before and after it was asked."""

    question: InventoryQuestion
    described: SourceDescription
    began: datetime
    ended: datetime

    def dumps(self) -> dict[str, Any]:
        """Return JSON values; of the settings only those in `WHO`."""
        question, described = self.question, self.described
        kept = described.kept
        return {
            "server": [getattr(question.settings, part) for part in WHO],
            "shards": sorted(question.shards),
            "changed": sorted([shard, list(order.parts)] for shard, order in question.changed),
            "kept": {"missing": kept.why} if isinstance(kept, Missing) else _seconds(kept),
            "hidden": sorted(described.hidden),
            "unlogged": dict(described.unlogged),
            "rows": dict(described.rows),
            "backlog": described.backlog and asdict(described.backlog),
            "filled": dict(described.filled),
            "dated": {shard: list(columns) for shard, columns in described.dated.items()},
            "asked": [self.began.isoformat(), self.ended.isoformat()],
        }

    @classmethod
    def loads(cls, raw: Mapping[str, Any], settings: SourceSettings) -> "InventoryAnswer":
        """Read back what :meth:`dumps` wrote, as an answer of that server."""
        changed = frozenset((shard, Order(*parts)) for shard, parts in raw["changed"])
        asked = replace(settings, **dict(zip(WHO, raw["server"], strict=True)))
        question = InventoryQuestion(asked, frozenset(raw["shards"]), changed)
        kept = raw["kept"]
        retention = Missing(kept["missing"]) if isinstance(kept, Mapping) else _duration(kept)
        described = SourceDescription(
            retention,
            frozenset(raw["hidden"]),
            raw["unlogged"],
            raw.get("rows", {}),
            LogBacklog(**raw["backlog"]) if raw.get("backlog") else None,
            raw.get("filled", {}),
            {shard: tuple(columns) for shard, columns in raw.get("dated", {}).items()},
        )
        return cls(question, described, *map(datetime.fromisoformat, raw["asked"]))


@dataclass(eq=False)
class SourceInventory:
    """Holds every source's answer; asks again every ``every``, and when its question changes.

    Each landed schema change asks about all tables of its source, and a migration has thousands of
    them.  These questions keep a source busy for at most a tenth of the time.

    ``followed`` returns each source's settings with the address that receives its heartbeats now.
    ``existing`` returns the last landed schema change of each shard.  Answers that ``memory`` kept
    over a restart stay valid, because ``existing`` shows schema changes since then.
    ``bases`` returns the order of each shard's base; the base has all columns added before it.
    """

    followed: Mapping[str, Callable[[], SourceSettings]]
    tables: Callable[[], tuple[Table, ...]]
    existing: Callable[[], Mapping[Shard, Existence]]
    describe: Callable[[SourceSettings, Collection[str]], SourceDescription]
    clock: Callable[[], datetime]
    memory: CheckMemory
    every: timedelta = timedelta(minutes=10)
    again: timedelta = timedelta(minutes=1)
    old: timedelta = timedelta(days=1)
    bases: Callable[[], Mapping[Shard, Order]] = dict
    asking: DeadlinePool[None] = field(init=False)
    _answers: dict[str, InventoryAnswer | None] = field(default_factory=dict)
    _failed: dict[str, tuple[InventoryQuestion, datetime, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the thread pool, without connecting."""
        self.asking = DeadlinePool(self.clock, timedelta())

    def ask(self) -> None:
        """Ask all due sources in parallel; a silent source does not delay the others."""
        due = dict[str, Callable[[], None]]()
        for name in self.followed:
            question = self._question(name)
            if question.shards and self._due(name, question):
                due[f"census of {name}"] = partial(self._ask, name, question)
        self.asking.ask(due)

    def answer(self, name: str) -> InventoryAnswer | Missing:
        """Return the last answer of the source *name*; Missing if it is too old or not valid."""
        found, failed = self._last(name), self._failed.get(name)
        why = failed[2] if failed else "it was not asked yet"
        if found is None or found.question.settings != self.followed[name]():
            return Missing(why)
        if self.clock() - found.began > self.old:
            return Missing(f"not since {found.began.isoformat()}: {why}")
        return found

    def rows(self, name: str) -> Mapping[str, int]:
        """Return, by shard, the estimated rows from the last answer of the source *name*."""
        found = self.answer(name)
        return {} if isinstance(found, Missing) else found.described.rows

    def dated(self, shard: Shard) -> tuple[str, ...] | Missing:
        """Return `SourceDescription.dated` of *shard*, from the last answer of its source."""
        found = self.answer(shard.source)
        if isinstance(found, Missing):
            return found
        if not self._asked(found.question, shard):
            return Missing(f"it was not asked about {shard.name} as it is now")
        return tuple(found.described.dated.get(shard.name, ()))

    def unproven(self, table: Table) -> str | Missing:
        """Describe the unlogged changes of *table*; empty if there are none."""
        reported = {name: self.answer(name) for name in table.sources}
        for shard in table.shards:
            one = reported[shard.source]
            if isinstance(one, InventoryAnswer) and not self._asked(one.question, shard):
                reported[shard.source] = Missing(
                    f"it was not asked about {shard.name} as it is now"
                )
        answers = {
            name: self._with_filled(table, one) if isinstance(one, InventoryAnswer) else one
            for name, one in reported.items()
        }
        return unproven_reason(table, answers)

    def _with_filled(self, table: Table, answer: InventoryAnswer) -> SourceDescription:
        """Return *answer* with columns added after the base, which the server may have filled."""
        described, own = answer.described, answer.question.settings.name
        grown = [one for one in table.shards if one.source == own and self._is_changed(one)]
        filled = {one.name: why for one in grown if (why := described.filled.get(one.name))}
        return (
            replace(described, unlogged={**filled, **described.unlogged}) if filled else described
        )

    def _is_changed(self, shard: Shard) -> bool:
        base, changed = self.bases().get(shard), self._changed(shard)
        return base is not None and changed is not None and changed > base

    def _last(self, name: str) -> InventoryAnswer | None:
        if name not in self._answers:
            kept = None
            with suppress(ProofError):  # the source is asked again; until then it has no answer
                kept = self.memory.recall(f"source:{name}", CHECK)
            found = InventoryAnswer.loads(kept, self.followed[name]()) if kept else None
            self._answers.setdefault(name, found)
        return self._answers[name]

    def _question(self, name: str) -> InventoryQuestion:
        own = [shard for table in self.tables() for shard in table.shards if shard.source == name]
        changed = ((shard.name, self._changed(shard)) for shard in own)
        return InventoryQuestion(
            self.followed[name](),
            frozenset(shard.name for shard in own),
            frozenset((shard, order) for shard, order in changed if order is not None),
        )

    def _asked(self, question: InventoryQuestion, shard: Shard) -> bool:
        return question.concerns(shard.name, self._changed(shard))

    def _changed(self, shard: Shard) -> Order | None:
        existence = self.existing().get(shard)
        return existence.order if existence else None

    def _due(self, name: str, question: InventoryQuestion) -> bool:
        failed, answered = self._failed.get(name), self._last(name)
        if failed and failed[0].alike(question):
            return has_passed(failed[1], self.again, self.clock())
        if answered and answered.question.alike(question):
            busy = min(self.every, 10 * (answered.ended - answered.began))
            pause = self.every if answered.question == question else busy
            return has_passed(answered.began, pause, self.clock())
        return True

    def _ask(self, name: str, question: InventoryQuestion) -> None:
        began = self.clock()
        try:
            described = self.describe(question.settings, question.shards)
        except SluiceError as error:
            self._failed[name] = question, began, str(error)
            log.info("source did not describe itself", source=name, why=str(error))
            return
        answer = InventoryAnswer(question, described, began, self.clock())
        self.memory.remember(f"source:{name}", CHECK, answer.dumps(), answer.ended)
        self._answers[name] = answer
        self._failed.pop(name, None)


def _seconds(kept: timedelta | None) -> float | None:
    return None if kept is None else kept.total_seconds()


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
