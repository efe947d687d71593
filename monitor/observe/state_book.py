"""Since when is each table in the state that it is in?  Every transition is kept, and told once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from checks.blocks import Inputs, blocks
from checks.table_state import StateSince, TableFacts, TableState, state_of
from monitor.board import FirstLanding
from monitor.observe.sampler import NO_MIRROR
from pipeline.checkpoint import Mark, is_there, source_of
from pipeline.errors import UnreachableError
from pipeline.model import Missing, Shard
from pipeline.settings import Router

Found = tuple[TableState, str]
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class StateBook:
    """``keep`` records transitions, ``known`` tells the last of each table, once.

    What it knows of this round is told table by table, and settled at the end of it.
    """

    keep: Callable[[Sequence[StateSince]], object] = field(default=lambda _: None)
    known: Callable[[], Mapping[str, StateSince]] = field(default=lambda: {})
    _rereads: Mapping[str, str] = field(default_factory=dict)
    _found: dict[str, Found] = field(default_factory=dict)
    _now: Mapping[str, StateSince] | None = None

    def begin(self, rereads: Mapping[str, str]) -> None:
        """A round begins: table -> how far it is read again by request, where one is."""
        self._rereads, self._found = rereads, {}

    def note(self, inputs: Inputs, unreadable: str, first: FirstLanding | None) -> None:
        """Note the state of the table of *inputs*, if it is known what has landed.

        *unreadable* says why its mirror could not be read; *first* is what is read of it for the
        first time.
        """
        name, mark = inputs.table.name, inputs.samples.mark
        if isinstance(mark, Missing) and inputs.pause is None:
            return
        bases = {} if isinstance(mark, Missing) else mark.value.bases
        facts = TableFacts(
            based=all(str(shard) in bases for shard in inputs.table.shards),
            bare=unreadable == NO_MIRROR,
            first=first.line if first else "",
            reread=self._rereads.get(name, ""),
            blocked=blocks(inputs, frozenset()),
            pause=inputs.pause,
        )
        self._found[name] = state_of(facts)

    def settle(self, gone: Mapping[str, Found], at: datetime) -> Mapping[str, StateSince]:
        """The state of each table, those *gone* included; what was not noted stands as it stood.

        What the store does not take is tried again in the next round.
        """
        before = self.known() if self._now is None else self._now
        found = {**gone, **self._found}
        now = {name: _since(name, one, before.get(name), at) for name, one in found.items()}
        turned = [one for name, one in now.items() if _turned(one, before.get(name))]
        try:
            if turned:
                self.keep(turned)
        except UnreachableError as error:
            log.warning("table states are not stored", why=str(error))
            self._now = before
            return {**before, **now}
        for one in turned:
            log.info("table state", table=one.table, state=one.state.value, why=one.why)
        self._now = {**before, **now}
        return self._now


def retired(mark: Mark, router: Router, sources: Collection[str]) -> Mapping[str, Found]:
    """Tables of which something landed, and of which nothing is there, or asked for, any more."""
    there, gone = set[str](), dict[str, Found]()
    for name, table in mark.shards.items():
        if table is None:
            continue
        why = _gone(name, mark, router, sources)
        if why:
            gone.setdefault(table, (TableState.RETIRED, why))
        else:
            there.add(table)
    return {name: one for name, one in gone.items() if name not in there}


def _gone(name: str, mark: Mark, router: Router, sources: Collection[str]) -> str:
    if source_of(name) not in sources:
        return f"source {source_of(name)} is in the config no more"
    if not router.table(Shard.parse(name).name):
        return f"a rule ignores {Shard.parse(name).name}"
    return "" if is_there(mark, name) else f"{Shard.parse(name).name} was dropped, or renamed"


def _since(name: str, one: Found, before: StateSince | None, at: datetime) -> StateSince:
    """As it stood before with the why of now, or from *at* on."""
    state, why = one
    if before is None or before.state is not state:
        return StateSince(name, state, at, why)
    return before if before.why == why else replace(before, why=why)


def _turned(one: StateSince, before: StateSince | None) -> bool:
    return before is None or before.state is not one.state
