"""Classes that are nearly a probe and a channel, for what the config says of them."""

import re
from dataclasses import dataclass

_PLACE = re.compile(r"[^: ]+\.yaml(:\d+)?: ")


def without_place(line: str) -> str:
    """A fault of a config without the file and the line that it begins with."""
    return _PLACE.sub("", line, count=1)


class Plain:
    """No dataclass."""


@dataclass(frozen=True, slots=True)
class Short:
    """One of a channel's three members."""

    def send(self) -> None:
        """Do nothing."""


PROBE, CHANNEL = Plain, Short
