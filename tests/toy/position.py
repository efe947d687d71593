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

    def locate(self, position: Position) -> tuple[int, int]:
        return 0, int(position.words.removeprefix("entry "), 16)

    def has_reached(self, passed: Position, wanted: Position) -> bool:
        return self.locate(passed) >= self.locate(wanted)

    def explain_reset(self, known: Position, now: Position) -> str | None:
        return None if self.has_reached(now, known) else f"{known} is no longer there"

    def explain_missing_log(self, known: Head, now: Head, landed: Order | None) -> str | None:
        return None  # there is one server, and its log never begins again

    def explain_overrun(self, said: Position, end: Position) -> str | None:
        return None if self.has_reached(end, said) else f"there is no {said} yet"

    def names_transactions(self, position: Position) -> bool:
        return False

    def may_contain(self, position: Position, transaction: str) -> bool:
        return True

    def compares_replicas(self, position: Position) -> bool:
        return False

    def explain_behind(self, source: Head, replica: Head) -> str | None:
        return None  # never called: there is one server
