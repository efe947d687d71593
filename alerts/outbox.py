"""Decides when a queued message is sent, alone or in a digest, and when it is retried.

Delivery is at least once, in order per channel: the oldest message is retried until it is delivered
or refused, and later ones wait.  So a pause applies to a channel, not to a message, and no channel
waits for another.  A channel has one sender at a time.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from alerts.model import Message
from pipeline.errors import SluiceError, UnreachableError

MINUTE = timedelta(minutes=1)
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=10)
LONGEST_ASKED_PAUSE = timedelta(hours=1)


class BusyError(UnreachableError):
    """The receiver asks for a pause; ``after`` is its length, None if it is not stated."""

    def __init__(self, message: str, after: timedelta | None = None) -> None:
        """Store the answer and the length of the pause."""
        super().__init__(message)
        self.after = after


class RefusedError(SluiceError):
    """The receiver will never accept this message; it is kept as a dead letter."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message queued for one channel; ``number`` ascends in the order of queueing."""

    number: int
    channel: str
    message: Message
    put: datetime


@dataclass(frozen=True, slots=True)
class ChannelHealth:
    """Health of a channel: failures in a row, the current pause and why, recent sendings.

    Until ``careful``, messages are sent singly: a digest was refused, perhaps because of one
    message.
    """

    failures: int = 0
    not_before: datetime | None = None
    why: str = ""
    sent: tuple[datetime, ...] = ()
    careful: datetime | None = None


class Outbox(Protocol):
    """Queued notifications and the outcome of earlier ones; each call is durable."""

    def channels(self) -> tuple[str, ...]:
        """Names of the channels with queued messages."""
        ...

    def waiting(self, channel: str, limit: int) -> tuple[QueuedMessage, ...]:
        """Return the oldest *limit* messages for *channel*, oldest first."""
        ...

    def health(self, channel: str) -> ChannelHealth:
        """Return the health of *channel*; an empty one at first."""
        ...

    def delivered(
        self, notifications: Sequence[QueuedMessage], standing: ChannelHealth, at: datetime
    ) -> None:
        """Remove delivered notifications of one channel, and store its health, *standing*."""
        ...

    def dead_letter(self, notifications: Sequence[QueuedMessage], why: str, at: datetime) -> None:
        """Store notifications as dead-lettered, so that a person can list them."""
        ...

    def set_health(self, channel: str, standing: ChannelHealth) -> None:
        """Store *standing* as the health of *channel*."""
        ...


def plan_sendings(
    notifications: Sequence[QueuedMessage], standing: ChannelHealth, per_minute: int, now: datetime
) -> tuple[tuple[QueuedMessage, ...], ...]:
    """Split notifications into sendings, in order.

    Empty while the channel is paused or has used its rate.  Notifications above the rate go into
    one digest, the last sending of the minute.
    """
    pause = standing.not_before - now if standing.not_before else timedelta()
    if timedelta() < pause <= LONGEST_ASKED_PAUSE:  # a longer pause comes from a clock step
        return ()
    free = per_minute - len(_recent(standing, now))
    alone = [(notification,) for notification in notifications]
    if len(alone) <= free or free <= 0 or _careful(standing, now):
        return tuple(alone[: max(free, 0)])
    return (*alone[: free - 1], tuple(notifications[free - 1 :]))


def health_after_success(standing: ChannelHealth, now: datetime) -> ChannelHealth:
    """Return the health after a sending was accepted."""
    return replace(
        standing, failures=0, not_before=None, why="", sent=(*_recent(standing, now), now)
    )


def health_after_failure(
    standing: ChannelHealth, why: str, now: datetime, after: timedelta | None = None
) -> ChannelHealth:
    """Return the health after a failure.

    Pauses double up to 10 minutes; *after* may ask for a longer one, up to 1 hour.
    """
    doubled = FIRST_PAUSE * 2 ** min(standing.failures, 10)
    asked = min(after or timedelta(), LONGEST_ASKED_PAUSE)
    pause = max(min(doubled, LONGEST_PAUSE), asked)
    tries = (*_recent(standing, now), now)
    return replace(
        standing, failures=standing.failures + 1, not_before=now + pause, why=why, sent=tries
    )


def health_after_refusal(standing: ChannelHealth, now: datetime) -> ChannelHealth:
    """Return the health after a digest was refused: its messages are tried one by one."""
    return replace(health_after_success(standing, now), careful=now + LONGEST_PAUSE)


def _recent(standing: ChannelHealth, now: datetime) -> tuple[datetime, ...]:
    return tuple(at for at in standing.sent if now - MINUTE < at <= now)


def _careful(standing: ChannelHealth, now: datetime) -> bool:
    return standing.careful is not None and now < standing.careful
