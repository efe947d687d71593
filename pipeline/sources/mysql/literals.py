r"""What does a server make of the text between the quotes of a statement?

It drops a backslash, except before ``%`` and ``_``: there both stay.  Pure.
"""

import re

ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
KEPT = ("%", "_")


def unquoted(text: str) -> str:
    """The text itself, of one with escapes and doubled quotes."""
    return re.sub(r"''|\\(.)", _meant, text, flags=re.DOTALL)


def unescaped(text: str) -> str:
    """The text itself, of one with escapes whose doubled quotes are undone already."""
    return re.sub(r"\\(.)", _meant, text, flags=re.DOTALL)


def _meant(found: re.Match[str]) -> str:
    if found[1] is None:
        return "'"
    return found[0] if found[1] in KEPT else ESCAPES.get(found[1], found[1])
