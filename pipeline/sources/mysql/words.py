"""Of which words is a MySQL or MariaDB statement made?  Comments gone, names and texts told apart.

How a statement reads depends on what the log does not tell: on ``NO_BACKSLASH_ESCAPES``, on
``ANSI_QUOTES``, and on the version that executable comments ask for.  So there may be several
readings; only what they agree on is known.  Text in double quotes is a name where one stands.
Pure.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_EXECUTED = r"/\*M?!\d{0,6}"  # /*!50100 ... */, MariaDB's /*M!100200 ... */
_COMMENT = re.compile(r"\s+|--(?=\s|$)[^\n]*|#[^\n]*|/\*(?!M?!).*?\*/", re.DOTALL)
_OPENED = re.compile(_EXECUTED)
_SKIPPED = re.compile(rf"{_EXECUTED}.*?\*/", re.DOTALL)
_WORD = re.compile(r"[\w$]+")
_NAME = re.compile(r"`(?:[^`]|``)+`")
_TEXTS = {  # whether a backslash escapes -> text in single quotes, in double quotes
    True: (
        re.compile(r"'(?:[^'\\]|''|\\.)*'", re.DOTALL),
        re.compile(r'"(?:[^"\\]|""|\\.)*"', re.DOTALL),
    ),
    False: (re.compile(r"'(?:[^']|'')*'"), re.compile(r'"(?:[^"]|"")*"')),
}


class Kind(Enum):
    """What a word may be: DOUBLE is a name or a text, by the session's ``sql_mode``."""

    WORD = "word"
    NAME = "name"
    TEXT = "text"
    DOUBLE = "double"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Word:
    """One word; ``text`` is a name or text without its quotes, doubled ones inside made single."""

    kind: Kind
    text: str

    @property
    def upper(self) -> str:
        """The word in capitals; empty for what stands in quotes, so never a keyword."""
        return self.text.upper() if self.kind in (Kind.WORD, Kind.SIGN) else ""

    @property
    def named(self) -> bool:
        """Whether it can be a name."""
        return self.kind in (Kind.WORD, Kind.NAME, Kind.DOUBLE)


Words = tuple[Word, ...]


def readings(text: str) -> tuple[Words | None, ...]:
    """Every way to read *text*, each once; None for a way that leads into an open quote."""
    escapes = (True, False) if "\\" in text else (True,)
    executes = (True, False) if _OPENED.search(text) else (True,)
    found = [_read(text, escaped, executed) for escaped in escapes for executed in executes]
    return tuple(dict.fromkeys(found))


def _read(text: str, escaped: bool, executed: bool) -> Words | None:
    try:
        words = list(_words(text, escaped, executed))
    except ValueError:
        return None
    while words and words[-1].upper == ";":
        words.pop()
    return tuple(words)


def _words(text: str, escaped: bool, executed: bool) -> Iterator[Word]:
    single, double = _TEXTS[escaped]
    forms = ((_NAME, Kind.NAME), (single, Kind.TEXT), (double, Kind.DOUBLE), (_WORD, Kind.WORD))
    comment, at = _OPENED if executed else _SKIPPED, 0
    while at < len(text):
        if found := _COMMENT.match(text, at) or comment.match(text, at):
            at = found.end()
        elif executed and text.startswith("*/", at):
            at += 2
        else:
            word, at = _next(text, at, forms)
            yield word


def _next(text: str, at: int, forms: Sequence[tuple[re.Pattern[str], Kind]]) -> tuple[Word, int]:
    for pattern, kind in forms:
        if found := pattern.match(text, at):
            return Word(kind, _bare(found[0], kind)), found.end()
    if text[at] in "`'\"":
        msg = f"a quote at {at} is never closed"
        raise ValueError(msg)
    return Word(Kind.SIGN, text[at]), at + 1


def _bare(found: str, kind: Kind) -> str:
    if kind is Kind.WORD:
        return found
    return found[1:-1].replace(found[0] * 2, found[0])
