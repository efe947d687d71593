"""Finds personal or secret data in clear text in the newest rows of a mirror.

It finds columns that should be masked, hashed or encrypted before the lake, and were not.  Verdicts
have names of columns, kinds and counts, never values.
Cannot detect: rows outside its sample; text after the first 10,000 characters of a value; a phone
number behind 50 similar numbers of a value; encoded data and binary columns; names, addresses and
numbers without a check digit; a few cards among many similar numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

from checks.model import FailKind, NotYet, OneOrMore, Outcome, Ruling, Span, Undecided
from checks.run import Probe
from checks.world import World
from pipeline.errors import ProofError
from pipeline.installed import is_installed, require_package
from pipeline.invariants.plaintext import ALL, PACKAGES, IdentityName
from pipeline.model import Fence, Table

NAME = "plaintext"
FAILED: Mapping[str, Any] = {"failed": True}
"""The memory of a check that has failed, so that its finding can end."""


@dataclass(frozen=True, slots=True)
class PlaintextColumn:
    """``values`` different values of ``column`` in the sample have data of ``kind``."""

    column: str
    kind: str
    values: int


@dataclass(frozen=True, slots=True)
class ClearColumns:
    """Clear text found in ``columns`` columns of ``rows`` rows; as of no position.

    ``nothing`` says why there is nothing to examine, and so why an earlier finding ends.
    """

    rows: int
    columns: int
    found: tuple[PlaintextColumn, ...]
    nothing: str = ""
    as_of: tuple[Fence, ...] = ()

    @property
    def value(self) -> float:
        """Number of columns with clear text."""
        return float(len({one.column for one in self.found}))


@dataclass(frozen=True, slots=True)
class Plaintext:
    """Fail when a column holds identity numbers, cards, phone numbers, e-mail or keys.

    Examines *columns* of the newest *rows* rows; ``*`` means all text columns except those in
    *clear*.  *identity* names number formats of python-stdnum.  *regions* (ISO 3166) are regions
    whose phone numbers have no country code in the data.
    """

    columns: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    identity: tuple[IdentityName, ...] = ("cn.ric", "iban")
    regions: tuple[str, ...] = ("CN",)
    rows: OneOrMore = 1000
    limit: Span = timedelta(minutes=2)
    every: ClassVar[timedelta] = timedelta(hours=1)
    gating: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.SUSPECT

    def __post_init__(self) -> None:
        """Reject unknown regions, and *columns* if the packages that examine them are missing."""
        if self.columns:
            for package in PACKAGES:
                require_package(package)
        if all(map(is_installed, PACKAGES)):
            from pipeline.pii import require_regions  # noqa: PLC0415  - of an extra

            require_regions(self.regions)

    def doubts(self) -> Iterator[str]:
        """Yield each setting without effect as ``key: why``."""
        if self.clear and ALL not in self.columns:
            yield f"clear: has no effect unless columns has {ALL!r}; add it, or remove clear"

    def measure(self, table: Table, world: World) -> ClearColumns | NotYet | Undecided:
        """Examine a sample, column by column."""
        if not self.columns:
            return _end_finding(table, world, "no columns are named for it")
        sample = world.mirror(table).sample(self.rows)
        if not sample:
            return _end_finding(table, world, "the mirror is empty")
        missing = [name for name in self.columns if name != ALL and name not in sample[0]]
        if missing:
            return Undecided("no_column", f"the mirror has no column {', '.join(missing)}")
        texts = {name: values for name, values in self._texts(sample) if values}
        blind = [name for name in self.columns if name not in texts and _holds(sample, name)]
        if blind:
            why = f"{', '.join(blind)}: holds neither text nor whole numbers, so it is not searched"
            return Undecided("no_text", why)
        reading = self._looked_through(len(sample), texts, world)
        if isinstance(reading, ClearColumns) and reading.found:
            world.remember(table, NAME, FAILED)
        return reading

    def _looked_through(
        self, rows: int, texts: Mapping[str, Sequence[str]], world: World
    ) -> ClearColumns | Undecided:
        from pipeline.pii import find_kinds  # noqa: PLC0415  - of an extra

        end, found = world.clock() + self.limit, list[PlaintextColumn]()
        for done, (name, values) in enumerate(texts.items()):
            if world.clock() > end:
                why = (
                    f"{done} of {len(texts)} columns were looked through; name fewer, or less rows"
                )
                return Undecided("over_time", why)
            held = find_kinds(values, self.identity, self.regions)
            found += (PlaintextColumn(name, one.kind, one.values) for one in held)
        return ClearColumns(rows, len(texts), tuple(found))

    def judge(self, reading: ClearColumns, past: Sequence[float]) -> Ruling:
        """Return FAIL for any clear text; *past* is not used."""
        if reading.nothing:
            return Ruling(Outcome.PASS, reading.nothing)
        if not reading.found:
            text = f"no clear text in {reading.columns} columns of {reading.rows} rows"
            return Ruling(Outcome.PASS, text)
        shown = ", ".join(f"{one.kind} in {one.column} ({one.values})" for one in reading.found[:5])
        more = f" and {len(reading.found) - 5} more" if len(reading.found) > 5 else ""
        text = f"in the clear, in the newest {reading.rows} rows: {shown}{more}"
        return Ruling(Outcome.FAIL, text, "plaintext")

    def _texts(self, sample: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
        """Yield columns with their texts; whole numbers only in columns that are named."""
        for name in sample[0]:
            values = [row.get(name) for row in sample]
            if name in self.columns:
                yield name, [text for one in values if (text := _text(one))]
            elif ALL in self.columns and name not in self.clear:
                yield name, [one for one in values if isinstance(one, str)]


def _end_finding(table: Table, world: World, why: str) -> ClearColumns | NotYet:
    """End an earlier finding, which no later look would end; NotYet if there was none."""
    with suppress(ProofError):  # an unreadable memory may be that of a finding
        if not world.recall(table, NAME, lasting=True):
            return NotYet(why)
    world.remember(table, NAME, {})
    return ClearColumns(0, 0, (), why)


def _text(value: Any) -> str:
    """Return a text or whole number (also a decimal one) as text; empty for anything else."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return str(int(value))
    return str(value) if type(value) in {str, int} else ""


def _holds(sample: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(row.get(name) not in (None, "") for row in sample)


PROBE: type[Probe[ClearColumns]] = Plaintext
