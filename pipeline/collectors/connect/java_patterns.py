r"""What does a regular expression of Java's say?  The same as one of Python's, or nothing at all.

Connectors match names with Java's, and both languages read a good deal alike without meaning it:
``\w`` and letters of either size are ASCII's alone in Java, ``&&`` and a bracket within a set of
letters build sets of sets.  What is written otherwise is translated, what has no counterpart is
refused: a list that was misread would tell that rows are sent which are not.
Its tests ask Java for the same.  Pure.
"""

import re

# Escapes that say the same in both; not those of words' ends, where Java goes by Unicode.
_NUMBERS = frozenset("123456789")  # of groups: Java takes two figures where there are so many
_ALIKE = frozenset("dDwWsSAtnrfaxu") | _NUMBERS
_ALIKE_IN_SETS = _ALIKE - _NUMBERS - {"A"}
_SETS = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
}
_SET = re.compile(r"\\([pP])\{(\w+)\}")
_GROUP = re.compile(r"\(\?(?:[=!>]|<[=!]|[ims]*(?:-[ims]+)?[:)])")
_NAMED = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_AGAIN = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_ODD_IN_SETS = ("&&", "--", "||", "~~", "[")  # sets of sets, in one language or the other


def compiled(text: str) -> re.Pattern[str]:
    """As connectors compile it: letters of any size, both of ASCII.

    Raises:
        re.error: it cannot be read here.
    """
    try:
        return re.compile(_translated(text), re.IGNORECASE | re.ASCII)
    except (ValueError, OverflowError) as error:
        raise re.error(str(error), text) from error


def _translated(text: str) -> str:
    found, at = "", 0
    while at < len(text):
        said, at = _sign(text, at)
        found += said
    return found


def _sign(text: str, at: int) -> tuple[str, int]:
    """What stands at *at*, in Python's words, and where it ends."""
    if text[at] == "\\":
        return _escape(text, at)
    if text[at] == "[":
        return _letters(text, at)
    if text.startswith("(?", at):
        return _group(text, at)
    return text[at], at + 1


def _escape(text: str, at: int) -> tuple[str, int]:
    if text.startswith(r"\Q", at):
        ends = text.find(r"\E", at)
        quoted = text[at + 2 :] if ends < 0 else text[at + 2 : ends]
        return re.escape(quoted), len(text) if ends < 0 else ends + 2
    if again := _AGAIN.match(text, at):
        return f"(?P={again[1]})", again.end()
    if (one := _SET.match(text, at)) and one[2] in _SETS:
        negated = "^" if one[1] == "P" else ""
        return f"[{negated}{_SETS[one[2]]}]", one.end()
    if text.startswith((r"\z", r"\Z"), at):
        return r"\Z", at + 2
    if text[at + 1 : at + 2] in _NUMBERS and text[at + 2 : at + 3].isdigit():
        raise re.error("figures after a number of a group cannot be read here", text, at)
    return _alike(text, at, _ALIKE)


def _alike(text: str, at: int, known: frozenset[str]) -> tuple[str, int]:
    sign = text[at + 1 : at + 2]
    if (
        not sign
        or (sign.isascii() and sign.isalnum() and sign not in known)
        or text.startswith(r"\x{", at)
    ):
        raise re.error(f"\\{sign} cannot be read here", text, at)
    return text[at : at + 2], at + 2


def _letters(text: str, at: int) -> tuple[str, int]:
    """A set of letters; a set within it, or two that are cut, is refused."""
    ends = at + (2 if text.startswith("[^", at) else 1)
    found = text[at:ends]
    if text.startswith("]", ends):
        raise re.error("a set that begins with ] cannot be read here", text, at)
    while not text.startswith("]", ends):
        if ends >= len(text) or text.startswith(_ODD_IN_SETS, ends):
            raise re.error("a set of sets cannot be read here", text, ends)
        if (one := _SET.match(text, ends)) and one[1] == "p" and one[2] in _SETS:
            said, ends = _SETS[one[2]], one.end()
        elif text[ends] == "\\":
            said, ends = _alike(text, ends, _ALIKE_IN_SETS)
        else:
            said, ends = text[ends], ends + 1
        found += said
    return found + "]", ends + 1


def _group(text: str, at: int) -> tuple[str, int]:
    if named := _NAMED.match(text, at):
        return f"(?P<{named[1]}>", named.end()
    if plain := _GROUP.match(text, at):
        return plain[0], plain.end()
    raise re.error("this kind of group cannot be read here", text, at)
