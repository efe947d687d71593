"""Compares each mirror with its source, row by row and value by value; six kinds of differences.

It compares the current source with the current mirror (or a version of it). Stop the writers and
let the pipeline catch up first; otherwise everything still on its way counts as lost.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from demo.oracle.rows import Mirror, Row, RowId, Source, read_mirror, read_sources
from demo.shop.ledger import Entry, Outcome
from demo.shop.link import Address
from demo.shop.schema import MIRRORS

SHOWN = 3


@dataclass(frozen=True, slots=True)
class Value:
    """One value that differs."""

    row: RowId
    column: str
    source: object
    mirror: object


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences of a mirror; a row is in one finding, except that duplicates are judged too.

    ``regressed`` rows have an older transaction than the source's. ``rolled_back`` rows have a
    transaction that was rolled back. ``changed`` are other differences. ``columns`` names columns
    that are missing, of the wrong type, or without a source.
    """

    rows: int = 0
    lost: tuple[RowId, ...] = ()
    duplicated: tuple[RowId, ...] = ()
    regressed: tuple[RowId, ...] = ()
    ghost: tuple[RowId, ...] = ()
    rolled_back: tuple[RowId, ...] = ()
    changed: tuple[Value, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of each finding; all 0 if the mirror equals its source."""
        return {name: len(getattr(self, name)) for name in FINDINGS}

    @property
    def clean(self) -> bool:
        """Tell whether there is no difference."""
        return not any(self.counts.values())

    def __str__(self) -> str:
        """Return the first few of each finding as text."""
        findings = [
            f"{count} {name}: {', '.join(map(str, getattr(self, name)[:SHOWN]))}"
            for name, count in self.counts.items()
            if count
        ]
        return f"{self.rows} rows; " + ("; ".join(findings) or "all equal")


FINDINGS = ("lost", "duplicated", "regressed", "ghost", "rolled_back", "changed", "columns")


def compare(
    server: Address,
    lake: str,
    *,
    ledger: Mapping[int, Entry] | None = None,
    mirrors: Mapping[str, Sequence[str]] = MIRRORS,
    versions: Mapping[str, int] | None = None,
) -> dict[str, Diff]:
    """Compare every mirror under *lake* with its shards on *server*, a MySQL.

    Without *ledger* a rolled-back row cannot be recognised; it then counts as a ghost, or changed.
    """
    return compared(read_sources(server, mirrors), lake, ledger=ledger, versions=versions)


def compared(
    sources: Mapping[str, Source],
    lake: str,
    *,
    ledger: Mapping[int, Entry] | None = None,
    versions: Mapping[str, int] | None = None,
) -> dict[str, Diff]:
    """Compare every mirror under *lake* with its source in *sources*, as read before."""
    return {
        name: judge(
            source,
            read_mirror(mirror_path(lake, name), source, (versions or {}).get(name)),
            rolled_back_numbers(ledger or {}),
        )
        for name, source in sources.items()
    }


def mirror_path(lake: str, mirror: str) -> str:
    """Return the path of the mirror named ``database.table``."""
    database, _, table = mirror.partition(".")
    return f"{lake}/mirrors/{database}/{table}"


def rolled_back_numbers(ledger: Mapping[int, Entry]) -> frozenset[int]:
    """Return transaction numbers that no row may have."""
    return frozenset(
        number for number, entry in ledger.items() if entry.outcome is Outcome.ROLLED_BACK
    )


def judge(source: Source, mirror: Mirror, rolled_back: frozenset[int] = frozenset()) -> Diff:
    """Return the differences of one mirror from its source."""
    counts = Counter(row_id for row_id, _ in mirror.rows)
    findings = _Findings()
    for row_id, row in mirror.rows:
        _judge_row(findings, row_id, row, source, rolled_back)
    return Diff(
        rows=len(source.rows),
        lost=tuple(row_id for row_id in source.rows if row_id not in counts),
        duplicated=tuple(row_id for row_id, count in counts.items() if count > 1),
        regressed=tuple(findings.regressed),
        ghost=tuple(findings.ghost),
        rolled_back=tuple(findings.rolled_back),
        changed=tuple(findings.changed),
        columns=tuple(_wrong_columns(source, mirror)),
    )


@dataclass(eq=False)
class _Findings:
    """Collects findings about rows of the mirror."""

    regressed: list[RowId] = field(default_factory=list)
    ghost: list[RowId] = field(default_factory=list)
    rolled_back: list[RowId] = field(default_factory=list)
    changed: list[Value] = field(default_factory=list)


def _judge_row(
    findings: _Findings, row_id: RowId, row: Row, source: Source, rolled_back: frozenset[int]
) -> None:
    """Add what is wrong with one row of the mirror."""
    true = source.rows.get(row_id)
    touched = row.get("touched")
    if touched in rolled_back:
        findings.rolled_back.append(row_id)
    elif true is None:
        findings.ghost.append(row_id)
    elif _number(touched) < _number(true.get("touched")):
        findings.regressed.append(row_id)
    else:
        findings.changed.extend(
            Value(row_id, name, true[name], value)
            for name, value in row.items()
            if name in true and true[name] != value
        )


def _number(touched: object) -> int:
    """Return the transaction number; -1 for tables without one, which never regress."""
    return touched if isinstance(touched, int) else -1


def _wrong_columns(source: Source, mirror: Mirror) -> list[str]:
    """Describe columns that are missing, of the wrong type, or absent from the source."""
    declared = {column.name: column for column in source.columns}
    missing = [f"{name} is missing" for name in declared if name not in mirror.types]
    wrong = [
        f"{name} is {mirror.types[name]} for {column.declared}"
        for name, column in declared.items()
        if name in mirror.types and not column.fits(mirror.types[name])
    ]
    known = {*declared, *source.unverified, "_sluice"}
    return (
        missing
        + wrong
        + [f"{name} is not a column of the source" for name in mirror.types if name not in known]
    )
