r"""Refuses regular expressions that RE2 cannot read, or that Java reads otherwise.

A suite is evaluated by RE2 in memory, and by `java.util.regex` in Spark. A pattern that both accept
may have opposite verdicts: `[[:digit:]]` is a digit to RE2, and one of `:digt` to Java. Differences
about line ends, `\s` and two foreign forms of `k` and `s` are accepted, and named in the guide.
Measured on Java 17. Pure.
"""

import re
from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

MOST_SHOWN = 200  # characters of a pattern or an error in a message
_PROPERTY = r"\\[pP](?:\{[^}]*\}|.)"
_POSIX = r"\[:\^?[a-z]+:\]"
_PART = re.compile(
    rf"(?P<quoted>\\Q.*?(?:\\E|\Z))|(?P<property>{_PROPERTY})|\\x\{{[^}}]*\}}|(?P<escape>\\.)"
    rf"|(?P<set>\[\^?\]?(?:{_PROPERTY}|\\.|{_POSIX}|[^\]\\])*\])"
    r"|(?P<repeated>\(\?[a-zA-Z-]*\)[*+?{])|(?P<flags>\(\?[a-zA-Z-]*[:)])|(?P<named>\(\?P?<[^>]*>)|\{[0-9]+(?:,[0-9]*)?\}"
    r"|(?P<brace>\{)|.",
    re.DOTALL,
)
_SET_PART = re.compile(
    rf"(?P<property>{_PROPERTY})|\\x\{{[^}}]*\}}|(?P<escape>\\.)|(?P<posix>{_POSIX})"
    r"|(?P<nested>\[)|(?P<intersection>&&)|.",
    re.DOTALL,
)
_ALIKE_PROPERTY = re.compile(
    r"\\[pP](?:[LMNPSZ]|\{(?:L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?)\})"
)
_ALIKE_NAME = re.compile(r"\(\?<[a-zA-Z][a-zA-Z0-9]*>")
_LISTED = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:blank:]": r"\t ",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:space:]": r"\t-\r ",
    "[:upper:]": "A-Z",
    "[:word:]": r"\w",
    "[:xdigit:]": "0-9A-Fa-f",
}
"""Name of some characters -> the characters, as both read them."""
_ESCAPES = {
    r"\b": "`(^|[^0-9A-Za-z_])`",
    r"\B": "`[0-9A-Za-z_]`",
    r"\v": r"`\x0B`",
    r"\C": "`.`",
    **{rf"\{digit}": r"the code, such as `\x0A`" for digit in "01234567"},
}
"""Escape that Java does not read, or reads otherwise -> what to write."""


def explain_unreadable(pattern: object) -> str:
    """Why RE2 cannot read the regular expression *pattern*; empty if it can."""
    if not isinstance(pattern, str):  # Great Expectations accepts a number
        return f"must be a text, and is {pattern!r}; quote it"
    try:
        pc.match_substring_regex(pa.array([""], pa.string()), pattern)
    except pa.ArrowInvalid as error:
        why = " ".join(str(error).split()).removeprefix("Invalid regular expression: ")
        fix = r"rewrite it for RE2, without look-around, back-reference or \Z"
        return f"RE2 cannot read {pattern[:MOST_SHOWN]!r}: {why[:MOST_SHOWN]}; {fix}"
    return ""


def explain_different(pattern: str) -> str:
    """What of *pattern* Java reads otherwise than RE2, which can read it; empty if nothing."""
    for part, fix in _differences(pattern):
        shown = f"`{part[:MOST_SHOWN]}` in `{pattern[:MOST_SHOWN]}`"
        return f"Java, by which Spark evaluates large tables, reads {shown} otherwise; write {fix}"
    return ""


def _differences(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each part that Java reads otherwise, and what to write."""
    ignores_case = ""
    unfolded = not pattern.isascii()
    for one in _PART.finditer(pattern):
        kind, part = one.lastgroup, one.group()
        if kind == "set":
            yield from _differences_in_set(part)
        elif kind == "flags" and "i" in part.partition("-")[0]:
            ignores_case = ignores_case or part
        unfolded |= kind != "quoted" and bool(re.search(r"\\[xpP]", part))
        if kind == "flags" and "m" in part:
            yield part, r"`(^|\n)` and `(\n|$)` without it"
        elif kind == "flags" and "U" in part:
            yield part, "it without `U`, which changes no verdict"
        elif kind == "named" and not _ALIKE_NAME.fullmatch(part):
            yield part, "`(`"
        elif kind == "brace":
            yield part, r"`\{`"
        elif kind == "repeated":
            yield part, "it without the repetition"
        else:
            yield from _different_escape(one)
    if ignores_case and unfolded:
        yield ignores_case, "both characters instead, such as `[éÉ]`"


def _differences_in_set(part: str) -> Iterator[tuple[str, str]]:
    for one in _SET_PART.finditer(part, 1):
        if one["posix"]:
            plain = reduce(lambda done, each: done.replace(*each), _LISTED.items(), part)
            yield part, f"`{plain}`" if "[:" not in plain else "the characters, such as `[^0-9]`"
        elif one["nested"]:
            yield part, r"`\[` for the bracket in it"
        elif one["intersection"]:
            yield part, r"`&` once, or list the characters"
        else:
            yield from _different_escape(one)


def _different_escape(one: re.Match[str]) -> Iterator[tuple[str, str]]:
    if one["property"] and not _ALIKE_PROPERTY.fullmatch(one["property"]):
        yield one["property"], r"the characters, or a category such as `\p{L}`, but for `C`"
    elif one["escape"] in _ESCAPES:
        yield one["escape"], _ESCAPES[one["escape"]]
