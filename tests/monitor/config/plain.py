"""Classes that are nearly a probe and a channel, for what the config says of them."""

from dataclasses import dataclass


class Plain:
    """No dataclass."""


@dataclass(frozen=True, slots=True)
class Short:
    """One of a channel's three members."""

    def send(self) -> None:
        """Do nothing."""


PROBE, CHANNEL = Plain, Short
