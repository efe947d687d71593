"""Turns verdicts into incidents, messages and revoked certificates, in serialized transactions.

The same lock guards the issuing of certificates. So no FAIL can arrive after the verdicts were read
and before a READY that rests on them is stored.

While the store cannot be written, everything continues in memory. Incidents open and close, their
notifications are sent, and certificates to be revoked are not used.  Once the store can be written,
all of that is stored in one transaction.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from alerts.model import Incident, IncidentState, Member, Message, Silence
from alerts.round import STORM, AlertSettings, Round, make_reminders, settle_round, withdraw_members
from checks.blocks import waivers_of
from checks.certificate import revoke_failed
from checks.ledger import LEDGER
from checks.model import Outcome, Verdict
from checks.named_rows import has_overlap
from monitor.observe.verdicts import LatestVerdicts
from monitor.store.store import ServiceStore
from pipeline.clocks import has_passed
from pipeline.errors import UnreachableError

AGAIN = timedelta(hours=1)
MOST_OWED = 10_000  # most verdicts in memory while the store fails; the oldest are dropped first
PASSED_AGAIN = timedelta(days=1)
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class VerdictRecorder:
    """Records verdicts; the lock ``deciding`` is held while anything is ruled or certified.

    ``gating`` are the checks whose FAIL revokes certificates, as a residual of the ledger does.
    ``whole`` are the checks whose PASS covers all rows. A PASS that covers only some rows does not
    protect certificates.  ``starting`` are tables in their first load, from the last monitoring
    round.
    """

    settings: AlertSettings
    records: ServiceStore
    rulings: LatestVerdicts
    gating: frozenset[str]
    whole: frozenset[str]
    clock: Callable[[], datetime]
    deciding: threading.RLock = field(default_factory=threading.RLock)
    starting: frozenset[str] = frozenset()
    _open: tuple[Incident, ...] | None = None  # open incidents; read again after each write
    _waiting: tuple[tuple[Incident, ...] | None, frozenset[Member]] = (None, frozenset())
    _kept: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    _stored: tuple[Incident, ...] = ()  # open incidents when the store was last read
    _silences: tuple[Silence, ...] = ()
    _owed: dict[str, Incident | None] = field(default_factory=dict)  # None: dropped
    _owed_verdicts: deque[Verdict] = field(default_factory=lambda: deque(maxlen=MOST_OWED))
    _owed_ends: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    _owed_fails: dict[Hashable, tuple[Verdict, Verdict | None]] = field(default_factory=dict)

    def tell(self, verdicts: Sequence[Verdict], *, kept: Sequence[Verdict] | None = None) -> None:
        """Open and close incidents from *verdicts*; write *kept* (by default all) to the history.

        Verdicts that change nothing do not access the store.  A storm is judged only in calls with
        news or without verdicts, not for each PASS of thousands of probes.
        """
        kept = verdicts if kept is None else kept
        with self.deciding:
            now, telling = self.clock(), self.news(verdicts)
            settled = Round()
            if telling or (not verdicts and self._is_storm()):
                silences, standing = self._silent(now), self._standing()
                settled = settle_round(
                    self.settings, standing, telling, silences, now, starting=self.starting
                )
            failed = [one for one in telling if one.ruling.outcome is Outcome.FAIL]
            ended = [
                replace(one, at=max(one.at, now)) for one in verdicts if self.rulings.ends_fail(one)
            ]
            if kept or failed or ended or settled != Round() or self._owes:
                self._record(settled, kept, failed, ended, now=now)
            self._kept |= {(one.table, one.check): one for one in kept}
            self._log(telling)
            for one in verdicts:
                self.records.ledger.note_counts(one, now)
            self.rulings.add(verdicts, now)
            self._end_waivers(verdicts)

    def news(self, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """Return *verdicts* without each PASS after a PASS, unless an open incident needs it."""
        with self.deciding:  # held briefly, because gate requests wait for it
            waiting = self._members()
        return tuple(
            one
            for one in verdicts
            if not self._passed_again(one) or Member(one.table, one.check) in waiting
        )

    def changed(self, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """Return the verdicts that are worth storing."""
        return tuple(verdict for verdict in verdicts if self._worth_keeping(verdict))

    def withdraw(self, watched: Callable[[Member], bool]) -> None:
        """Close incidents whose members are no longer watched."""
        with self.deciding:
            now, standing = self.clock(), self._standing()
            kept = {member for one in standing for member in one.members if watched(member)}
            settled = withdraw_members(self.settings, standing, kept, now)
            if settled != Round():
                self._record(settled, (), (), (), now=now)

    def reminders(self, now: datetime) -> tuple[tuple[str, Message], ...]:
        """Return messages about all firing incidents, for channels that do not keep alerts."""
        return make_reminders(self.settings, self.open(), now)

    def open(self) -> tuple[Incident, ...]:
        """Return the open incidents, oldest first: from the store, and those not stored yet."""
        with self.deciding:
            self._open = None
            return self._standing()

    def _standing(self) -> tuple[Incident, ...]:
        if self._open is None:
            try:
                self._stored = self.records.incidents.open()
            except UnreachableError as error:
                log.warning(
                    "open incidents cannot be read; the last known ones apply", why=str(error)
                )
            known = {one.id: one for one in self._stored} | self._owed
            found = (one for one in known.values() if one is not None)
            self._open = _oldest_first(found)
        return self._open

    def _is_storm(self) -> bool:
        return any(one.cause.check == STORM for one in self._standing())

    def _members(self) -> frozenset[Member]:
        """Return the members of all open incidents; cached until an incident changes."""
        standing = self._standing()
        if self._waiting[0] is not standing:
            members = frozenset(member for one in standing for member in one.members)
            self._waiting = standing, members
        return self._waiting[1]

    def _silent(self, now: datetime) -> tuple[Silence, ...]:
        try:
            self._silences = self.records.silences.list(now)
        except UnreachableError as error:
            log.warning("silences cannot be read; the last known ones apply", why=str(error))
        return self._silences

    @property
    def _owes(self) -> bool:
        return bool(self._owed or self._owed_verdicts or self._owed_fails or self._owed_ends)

    def _record(
        self,
        settled: Round,
        kept: Sequence[Verdict],
        failed: Sequence[Verdict],
        ended: Sequence[Verdict],
        *,
        now: datetime,
    ) -> None:
        """Store a round after what is still owed; keep it in memory if the store fails."""
        try:
            self._settle_debts(now)
            before = self._standing()
            with self._writing():
                self.records.record(settled, kept, now)
                self.records.verdicts.end_fails(ended)
                for verdict in failed:
                    self._revoke(verdict, self._spared_by(verdict))
            self._open = _after(before, settled)
        except UnreachableError as error:
            log.warning("the store cannot be written; incidents are kept in memory", why=str(error))
            self._owe(settled, kept, failed, now)
            self._owed_ends |= {(one.table, one.check): one for one in ended}

    def _owe(
        self, settled: Round, kept: Sequence[Verdict], failed: Sequence[Verdict], now: datetime
    ) -> None:
        self._owed |= {one.id: one for one in settled.changed}
        self._owed |= {one.id: None for one in settled.dropped}
        self._owed_verdicts.extend(kept)
        for verdict in failed:
            if self._disproves(verdict):
                # Keep the first FAIL of the same rows: the PASS before a later one protects more.
                rows = verdict.table, verdict.check, verdict.ruling.keys, verdict.ruling.more > 0
                self._owed_fails.setdefault(rows, (verdict, self._spared_by(verdict)))
                self.records.certificates.doubted.add(verdict.table)
        self.records.outbox.hold(settled.messages, now)
        self._open = None

    def _settle_debts(self, now: datetime) -> None:
        if not self._owes:
            return
        owed = tuple(one for one in self._owed.values() if one is not None)
        gone = [id_ for id_, one in self._owed.items() if one is None]

        def along() -> None:
            self.records.verdicts.add(tuple(self._owed_verdicts))
            self.records.incidents.keep(owed, gone)
            self.records.verdicts.end_fails(tuple(self._owed_ends.values()))
            for verdict, passed in self._owed_fails.values():
                self._revoke(verdict, passed)

        self.records.outbox.catch_up(now, along)
        log.warning(
            "the store answers again; incidents kept in memory are stored",
            incidents=len(self._owed),
        )
        self._owed, self._owed_ends, self._open = {}, {}, None
        self._owed_verdicts.clear()
        self.records.certificates.doubted -= {one.table for one, _ in self._owed_fails.values()}
        self._owed_fails = {}

    def _end_waivers(self, verdicts: Iterable[Verdict]) -> None:
        """End waivers whose findings are gone: if a check finds them again, it is a new loss.

        A PASS ends all waivers of its check. A FAIL that covers all rows ends each waiver whose
        rows it does not name.  If the store cannot be written now, the next verdict ends them.
        """
        for one in verdicts:
            if one.check not in self.gating or not self._judges_all(one):
                continue
            of = f"{one.check}:{one.table}:"
            own = [id_ for id_ in self.records.waivers.waived() if id_.startswith(of)]
            if not own:
                continue
            longer = tuple(f"{one.check}:{name}:" for name in self.rulings.tables_below(one.table))
            named = tuple(f"{of}{key}" for key in one.ruling.keys)
            fails = one.ruling.outcome is Outcome.FAIL
            found = {id_ for id_ in own if fails and has_overlap(id_, named)}
            found |= {id_ for id_ in own if id_.startswith(longer)}  # of another table
            why = f"{one.check} did not find it again: {one.ruling.reason}"
            try:
                if count := self.records.waivers.end(of, why=why, at=one.at, but=found):
                    log.info("waivers ended", table=one.table, check=one.check, count=count)
            except UnreachableError as error:
                log.warning("waivers of passed checks could not be ended yet", why=str(error))

    def _judges_all(self, verdict: Verdict) -> bool:
        """Whether all rows that *verdict* does not name were found right."""
        if verdict.ruling.outcome is Outcome.PASS:
            return True
        is_fail = verdict.ruling.outcome is Outcome.FAIL
        return is_fail and verdict.check in self.whole and "" not in waivers_of(verdict)

    def _spared_by(self, verdict: Verdict) -> Verdict | None:
        if verdict.check not in self.whole:
            return None
        return self.rulings.last_pass(verdict.table, verdict.check)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Open one transaction; afterwards the open incidents must be read or set again."""
        try:
            with self.records.write():
                yield
        finally:
            self._open = None

    def _revoke(self, verdict: Verdict, passed: Verdict | None) -> None:
        """Revoke certificates that *verdict* disproves; *passed* is the last PASS before it."""
        if not self._disproves(verdict):
            return
        if not waivers_of(verdict, self.records.waivers.waived()):
            return  # all its findings are waived
        valid = self.records.certificates.holding(verdict.table)
        gone = revoke_failed(verdict, valid, passed)
        if gone:
            count = self.records.certificates.revoke(gone)
            log.warning("certificates revoked", table=verdict.table, count=count)

    def _disproves(self, verdict: Verdict) -> bool:
        """Whether a FAIL of its check revokes certificates: a gating check, or the ledger."""
        return verdict.check in self.gating or verdict.check == LEDGER

    def _passed_again(self, verdict: Verdict) -> bool:
        if verdict.ruling.outcome is not Outcome.PASS:
            return False
        before = self.rulings.newest(verdict.table, verdict.check)
        return before is not None and before.ruling.outcome is Outcome.PASS

    def _worth_keeping(self, verdict: Verdict) -> bool:
        """Whether to store *verdict*: always if outcome or code differ from the one before.

        Also a FAIL that names other keys, because after a restart waivers are compared with the
        stored keys.  But not if neither verdict names all rows: no waiver covers them, and each run
        may name others.  A lasting FAIL and a changed value are stored once per `AGAIN`.  A PASS
        that protects certificates is stored once per `PASSED_AGAIN`, because after a restart only a
        stored PASS is known.
        """
        before = self.rulings.newest(verdict.table, verdict.check)
        if before is None:
            return True
        now, old = verdict.ruling, before.ruling
        if (now.outcome, now.code) != (old.outcome, old.code):
            return True
        cut_off, old_named = now.is_cut_off and old.is_cut_off, (old.keys, old.more > 0)
        if now.outcome is Outcome.FAIL and not cut_off and (now.keys, now.more > 0) != old_named:
            return True
        kept = self._kept.setdefault((verdict.table, verdict.check), before)
        if now.outcome is Outcome.FAIL or verdict.value != kept.value:
            return has_passed(kept.at, AGAIN, verdict.at)
        spares = now.outcome is Outcome.PASS and verdict.check in self.whole
        return spares and has_passed(kept.at, PASSED_AGAIN, verdict.at)

    def _log(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            before = self.rulings.newest(verdict.table, verdict.check)
            outcome, code = verdict.ruling.outcome, verdict.ruling.code
            if before is None and outcome is Outcome.PASS:
                continue
            if before is None or before.ruling.outcome is not outcome:
                facts = {"table": verdict.table, "check": verdict.check, "code": code}
                log.warning("verdict", outcome=outcome.value, **facts)


def _after(standing: Iterable[Incident], settled: Round) -> tuple[Incident, ...]:
    known = {one.id: one for one in standing} | {one.id: one for one in settled.changed}
    for one in settled.dropped:
        known.pop(one.id, None)
    return _oldest_first(known.values())


def _oldest_first(found: Iterable[Incident]) -> tuple[Incident, ...]:
    left = [one for one in found if one.state is not IncidentState.RESOLVED]
    return tuple(sorted(left, key=lambda one: (one.opened, one.id)))
