"""Defines the channel protocol; each file in ``alerts/channels`` is a channel, found by name."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol, cast

from alerts import channels
from alerts.model import Message
from pipeline import plugins


class Channel(Protocol):
    """A way to people.  Its settings are the fields of its class; ``repr=False`` marks secrets."""

    @property
    def per_minute(self) -> int:
        """Sendings it takes in any 60 seconds; what is more goes into a digest."""
        ...

    @property
    def refresh(self) -> timedelta | None:
        """How often it must hear again of all that still fires; None if it never forgets."""
        ...

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Hand over *messages* in one sending: one as such, several as a digest.

        Raises:
            BusyError: the receiver asks for a pause.
            UnreachableError: no answer; the same sending may succeed later.
            RefusedError: it will never be taken.
        """
        ...


def channel_names() -> tuple[str, ...]:
    """Names of the channels there are, sorted."""
    return plugins.list_keys(channels, "CHANNEL")


def find_channel(name: str) -> type[Channel]:
    """Return the channel class of that name; ConfigError if it is unknown."""
    return cast("type[Channel]", plugins.find_class(channels, "CHANNEL", name))
