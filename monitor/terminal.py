"""Writes for people: no text from outside reaches a terminal as a command to it.

Names of tables, messages and reasons come from sources and topics.  A terminal would obey an escape
sequence in them, and letters that turn the direction of writing would show another name.
"""

import re
from typing import TypeVar

import click

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
T = TypeVar("T")


def visible(text: str) -> str:
    r"""*text* with control and direction characters written out, as ``\x1b``; lines are kept."""
    return _ODD.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_in(answer: T) -> T:
    """*answer*, any JSON, with each of its texts made visible; keys stay as they are."""
    found: object = answer
    if isinstance(answer, str):
        found = visible(answer)
    elif isinstance(answer, dict):
        found = {key: visible_in(value) for key, value in answer.items()}
    elif isinstance(answer, list):
        found = [visible_in(one) for one in answer]
    return found  # type: ignore[return-value]


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Write *text* to stdout, or to stderr; what every verb writes goes through here."""
    click.echo(visible(text), err=err, nl=nl)
