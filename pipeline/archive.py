"""Decides which deletes only move rows to an archive, so that the lake keeps them.

An archive is declared by a **window**, registered before or after the purge, or by a **marker**, a
row that the purge writes in the same transaction.  An archived row stays in its mirror with the
``_sluice.op`` of a delete.  These rows are the ledger of ignored deletes, and a proof of
``lake = source + archived`` reads them key by key.  A new row of such a key replaces the archived
one.  No log names the user of a statement, neither MySQL's nor Postgres's.  Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class ArchiveWindow:
    """Deletes from ``since`` on and before ``until``, by the source's clock, are archived.

    If ``column`` is named, only those of rows whose value is below ``before``, a text that the
    column's type can parse. ``reason`` and ``who`` are for people.
    """

    since: datetime
    until: datetime
    column: str = ""
    before: str = ""
    reason: str = ""
    who: str = ""

    @property
    def fault(self) -> str:
        """Why no delete could be in it; empty if one can."""
        if self.since.tzinfo is None or self.until.tzinfo is None:
            name, at = next(
                (name, at)
                for name, at in (("since", self.since), ("until", self.until))
                if at.tzinfo is None
            )
            return f"{name} has no offset; write {at.isoformat()}Z for UTC"
        if self.since >= self.until:
            return f"until {self.until.isoformat()} is not after {self.since.isoformat()}"
        if bool(self.column) != bool(self.before):
            return (
                "`column` needs `before`" if self.column else "`before` needs `column`"
            ) + "; add it"
        return ""


@dataclass(frozen=True, slots=True)
class ArchiveMarker:
    """Deletes are archived if their transaction also wrote a row to ``table``.

    ``table`` is that table's name in Sluice. With ``column`` only a row counts whose value there is
    one of ``values``, for example the user that the purge recorded.
    """

    table: str
    column: str = ""
    values: tuple[str, ...] = ()

    @property
    def fault(self) -> str:
        """Why no row could count, or too many would; empty if the marker is valid."""
        if bool(self.column) != bool(self.values):
            return (
                "`column` needs `values`" if self.column else "`values` needs `column`"
            ) + "; add it"
        return ""


@dataclass(frozen=True, slots=True)
class ArchiveRule:
    """Declares that rows of tables, whose name matches the glob ``tables``, went to an archive."""

    tables: str
    """Pattern of the names of tables."""
    windows: tuple[ArchiveWindow, ...] = ()
    """Times in which deletes are archived."""
    markers: tuple[ArchiveMarker, ...] = ()
    """Rows that a purge writes in the transaction of its deletes."""


@dataclass(frozen=True, slots=True)
class RegisteredWindow:
    """A window that a person registered for one table while the service ran."""

    table: str
    window: ArchiveWindow


@dataclass(frozen=True, slots=True)
class ArchiveWord:
    """What the service knows of archives in addition to the settings: registered ``windows``.

    ``kept``: table -> number of rows that its mirrors have ever kept as archived.
    """

    windows: tuple[RegisteredWindow, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)


NO_WORD = ArchiveWord()


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """The archive rules of one table."""

    windows: tuple[ArchiveWindow, ...] = ()
    markers: tuple[ArchiveMarker, ...] = ()


def rules_of(
    table: str, rules: Iterable[ArchiveRule], registered: Iterable[RegisteredWindow] = ()
) -> ArchiveRules | None:
    """All rules of *table*; None without any."""
    own = [rule for rule in rules if fnmatchcase(table, rule.tables)]
    registered_windows = [one.window for one in registered if one.table == table]
    if not own and not registered_windows:
        return None
    windows = (*(one for rule in own for one in rule.windows), *registered_windows)
    return ArchiveRules(windows, tuple(one for rule in own for one in rule.markers))
