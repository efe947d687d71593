"""Compares positions in the logs of sources, by the rules of their kind.

A position names its kind, so a position from a checkpoint, a store or a certificate can be compared
without its source.  Only the rules of the kind parse its text.  Pure, except that it imports them.
"""

from functools import cache
from typing import Protocol, cast

from pipeline import plugins, sources
from pipeline.model import Head, Order, Position


class PositionRules(Protocol):
    """Rules for the positions of one kind of source; a source has them as ``positions``."""

    def locate(self, position: Position) -> tuple[int, int]:
        """``log`` and ``pos`` in the `Order` of a change that begins at *position*."""
        ...

    def has_reached(self, passed: Position, wanted: Position) -> bool:
        """Whether a reader at *passed* has read everything before *wanted*.

        Both are assumed to be of the same log; false if they show that they are not.
        """
        ...

    def explain_reset(self, known: Position, now: Position) -> str | None:
        """Why a log that once ended at *known* cannot end at *now*; None if it can."""
        ...

    def explain_missing_log(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """Why the server of *now* may be missing what was landed up to *known*; None if it has it.

        Called when one server replaced the other, or when its log began again.  *landed* is the
        highest order landed of the old log.  It may be above *known*, which was read earlier.
        """
        ...

    def explain_overrun(self, said: Position, end: Position) -> str | None:
        """Why *said* cannot be in the log that ends at *end*; None if it can."""
        ...

    def names_transactions(self, position: Position) -> bool:
        """Whether *position* has the transactions of its log, so other logs are recognized."""
        ...

    def may_contain(self, position: Position, transaction: str) -> bool:
        """Whether *transaction*, named as in the change log, may be before *position*."""
        ...

    def compares_replicas(self, position: Position) -> bool:
        """Whether a replica's head shows how much of the log of *position* it has executed."""
        ...

    def explain_behind(self, source: Head, replica: Head) -> str | None:
        """Why *replica* may not have executed all that *source* had; None if it has.

        Called only if `compares_replicas` is true.

        Raises:
            ProofError: it is not, or no longer, a replica of that server.
        """
        ...


@cache
def find_position_rules(kind: str) -> PositionRules:
    """The rules for positions of *kind*.

    Raises:
        ConfigError: there is no such source.
    """
    return cast("PositionRules", plugins.find_class(sources, "SOURCE", kind).positions)


def locate_position(position: Position) -> tuple[int, int]:
    """``log`` and ``pos`` in the `Order` of a change that begins at *position*."""
    return find_position_rules(position.kind).locate(position)


def has_reached(passed: Position, wanted: Position) -> bool:
    """Whether a reader at *passed* has read everything before *wanted*."""
    return passed.kind == wanted.kind and find_position_rules(wanted.kind).has_reached(
        passed, wanted
    )


def explain_reset(known: Position, now: Position) -> str | None:
    """Why a log that once ended at *known* cannot end at *now*; None if it can."""
    if known.kind != now.kind:
        return f"its positions were of kind {known.kind} and are of kind {now.kind}"
    return find_position_rules(now.kind).explain_reset(known, now)


def explain_missing_log(known: Head, now: Head, landed: Order | None = None) -> str | None:
    """Why the server of *now* may be missing what was landed up to *known*; None if it has it."""
    if known.position.kind != now.position.kind:
        return explain_reset(known.position, now.position)
    return find_position_rules(now.position.kind).explain_missing_log(known, now, landed)


def explain_overrun(said: Position, end: Position) -> str | None:
    """Why *said* cannot be in the log that ends at *end*; None if it can."""
    if said.kind != end.kind:
        return f"a position of kind {said.kind} cannot be in a log of kind {end.kind}"
    return find_position_rules(end.kind).explain_overrun(said, end)


def names_transactions(position: Position) -> bool:
    """Whether *position* has the transactions of its log, so other logs are recognized."""
    return find_position_rules(position.kind).names_transactions(position)


def may_contain(position: Position, transaction: str) -> bool:
    """Whether *transaction*, named as in the change log, may be before *position*."""
    return find_position_rules(position.kind).may_contain(position, transaction)


def compares_replicas(position: Position) -> bool:
    """Whether a replica's head shows how much of the log of *position* it has executed."""
    return find_position_rules(position.kind).compares_replicas(position)


def explain_behind(source: Head, replica: Head) -> str | None:
    """Why *replica* may not have executed all that *source* had; None if it has.

    Raises:
        ProofError: it is not, or no longer, a replica of that server.
    """
    return find_position_rules(source.position.kind).explain_behind(source, replica)
