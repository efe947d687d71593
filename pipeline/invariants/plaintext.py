"""An invariant: no column holds personal or secret data in the clear.

It checks each row as the mirror would get it, after the standards that hash, mask or encrypt.
Other numbers may look like identity numbers, cards or phone numbers without a country by chance.
So a few of them among many similar numbers break nothing. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from pipeline.errors import ConfigError, HeldError
from pipeline.installed import require_package
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant, Mask

ALL = "*"
PACKAGES = ("phonenumbers", "stdnum")
IdentityName = Literal[
    "br.cpf",
    "cn.ric",
    "es.dni",
    "fr.nir",
    "iban",
    "in_.aadhaar",
    "it.codicefiscale",
    "kr.rrn",
    "pl.pesel",
    "se.personnummer",
]


@dataclass(frozen=True, slots=True)
class Plaintext:
    """``columns`` hold no identity numbers, cards, phone numbers, e-mail or keys."""

    columns: tuple[str, ...] = (ALL,)
    """Columns of text or whole numbers; ``*`` is all columns of text except those in ``clear``."""
    clear: tuple[str, ...] = ()
    """Columns that may hold such data."""
    identity: tuple[IdentityName, ...] = ("cn.ric", "iban")
    """Identity numbers, by their names in python-stdnum."""
    regions: tuple[str, ...] = ("CN",)
    """Regions (ISO 3166) whose phone numbers are written without a country."""
    chance: float = 1e-9
    """Numbers with check digits count if so many valid ones have at most this probability.

    At 1e-9 ten cards of one column are found in a slice, at 0.2 the first one.
    """

    def __post_init__(self) -> None:
        """Reject settings that are invalid or find nothing, and missing packages."""
        for package in PACKAGES:
            require_package(package)
        if not self.columns:
            raise ConfigError('columns: names none; write "*" for all columns of text')
        if not 0 < self.chance <= 1:
            raise ConfigError(f"chance: {self.chance} is not above 0 and at most 1")
        from pipeline.pii import require_regions  # noqa: PLC0415  - of an extra

        require_regions(self.regions)

    def doubts(self) -> Iterator[str]:
        """Yield each setting without effect, as ``key: problem; fix``."""
        if self.clear and ALL not in self.columns:
            yield f"clear: has no effect unless columns has {ALL!r}; add it, or remove clear"

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check each column for each kind; keys are not shown if one may hold such data.

        For that, one value that looks like such data is enough, even if chance may explain it.
        """
        from pipeline.pii import find_rows, has_any, list_detectors  # noqa: PLC0415  - of an extra

        detectors = list_detectors(self.identity, self.regions)
        found = [
            (name, one)
            for name, column in self._texts(intended)
            for one in find_rows(column, detectors, self.chance)
        ]
        named = np.zeros(intended.rows.num_rows, np.bool_)
        for _, one in found:
            named |= one.rows
        is_named = not any(name in intended.key for name, _ in found) and not any(
            has_any(one, detectors) for one in _key_texts(intended, named)
        )
        for name, one in found:
            what = f"{name} holds {one.kind} in the clear"
            if is_named:
                yield Breach(what, one.rows)
            else:
                yield Breach(
                    f"{what} (rows: {int(one.rows.sum())}; unnamed, as a key is in the clear)"
                )

    def _texts(self, intended: IntendedRows) -> Iterator[tuple[str, pa.Array]]:
        """Name and texts of each column to check."""
        for name in self.columns:
            if name != ALL:
                yield name, _as_text(name, intended.column(name))
        if ALL not in self.columns:
            return
        for field in intended.rows.schema:
            is_named = field.name in self.columns or field.name in self.clear
            if not is_named and (
                pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
            ):
                yield field.name, intended.column(field.name)


def _key_texts(intended: IntendedRows, named: Mask) -> Iterator[pa.Array]:
    """The key columns of the *named* rows, as text; bytes are decoded as UTF-8."""
    for name in intended.key:
        column = intended.column(name).filter(pa.array(named))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            texts = [
                None if one is None else one.decode(errors="replace") for one in column.to_pylist()
            ]
            yield pa.array(texts, pa.string())
        else:
            yield column.cast(pa.string())


def _as_text(name: str, column: pa.Array) -> pa.Array:
    """The values of a column of texts or whole numbers, as text.

    Raises:
        HeldError: ``invariant``, the column is of another type.
    """
    kind = column.type
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if not whole and not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
        detail = (
            f"column {name} is of type {kind}, and `plaintext` looks at texts and whole numbers"
        )
        raise HeldError("invariant", f"{detail}; take it out of `columns` and restart the service")
    return column.cast(pa.string())


INVARIANT: type[Invariant] = Plaintext
