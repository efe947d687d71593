"""A place in the toy's log is the number of an entry, in its own spelling: nobody else reads it."""

from dataclasses import dataclass

from pipeline.model import Head, Order, Position

KIND = "tests.toy.source"


def entry(number: int) -> Position:
    """All up to this entry."""
    return Position(KIND, f"entry {number:x}")


@dataclass(frozen=True, slots=True)
class EntryNumbers:
    """One log, one server, no transactions with names."""

    def place(self, position: Position) -> tuple[int, int]:
        return 0, int(position.words.removeprefix("entry "), 16)

    def reaches(self, passed: Position, wanted: Position) -> bool:
        return self.place(passed) >= self.place(wanted)

    def reset(self, known: Position, now: Position) -> str | None:
        return None if self.reaches(now, known) else f"{known} is no longer there"

    def lacks(self, known: Head, now: Head, landed: Order | None) -> str | None:
        return None  # there is one server, and its log never begins again

    def beyond(self, said: Position, end: Position) -> str | None:
        return None if self.reaches(end, said) else f"there is no {said} yet"

    def proper(self, position: Position) -> bool:
        return False

    def may_hold(self, position: Position, transaction: str) -> bool:
        return True
