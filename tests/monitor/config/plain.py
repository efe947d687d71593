"""Classes that are nearly a probe and a channel, for what the config says of them."""

import re
from dataclasses import dataclass
from textwrap import dedent

import pytest
from _pytest.mark import ParameterSet

_PLACE = re.compile(r"[^: ]+\.yaml(:\d+)?: ")


def without_place(line: str) -> str:
    """A fault of a config without the file and the line that it begins with."""
    return _PLACE.sub("", line, count=1)


def cases(table: str) -> list[ParameterSet]:
    """Cases of two lines: values joined by ` => `, which name the case, and below them the last."""
    lines = [line.replace(r"\n", "\n") for line in dedent(table).strip().splitlines()]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [pytest.param(*one.split(" => "), said.strip(), id=one) for one, said in pairs]


class Plain:
    """No dataclass."""


@dataclass(frozen=True, slots=True)
class Short:
    """One of a channel's three members."""

    def send(self) -> None:
        """Do nothing."""


PROBE, CHANNEL = Plain, Short
