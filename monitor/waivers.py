"""Decides whether a waiver id exists now: only an existing id can be waived.

The decision uses a sampling as fresh as that of the gate. Cannot detect: an id that appears a
moment later.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checks.blocks import find_blocks, unlogged_reasons
from monitor.gate import FRESH, Gate
from monitor.observe.assessor import RoundFacts
from monitor.observe.sampler import Sampling
from monitor.observe.system_checks import given_up_id
from monitor.store.alerts import StoredOutbox
from pipeline.checkpoint import Checkpoint
from pipeline.errors import UnreachableError
from pipeline.model import Missing, Table


@dataclass(frozen=True, slots=True)
class WaivableIds:
    """The waiver ids of tables, sources, the change log, clocks and channels that exist now."""

    gate: Gate
    outbox: StoredOutbox

    def exists(self, id_: str) -> bool:
        """Whether *id_* belongs to an open gap, hold, change, key, clock or dead letter.

        Raises:
            UnreachableError: nothing known has this id, and the change log cannot be read.
        """
        tables = [table for table in self.gate.roster.tables() if _may_mean(id_, table)]
        look = self.gate.watcher.look(FRESH, [table.name for table in tables])
        with self.gate.recorder.deciding:
            facts = self.gate.assessor.facts(self.gate.clock())
            found = id_ in self._names(tables, look, facts) or self._gave_up(id_)
        if not found and isinstance(look.checkpoint, Missing):
            raise UnreachableError(
                f"{look.checkpoint.why}: whether anything is named {id_} is not known"
            )
        return found

    def _names(self, tables: Sequence[Table], look: Sampling, facts: RoundFacts) -> Iterator[str]:
        assessor = self.gate.assessor
        for holds in (facts.sources, *facts.holds.values()):
            yield from (hold.id for hold in holds)
        sources = [source.name for source in assessor.sources]
        yield from (reason.id for reason in assessor.doubts(sources, facts.at))
        if not isinstance(look.checkpoint, Missing):
            yield from _of_checkpoint(look.checkpoint.value)
        for table in tables:
            inputs = assessor.inputs(table, look, facts)
            yield from (one.id for one in unlogged_reasons(table, inputs.unproven))
            copies = self.gate.copies(table.name)
            for one in (inputs, *(assessor.copied(name, inputs, look) for name in copies)):
                yield from (reason.id for reason in find_blocks(one, assessor.policy.gating))

    def _gave_up(self, id_: str) -> bool:
        """Whether *id_* names dead-lettered messages of a channel, up to an existing number."""
        channels = {channel for channel, _ in self.outbox.counts()}
        for channel in channels:
            number = id_.removeprefix(given_up_id(channel, ""))
            if number != id_ and number.isdecimal():
                return 0 < int(number) <= self.outbox.backlog(channel).last
        return False


def _of_checkpoint(checkpoint: Checkpoint) -> Iterator[str]:
    yield from checkpoint.gaps
    yield from (name for names in checkpoint.quarantined.values() for name in names)
    yield from (snap.waiver(shard) for shard, snap in checkpoint.snaps.items())


def _may_mean(id_: str, table: Table) -> bool:
    return any(name in id_ for name in (table.name, *map(str, table.shards)))
