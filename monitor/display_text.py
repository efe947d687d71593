"""Prepares text for display: safe in a terminal, and with suggestions for unknown names.

Names of tables, messages and reasons come from sources and topics. A terminal would execute an
escape sequence in them, and characters that change the writing direction would disguise a name.

`similar_names` cuts a list of more than ten names to those that begin or end most like the
requested one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TypeVar

import click

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
T = TypeVar("T")


def escape_control_characters(text: str) -> str:
    r"""Return *text* with control and direction characters escaped as ``\x1b``; keeps lines."""
    return _ODD.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_line(text: str) -> str:
    r"""Return *text* as one line: escape line breaks as ``\n``, so no value can fake a line."""
    return escape_control_characters(text).replace("\n", "\\n")


def visible_in(answer: T, escape: Callable[[str], str] = escape_control_characters) -> T:
    """Return *answer*, any JSON, with all its strings escaped; keys stay as they are."""
    found: object = answer
    if isinstance(answer, str):
        found = escape(answer)
    elif isinstance(answer, dict):
        found = {key: visible_in(value, escape) for key, value in answer.items()}
    elif isinstance(answer, list):
        found = [visible_in(one, escape) for one in answer]
    return found  # type: ignore[return-value]


def say(line: str, *, err: bool = False) -> None:
    """Write one *line* to stdout, or to stderr; line breaks in it are escaped."""
    click.echo(escape_line(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Write *text* with its line breaks: only for texts of Sluice, such as config errors."""
    click.echo(escape_control_characters(text), err=err)


NEAR = 0.65  # lowest similarity (0 to 1) of a suggested name
MOST = 10  # most names in a message


def closest_name(asked: str, known: Iterable[str]) -> str:
    """Return the known name most similar to *asked*; empty if no name is similar enough."""
    return next(iter(get_close_matches(asked, sorted(known), n=1, cutoff=NEAR)), "")


def did_you_mean(asked: str, known: Iterable[str]) -> str:
    """Return a hint with the closest name, if any, and all *known* names, which must be few."""
    every = sorted(known)
    close, named = closest_name(asked, every), ", ".join(every) or "none yet"
    return (f"the nearest is {close}; " if close else "") + f"known: {named}"


def similar_names(asked: str, names: Sequence[str]) -> str:
    """Return, as text, the `MOST` of *names* most similar to *asked*, and the number of others."""

    def unlike(name: str) -> int:
        return -_shared(asked, name) - _shared(asked[::-1], name[::-1])

    likely = sorted(names, key=unlike)[:MOST] if len(names) > MOST else names
    more = len(names) - len(likely)
    return (", ".join(likely) or "none yet") + (f" and {more} more" if more else "")


def _shared(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
