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
"""Codes of UNKNOWN by which a check says that no row of the present mirror is compared."""


@dataclass(eq=False)
class LatestVerdicts:
    """An UNKNOWN after a FAIL has disproved nothing, so both are kept."""

    _newest: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _ruled: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _passed: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _bad: dict[str, dict[str, datetime]] = field(default_factory=dict)
    _verified: dict[str, Verified] = field(default_factory=dict)

    def load(self, kept: Verdicts) -> None:
        """Remember what earlier lives ruled, in the order they did."""
        latest, ends = kept.latest(), kept.fail_ends()
        self.add(latest)
        self._bad.clear()  # the newest PASS is not the one that ended the FAIL
        for verdict in latest:
            if verdict.ruling.outcome is Outcome.FAIL:
                self._was_bad(verdict.table, verdict.check, verdict.at)
        for (table, check), at in ends.items():
            if not self._fails(table, check):
                self._was_bad(table, check, at)

    def add(self, verdicts: Iterable[Verdict], recorded: datetime | None = None) -> None:
        """Take *verdicts* in the order they were ruled; *recorded* is when, if that is known.

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
                self._verified[verdict.table] = replace(verdict.verified, check=verdict.check)
            elif self._voids_claim(verdict):
                self._verified.pop(verdict.table, None)
            if outcome is not Outcome.UNKNOWN:
                _keep(self._ruled, verdict)
            if outcome is Outcome.PASS:
                _keep(self._passed, verdict)

    def _voids_claim(self, verdict: Verdict) -> bool:
        """Whether the check that has compared rows cannot compare them any more."""
        known = self._verified.get(verdict.table)
        own = known is not None and known.check == verdict.check
        unknown = verdict.ruling.outcome is Outcome.UNKNOWN
        return own and (not unknown or verdict.ruling.code in INCOMPARABLE)

    def tables_below(self, table: str) -> tuple[str, ...]:
        """Known tables whose names begin with that of *table* and a colon."""
        return tuple(one for one in tuple(self._newest) if one.startswith(f"{table}:"))

    def newest(self, table: str, check: str) -> Verdict | None:
        """What was ruled last; None if never."""
        return self._newest.get(table, {}).get(check)

    def last_pass(self, table: str, check: str) -> Verdict | None:
        """The last PASS; None if there never was one."""
        return self._passed.get(table, {}).get(check)

    def verified(self, table: str) -> Verified | None:
        """What was compared of *table* as of the newest verdict that has it; None before one does.

        A verdict of an earlier run of the service does not have it.
        """
        return self._verified.get(table)

    def bad_until(self, table: str) -> Mapping[str, datetime]:
        """Check -> when the end of its last FAIL was recorded, or the FAIL; absent without any.

        A mirror that was looked at before then may be one from before the repair.
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
        """Newest of each check of *table*, and beside an UNKNOWN the newest that ruled."""
        newest, ruled = self._newest.get(table, {}), self._ruled.get(table, {})
        older = [one for check, one in ruled.items() if one is not newest.get(check)]
        return (*newest.values(), *older)


def _keep(verdicts: dict[str, dict[str, Verdict]], verdict: Verdict) -> None:
    """Replace one table's verdicts whole: another thread may be reading them."""
    verdicts[verdict.table] = {**verdicts.get(verdict.table, {}), verdict.check: verdict}


LOOKED_FOR = timedelta(days=1)  # then the check itself, and its incident, are all there is to say
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Rechecks:
    """Keeps with each backfill what its checks said next."""

    backfills: StoredBackfills
    rulings: LatestVerdicts
    clock: Callable[[], datetime]

    def look(self) -> None:
        """Take up what has been ruled since."""
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
    """Whether what its checks say is still looked for, and one of them has not passed."""
    return (
        one.done and bool(one.unchecked) and one.ended is not None and one.ended > now - LOOKED_FOR
    )


def _proof(one: StoredBackfill, check: str, newest: tuple[Verdict, ...]) -> CheckedAgain | None:
    """What *check* said last of the table; once it has passed, that stands."""
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
    """Whether all that *verdict* compared was read after *one* had ended."""
    ended = one.ended
    return ended is not None and bool(verdict.as_of) and all(f.at > ended for f in verdict.as_of)


@dataclass(eq=False)
class ResidualProofs:
    """Looks in one round whether residuals of a ledger are made good, and stores what proves it.

    Backfills are read once, for all tables, when the first table with a residual is looked at.
    """

    ledger: Ledger
    backfills: StoredBackfills
    _ended: Mapping[str, Sequence[StoredBackfill]] | None = None

    def look(self, inputs: Inputs) -> None:
        """Take up what is proven of the table by now; the next round sees it.

        While the store takes nothing the residual stays, and the round goes on.
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
        """Complete ones that were requested after the oldest residual of any table."""
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
        """Table -> those that were requested after the oldest residual of any table."""
        if self._ended is None:
            found = dict[str, list[StoredBackfill]]()
            losses = self.ledger.losses().values()
            times = [residual.at for one in losses for residual in one.residuals]
            for backfill in self.backfills.ended(min(times)) if times else ():
                found.setdefault(backfill.table, []).append(backfill)
            self._ended = found
        return self._ended
