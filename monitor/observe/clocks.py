"""Tracks which clocks are wrong now, and revokes certificates that rest on them.

A source whose clock differs too much from Sluice's is UNKNOWN(clock) until a heartbeat finds that
they agree. If clocks went back, it is UNKNOWN until they pass the highest time that they had shown,
and for at least one minute. Until then a time may be ambiguous, and samplings from before the step
may still be in use.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from checks.certificate import revoke_misdated
from checks.model import Reason
from monitor.store.certificates import Certificates
from monitor.store.history import CheckMemory
from monitor.store.schema import decode_value, encode_value
from pipeline.clocks import ClockStep
from pipeline.errors import ProofError

LEAST = timedelta(minutes=1)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClockState:
    """State of one source's clock: ``skew`` at its last heartbeat, and the last ``step`` back."""

    skew: timedelta = timedelta()
    step: ClockStep | None = None


@dataclass(eq=False)
class Clocks:
    """Stores each source's skew and last step back, also over restarts.

    ``deciding`` is the lock that is held while certificates are issued, so that no certificate can
    escape a revocation.
    """

    limit: timedelta
    memory: CheckMemory
    certificates: Certificates
    waived: Callable[[], frozenset[str]]
    deciding: threading.RLock = field(default_factory=threading.RLock)
    _known: dict[str, ClockState] = field(default_factory=dict)
    _unread: set[str] = field(default_factory=set)

    def load(self, sources: Iterable[str]) -> None:
        """Load the states that an earlier run of the service stored."""
        for source in sources:
            try:
                kept = self.memory.recall(_subject(source), "clock")
                if kept is not None:
                    self._known[source] = decode_value(ClockState, str(kept["state"]))
            except (ProofError, KeyError, ValueError, TypeError):
                self._unread.add(source)

    def compared(self, source: str, skew: timedelta, at: datetime) -> None:
        """Record how far *source*'s clock was behind Sluice's at a heartbeat."""
        before = self._of(source)
        now = ClockState(skew, before.step)
        self._known[source] = now
        if self._far(before) != self._far(now):
            log.warning("clock_compared", source=source, behind=skew.total_seconds())
            self._keep(source, now, at)

    def stepped(self, step: ClockStep) -> None:
        """Record a step back, and revoke certificates that rest on heartbeats misdated by it."""
        before = self._of(step.source)
        if before.step is not None and not _over(before.step, step.after):
            first, since = min((one.first, one.since) for one in (before.step, step))
            highest = max(before.step.before, step.before)
            step = replace(step, first=first, since=since, before=highest)
        state = replace(before, step=step)
        self._known[step.source] = state
        log.warning("clock_went_back", **{name: str(one) for name, one in asdict(step).items()})
        try:
            self._keep(step.source, state, step.after)
        finally:  # a full store keeps nothing, but no certificate of it is valid then
            self._revoke(step)

    def _revoke(self, step: ClockStep) -> None:
        with self.deciding:
            gone = revoke_misdated(self.certificates.holding_since(step.since), step)
            if gone:
                count = self.certificates.revoke(gone)
                log.warning("certificates_revoked", count=count, why=gone[0].why)

    def step(self, source: str) -> ClockStep | None:
        """Return the last step back of *source*'s heartbeats; None if there was none."""
        return self._of(source).step

    def reasons(self, sources: Iterable[str], now: datetime) -> tuple[Reason, ...]:
        """Return why the heartbeat times of *sources* are not reliable *now*."""
        return tuple(reason for source in sources for reason in self._doubts(source, now))

    def problem(self, source: str, now: datetime) -> str:
        """Return the reasons for *source* as one line; empty if the clocks are right."""
        return "; ".join(reason.text for reason in self.reasons((source,), now))

    def _doubts(self, source: str, now: datetime) -> Iterator[Reason]:
        state = self._of(source)
        if source in self._unread:
            yield Reason("clock", _unreadable(source))
        if self._far(state):
            yield Reason("clock", _apart(source, state.skew, self.limit))
        step = state.step
        if step is not None and not _over(step, now) and step.id not in self.waived():
            yield Reason("clock", _went_back(step), step.id)

    def _far(self, state: ClockState) -> bool:
        return abs(state.skew) > self.limit

    def _of(self, source: str) -> ClockState:
        return self._known.get(source, ClockState())

    def _keep(self, source: str, state: ClockState, at: datetime) -> None:
        if source in self._unread:
            return  # the stored state may have a step back that still counts
        self.memory.remember(
            _subject(source), "clock", {"state": encode_value(ClockState, state)}, at
        )


def _over(step: ClockStep, now: datetime) -> bool:
    return now >= max(step.before, step.after + LEAST)


def _subject(source: str) -> str:
    return f"source:{source}"


def _unreadable(source: str) -> str:
    return (
        f"source {source}: its stored clock readings cannot be read; stop the service,"
        f" delete row {_subject(source)} clock of table memory in the store, and start it"
    )


def _apart(source: str, skew: timedelta, limit: timedelta) -> str:
    word = "behind" if skew > timedelta() else "ahead of"
    return (
        f"source {source}: its clock is {abs(skew).total_seconds():.1f} s {word} Sluice's, "
        f"{limit.total_seconds():.1f} s may be"
    )


def _went_back(step: ClockStep) -> str:
    return (
        f"source {step.source}: its clock and Sluice's went back by {step.size.total_seconds():.1f}"
        f" s at heartbeat {step.number}, from {step.before:%Y-%m-%d %H:%M:%S} UTC; "
        f"heartbeats since {step.first} no longer count"
    )
