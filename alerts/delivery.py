"""Sends queued notifications to their channels, with one thread per channel.

A notification leaves the queue only after its channel has accepted it. If the service is killed
in between, the notification is sent again. The receiver recognizes the repetition by the id of
the message. At most 16 channels are served at once.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from alerts.channel import Channel
from alerts.model import Message
from alerts.outbox import (
    BusyError,
    ChannelHealth,
    Outbox,
    QueuedMessage,
    RefusedError,
    health_after_failure,
    health_after_refusal,
    health_after_success,
    plan_sendings,
)
from pipeline.clocks import has_passed
from pipeline.errors import UnreachableError

_AT_ONCE = 500
_THREADS = 16
_log = structlog.get_logger(__name__)

Reminders = Callable[[datetime], Sequence[tuple[str, Message]]]


@dataclass(frozen=True, slots=True)
class DeliveryTally:
    """Counts of one step: delivered and dead-lettered messages, and paused channels."""

    delivered: int = 0
    dead: int = 0
    failing: tuple[str, ...] = ()


@dataclass(eq=False)
class Delivery:
    """Delivers queued messages; ``channels`` are keyed by the names that routes use.

    ``patience`` is how long one step waits for slow channels; they continue in the background.
    ``reminders`` returns, per channel, all firing incidents (:func:`alerts.round.make_reminders`).
    """

    channels: Mapping[str, Channel]
    outbox: Outbox
    patience: timedelta = timedelta(seconds=5)
    reminders: Reminders = field(default=lambda _: ())
    _refreshed: dict[str, datetime] = field(default_factory=dict, init=False)
    _jobs: dict[str, Future[DeliveryTally]] = field(default_factory=dict, init=False)
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        """Create the thread pool, with at most one thread per channel; no thread starts yet."""
        size = max(1, min(len(self.channels), _THREADS))
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="deliver")

    def deliver_due(self, now: datetime) -> DeliveryTally:
        """Start to serve every channel with queued messages; return the results so far."""
        for name in dict.fromkeys((*self.outbox.channels(), *self._forgetful(now))):
            if name not in self._jobs and not self._stopped.is_set():
                self._jobs[name] = self._pool.submit(self._serve, name, now)
        wait(self._jobs.values(), timeout=self.patience.total_seconds())
        done = {name: job for name, job in self._jobs.items() if job.done()}
        for name in done:
            del self._jobs[name]
        tallies = [self._gather(name, job, now) for name, job in done.items()]
        return DeliveryTally(
            delivered=sum(tally.delivered for tally in tallies),
            dead=sum(tally.dead for tally in tallies),
            failing=tuple(sorted(name for tally in tallies for name in tally.failing)),
        )

    def close(self) -> None:
        """Start no further sendings; each thread ends after its current sending."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _gather(self, name: str, job: Future[DeliveryTally], now: datetime) -> DeliveryTally:
        """Return the result of *job*; if it raised an unexpected error, pause the channel."""
        error = job.exception()
        if error is None:
            return job.result()
        _log.error("channel failed", channel=name, exc_info=error)
        standing = health_after_failure(self.outbox.health(name), type(error).__name__, now)
        self.outbox.set_health(name, standing)
        return DeliveryTally(failing=(name,))

    def _serve(self, name: str, now: datetime) -> DeliveryTally:
        """Send the messages that channel *name* may take now, oldest first, until one fails."""
        notifications = self.outbox.waiting(name, _AT_ONCE)
        channel = self.channels.get(name)
        if channel is None:
            self.outbox.dead_letter(notifications, f"no channel {name!r} is configured", now)
            return DeliveryTally(dead=len(notifications))
        delivered = dead = 0
        for group in plan_sendings(
            notifications, self.outbox.health(name), channel.per_minute, now
        ):
            if self._stopped.is_set():
                break
            try:
                channel.send([notification.message for notification in group], now)
            except UnreachableError as error:
                return DeliveryTally(delivered, dead, failing=self._pause(name, error, now))
            except RefusedError as error:
                dead += self._refuse(name, group, error, now)
            else:
                self.outbox.delivered(
                    group, health_after_success(self.outbox.health(name), now), now
                )
                delivered += len(group)
        if name in self._forgetful(now) and not self.outbox.waiting(name, 1):
            return DeliveryTally(delivered, dead, failing=self._refresh(name, channel, now))
        return DeliveryTally(delivered, dead)

    def _forgetful(self, now: datetime) -> tuple[str, ...]:
        return tuple(
            name
            for name, channel in self.channels.items()
            if channel.refresh is not None
            and (
                name not in self._refreshed
                or has_passed(self._refreshed[name], channel.refresh, now)
            )
        )

    def _refresh(self, name: str, channel: Channel, now: datetime) -> tuple[str, ...]:
        """Send all firing incidents again.

        The same thread sends the ends of incidents, so a reminder never follows an end.
        """
        self._refreshed[name] = now
        messages = [message for receiver, message in self.reminders(now) if receiver == name]
        standing = self.outbox.health(name)
        try:
            if messages:
                channel.send(messages, now)
        except (UnreachableError, RefusedError) as error:
            _log.warning("channel was not refreshed", channel=name, why=str(error))
            self.outbox.set_health(name, health_after_failure(standing, str(error), now))
            return (name,)
        if standing.failures:  # no message is queued, so the channel counts as healthy
            self.outbox.set_health(name, health_after_success(standing, now))
        return ()

    def _pause(self, name: str, error: UnreachableError, now: datetime) -> tuple[str]:
        after = error.after if isinstance(error, BusyError) else None
        standing = health_after_failure(self.outbox.health(name), str(error), now, after)
        self.outbox.set_health(name, standing)
        _log.warning("channel is down", channel=name, why=str(error), until=standing.not_before)
        return (name,)

    def _refuse(
        self, name: str, group: Sequence[QueuedMessage], error: RefusedError, now: datetime
    ) -> int:
        """Dead-letter a single refused message; retry the messages of a refused digest singly."""
        standing: ChannelHealth = self.outbox.health(name)
        self.outbox.set_health(
            name,
            health_after_refusal(standing, now)
            if len(group) > 1
            else health_after_success(standing, now),
        )
        if len(group) > 1:
            return 0
        self.outbox.dead_letter(group, str(error), now)
        _log.error(
            "notification dead-lettered", channel=name, why=str(error), id=group[0].message.id
        )
        return 1
