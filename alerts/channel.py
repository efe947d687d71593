"""Defines the channel protocol; each file in ``alerts/channels`` is a channel, found by name."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, cast

from alerts import channels
from alerts.model import Message
from pipeline import plugins


class Channel(Protocol):
    """Sends messages to people.

    The fields of a channel class are its settings; those with ``repr=False`` are secrets.
    """

    @property
    def per_minute(self) -> int:
        """Most sendings in any 60 seconds; further messages go into a digest."""
        ...

    @property
    def refresh(self) -> timedelta | None:
        """How often to send all firing incidents again; None if the receiver keeps its alerts."""
        ...

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Send *messages* in one request: one message as it is, several as a digest.

        Raises:
            BusyError: the receiver asks for a pause.
            UnreachableError: no answer; the same sending may succeed later.
            RefusedError: the receiver will never accept it.
        """
        ...


def channel_names() -> tuple[str, ...]:
    """Return the names of all channels, sorted."""
    return plugins.list_keys(channels, "CHANNEL")


def find_channel(name: str) -> type[Channel]:
    """Return the channel class *name*; raises ConfigError if it is unknown."""
    return cast("type[Channel]", plugins.find_class(channels, "CHANNEL", name))
