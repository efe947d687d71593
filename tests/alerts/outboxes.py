"""An outbox in memory and a channel that obeys a script: fakes for delivery."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from alerts.model import Message
from alerts.outbox import ChannelHealth, Outbox, QueuedMessage


class FillableOutbox(Outbox, Protocol):
    """What tests need beside the protocol."""

    def put(self, messages: Iterable[tuple[str, Message]], at: datetime) -> int: ...


@dataclass(eq=False)
class MemoryOutbox:
    """The protocol in twenty lines."""

    queue: list[QueuedMessage] = field(default_factory=list)
    known: set[tuple[str, str]] = field(default_factory=set)
    fares: dict[str, ChannelHealth] = field(default_factory=dict)

    def put(self, messages: Iterable[tuple[str, Message]], at: datetime) -> int:
        new = [
            (name, message) for name, message in messages if (name, message.id) not in self.known
        ]
        self.known |= {(name, message.id) for name, message in new}
        start = len(self.known)
        self.queue += [QueuedMessage(start + n, name, msg, at) for n, (name, msg) in enumerate(new)]
        return len(new)

    def channels(self) -> tuple[str, ...]:
        return tuple(sorted({letter.channel for letter in self.queue}))

    def waiting(self, channel: str, limit: int) -> tuple[QueuedMessage, ...]:
        return tuple(letter for letter in self.queue if letter.channel == channel)[:limit]

    def health(self, channel: str) -> ChannelHealth:
        return self.fares.get(channel, ChannelHealth())

    def delivered(
        self, notifications: Sequence[QueuedMessage], standing: ChannelHealth, at: datetime
    ) -> None:
        self._remove(notifications)
        for letter in notifications:
            self.set_health(letter.channel, standing)

    def dead_letter(self, notifications: Sequence[QueuedMessage], why: str, at: datetime) -> None:
        self._remove(notifications)

    def set_health(self, channel: str, standing: ChannelHealth) -> None:
        self.fares[channel] = standing

    def _remove(self, letters: Sequence[QueuedMessage]) -> None:
        gone = {letter.number for letter in letters}
        self.queue = [letter for letter in self.queue if letter.number not in gone]


@dataclass(eq=False)
class ScriptedChannel:
    """Raises what *script* returns for each sending, else notes which messages it got."""

    script: Callable[[Sequence[Message]], Exception | None] = lambda _: None
    per_minute: int = 100
    refresh: timedelta | None = None
    got: list[tuple[str, ...]] = field(default_factory=list)
    gate: threading.Event | None = None

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        if self.gate is not None:
            assert self.gate.wait(timeout=30)
        if error := self.script(messages):
            raise error
        self.got.append(tuple(message.about for message in messages))
