"""A place in a statement's words, moved on by what is expected next.  Pure."""

from dataclasses import dataclass

from pipeline.sources.mysql.words import Kind, Word, Words


class Misread(Exception):  # noqa: N818  - it never leaves the reader of statements
    """The words go on in a way that is not known; says how."""


@dataclass(frozen=True, slots=True)
class Name:
    """A table as a statement names it; ``database`` is None where it leaves it out."""

    database: str | None
    relation: str


@dataclass(eq=False)
class Reader:
    """Reads from left to right and never back."""

    words: Words
    at: int = 0

    @property
    def done(self) -> bool:
        """Whether no word is left."""
        return self.at >= len(self.words)

    @property
    def rest(self) -> Words:
        """The words that are left."""
        return self.words[self.at :]

    @property
    def next(self) -> Word:
        """The word to come; an empty sign at the end."""
        return Word(Kind.SIGN, "") if self.done else self.words[self.at]

    def accept(self, *keywords: str) -> bool:
        """Go on if the next word is one of *keywords*."""
        found = not self.done and self.next.upper in keywords
        self.at += found
        return found

    def phrase(self, *keywords: str) -> bool:
        """Go on if the next words are *keywords*, all of them."""
        found = tuple(word.upper for word in self.rest[: len(keywords)]) == keywords
        self.at += len(keywords) if found else 0
        return found

    def skip(self) -> Word:
        """The next word, whatever it is.

        Raises:
            Misread: there is none.
        """
        if self.done:
            raise Misread("it ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def identifier(self) -> str:
        """The next word, which must be a name.

        Raises:
            Misread: it is none.
        """
        word = self.skip()
        if not word.named:
            msg = f"a name is missing at {word.text!r}"
            raise Misread(msg)
        return word.text

    def name(self) -> Name:
        """A table's name, with its database or without."""
        first = self.identifier()
        return Name(first, self.identifier()) if self.accept(".") else Name(None, first)

    def column(self) -> str:
        """A column's name; with its table before it, as older servers allowed, it is no column."""
        name = self.identifier()
        if self.next.upper == ".":
            raise Misread("a column is named with its table")
        return name

    def clause(self) -> Words:
        """All words up to the next comma outside parentheses, which is left."""
        depth, start = 0, self.at
        while not self.done and not (depth == 0 and self.next.upper == ","):
            depth += (self.next.upper == "(") - (self.next.upper == ")")
            self.at += 1
        return self.words[start : self.at]

    def value(self) -> Word:
        """What an option is set to, with ``=`` before it or without."""
        self.accept("=")
        return self.skip()

    def expect(self, keyword: str) -> None:
        """Go on over *keyword*.

        Raises:
            Misread: it does not come.
        """
        if not self.accept(keyword):
            msg = f"{keyword} is missing"
            raise Misread(msg)

    def waits(self) -> None:
        """Pass over MariaDB's ``WAIT n`` and ``NOWAIT``."""
        if self.accept("WAIT"):
            self.skip()
        self.accept("NOWAIT")

    def end(self) -> None:
        """Expect nothing more.

        Raises:
            Misread: something is left.
        """
        if not self.done:
            msg = f"it goes on with {self.next.text!r}"
            raise Misread(msg)
