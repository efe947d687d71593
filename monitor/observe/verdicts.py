"""Keeps the newest verdicts of each check, and finds what a backfill or a comparison has proven.

The newest verdict and the newest that is not UNKNOWN are both kept, because an UNKNOWN after a
FAIL disproves nothing.

After a backfill, a verdict counts only as of a position after the backfill was complete. All
rows of the backfill had landed by then, and a check waits until the mirror holds them. So an
incident ends by what is in the mirror, never because a repair was requested.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from checks.blocks import Inputs, compared_since
from checks.ledger import MirrorFacts, NewBase, find_proof
from checks.model import Outcome, Verdict, Verified
from monitor.store.history import Verdicts
from monitor.store.ledger import Ledger
from monitor.store.requests import CheckedAgain, StoredBackfill, StoredBackfills
from pipeline.errors import UnreachableError
from pipeline.model import Missing, Origin

INCOMPARABLE = frozenset({"unsupported", "no_schema", "put_back"})
"""UNKNOWN codes that mean that no row of the present mirror is compared."""


@dataclass(eq=False)
class LatestVerdicts:
    """The newest verdicts by table and check, and the newest that are not UNKNOWN."""

    _newest: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _ruled: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _passed: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _bad: dict[str, dict[str, datetime]] = field(default_factory=dict)
    _verified: dict[str, Verified] = field(default_factory=dict)

    def load(self, kept: Verdicts) -> None:
        """Load the verdicts of earlier runs of the service."""
        latest, ends = kept.latest(), kept.fail_ends()
        self.add(latest)
        self._bad.clear()  # the newest stored PASS may not be the one that ended the FAIL
        for verdict in latest:
            if verdict.ruling.outcome is Outcome.FAIL:
                self._was_bad(verdict.table, verdict.check, verdict.at)
        for (table, check), at in ends.items():
            if not self._fails(table, check):
                self._was_bad(table, check, at)

    def add(self, verdicts: Iterable[Verdict], recorded: datetime | None = None) -> None:
        """Add *verdicts*, in the order of ruling; *recorded* is the time of recording, if known.

        A verdict has the time at which its round began, and its mirror was read after that.
        """
        for verdict in verdicts:
            outcome = verdict.ruling.outcome
            ended = self.ends_fail(verdict)
            _keep(self._newest, verdict)
            if outcome is Outcome.FAIL or ended:
                at = verdict.at if recorded is None else max(verdict.at, recorded)
                self._was_bad(verdict.table, verdict.check, at)
            if verdict.verified is not None:
                self._verified[verdict.table] = replace(
                    verdict.verified, check=verdict.check, at=verdict.at
                )
            elif self._voids_claim(verdict):
                self._verified.pop(verdict.table, None)
            if outcome is not Outcome.UNKNOWN:
                _keep(self._ruled, verdict)
            if outcome is Outcome.PASS:
                _keep(self._passed, verdict)

    def _voids_claim(self, verdict: Verdict) -> bool:
        """Whether *verdict* ends the stored claim: its check no longer compares the rows."""
        known = self._verified.get(verdict.table)
        own = known is not None and known.check == verdict.check
        unknown = verdict.ruling.outcome is Outcome.UNKNOWN
        return own and (not unknown or verdict.ruling.code in INCOMPARABLE)

    def tables_below(self, table: str) -> tuple[str, ...]:
        """Return known tables whose names begin with the name of *table* and a colon."""
        return tuple(one for one in tuple(self._newest) if one.startswith(f"{table}:"))

    def newest(self, table: str, check: str) -> Verdict | None:
        """Return the newest verdict, also an UNKNOWN; None without any."""
        return self._newest.get(table, {}).get(check)

    def last_pass(self, table: str, check: str) -> Verdict | None:
        """Return the last PASS; None if there was none."""
        return self._passed.get(table, {}).get(check)

    def verified(self, table: str) -> Verified | None:
        """Return what was compared of *table*, from the newest verdict that has it; else None.

        Verdicts of an earlier run of the service do not have it.
        """
        return self._verified.get(table)

    def bad_until(self, table: str) -> Mapping[str, datetime]:
        """Return, by check, when the end of its last FAIL was recorded, or that FAIL itself.

        Checks without a FAIL are absent. A mirror that was sampled before this time may be from
        before the repair.
        """
        return self._bad.get(table, {})

    def ends_fail(self, verdict: Verdict) -> bool:
        """Whether *verdict* is the first PASS after a FAIL."""
        passed = verdict.ruling.outcome is Outcome.PASS
        return passed and self._fails(verdict.table, verdict.check)

    def _fails(self, table: str, check: str) -> bool:
        ruled = self._ruled.get(table, {}).get(check)
        return ruled is not None and ruled.ruling.outcome is Outcome.FAIL

    def _was_bad(self, table: str, check: str, at: datetime) -> None:
        self._bad[table] = {**self._bad.get(table, {}), check: at}

    def of(self, table: str) -> tuple[Verdict, ...]:
        """Return the newest verdict of each check of *table*, and the newest not UNKNOWN."""
        newest, ruled = self._newest.get(table, {}), self._ruled.get(table, {})
        older = [one for check, one in ruled.items() if one is not newest.get(check)]
        return (*newest.values(), *older)


def _keep(verdicts: dict[str, dict[str, Verdict]], verdict: Verdict) -> None:
    """Replace the mapping of one table as a whole, because another thread may read it."""
    verdicts[verdict.table] = {**verdicts.get(verdict.table, {}), verdict.check: verdict}


LOOKED_FOR = timedelta(days=1)  # afterwards only the check itself and its incident count
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Rechecks:
    """Stores with each backfill the next verdicts of its checks."""

    backfills: StoredBackfills
    rulings: LatestVerdicts
    clock: Callable[[], datetime]

    def look(self) -> None:
        """Store new verdicts with the backfills that wait for them."""
        waiting = self.backfills.unchecked(self.clock() - LOOKED_FOR)
        if not waiting:
            return
        for one in waiting:
            newest = self.rulings.of(one.table)
            proofs = [p for check in one.wish.checks if (p := _proof(one, check, newest))]
            if tuple(proofs) != one.proofs:
                self.backfills.checked(one.id, proofs)
                for proof in proofs:
                    fields = {"check": proof.check, "passed": proof.passed, "why": proof.reason}
                    log.info("checked_again", id=one.id, table=one.table, **fields)


def awaits_checks(one: StoredBackfill, now: datetime) -> bool:
    """Whether a backfill that ended within `LOOKED_FOR` still waits for a check to pass."""
    return (
        one.done and bool(one.unchecked) and one.ended is not None and one.ended > now - LOOKED_FOR
    )


def _proof(one: StoredBackfill, check: str, newest: tuple[Verdict, ...]) -> CheckedAgain | None:
    """Return the last verdict of *check* after the backfill; a PASS is final."""
    known = next((p for p in one.proofs if p.check == check), None)
    if known is not None and known.passed:
        return known
    own = [v for v in newest if v.check == check and is_after_backfill(v, one)]
    ruled = [v for v in own if v.ruling.outcome is not Outcome.UNKNOWN]
    if not ruled:
        return known
    last = ruled[-1]
    passed = last.ruling.outcome is Outcome.PASS
    return CheckedAgain(check, passed, last.at, last.ruling.reason)


def is_after_backfill(verdict: Verdict, one: StoredBackfill) -> bool:
    """Whether *verdict* is as of positions after the end of the backfill *one*."""
    ended = one.ended
    return ended is not None and bool(verdict.as_of) and all(f.at > ended for f in verdict.as_of)


@dataclass(eq=False)
class ResidualProofs:
    """Finds, in one round, residuals of ledgers that are made good, and stores the proofs.

    Backfills are read once for all tables, at the first table with a residual.
    """

    ledger: Ledger
    backfills: StoredBackfills
    _ended: Mapping[str, Sequence[StoredBackfill]] | None = None

    def look(self, inputs: Inputs) -> None:
        """Store the proofs for the table; the next round uses them.

        If the store cannot be written, the residual remains and the round continues.
        """
        try:
            self._look(inputs)
        except UnreachableError as error:
            log.warning("proofs of residuals are not stored", why=str(error))

    def _look(self, inputs: Inputs) -> None:
        mirror, residuals = inputs.samples.mirror, inputs.losses.residuals
        if not residuals or isinstance(mirror, Missing):
            return
        table = inputs.table
        bases = self._bases(inputs)
        shards, known = tuple(map(str, table.shards)), inputs.verified
        looked = -1 if known is None else min(known.batch, known.looked)
        facts = MirrorFacts(shards, mirror.value.batch, bases, compared_since(inputs), looked)
        proven = [(one, proof) for one in residuals if (proof := find_proof(one, facts))]
        if not proven:
            return
        self.ledger.make_good(table.name, *proven)
        for one, proof in proven:
            log.info("made_good", table=table.name, hop=one.hop, rows=one.rows, why=proof)

    def _bases(self, inputs: Inputs) -> tuple[NewBase, ...]:
        """Return complete bases that were requested after the oldest residual of any table."""
        table, checkpoint = inputs.table, inputs.samples.checkpoint
        newest = {} if isinstance(checkpoint, Missing) else checkpoint.value.backfills
        began = {
            (newest[shard].id, str(shard)): newest[shard].since
            for shard in table.shards
            if shard in newest
        }
        return tuple(
            NewBase(
                one.id,
                one.at,
                {s.shard: s.done for s in one.states if s.done is not None},
                {shard: batch for (id_, shard), batch in began.items() if id_ == one.id},
            )
            for one in self._ended_backfills().get(table.name, ())
            if one.wish.origin is Origin.SNAPSHOT and not one.wish.dry
            if one.done and not (one.wish.rows.some or one.wish.rows.where)
        )

    def _ended_backfills(self) -> Mapping[str, Sequence[StoredBackfill]]:
        """Return, by table, backfills requested after the oldest residual of any table."""
        if self._ended is None:
            found = dict[str, list[StoredBackfill]]()
            losses = self.ledger.losses().values()
            times = [residual.at for one in losses for residual in one.residuals]
            for backfill in self.backfills.ended(min(times)) if times else ():
                found.setdefault(backfill.table, []).append(backfill)
            self._ended = found
        return self._ended
