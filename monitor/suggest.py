"""Suggests known names for an unknown one, for error messages.

`alike` cuts a list of more than ten names to those with the longest common beginnings and ends.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

NEAR = 0.65  # of 1, so alike must a name be to be suggested
MOST = 10  # names in a message: of thousands, those that begin or end most like the one asked for


def near(asked: str, known: Iterable[str]) -> str:
    """The name most like *asked*; empty if none is near."""
    return next(iter(get_close_matches(asked, sorted(known), n=1, cutoff=NEAR)), "")


def nearest(asked: str, known: Iterable[str]) -> str:
    """The nearest, if one is near, and all there are; for few."""
    every = sorted(known)
    close, named = near(asked, every), ", ".join(every) or "none yet"
    return (f"the nearest is {close}; " if close else "") + f"known: {named}"


def alike(asked: str, names: Sequence[str]) -> str:
    """Those of *names* that *asked* may have meant; all, if they are few."""

    def unlike(name: str) -> int:
        return -_shared(asked, name) - _shared(asked[::-1], name[::-1])

    likely = sorted(names, key=unlike)[:MOST] if len(names) > MOST else names
    more = len(names) - len(likely)
    return (", ".join(likely) or "none yet") + (f" and {more} more" if more else "")


def _shared(one: str, other: str) -> int:
    """How many letters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
