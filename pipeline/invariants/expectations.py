"""An invariant: each row meets the critical expectations of suites of Great Expectations.

Expectations about a set of rows (unique values, a mean, a row count, a share by ``mostly``) are not
evaluated, because a slice is not the table. Importing Great Expectations takes seconds in each
process that merges such a table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pipeline.errors import ConfigError, HeldError
from pipeline.installed import require_package
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant
from pipeline.suites import (
    ExpectationSettings,
    find_unmet,
    import_expectations,
    is_share,
    list_column_mistakes,
    list_mistakes,
    list_suites,
    read_suites,
    resolve_suites,
    split_expectations,
)

HOLDING = "an expectation about single rows with `severity: critical` and without `mostly`"
"""What holds a row, for messages."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """Each new row meets ``suite``, and the files of ``suites`` whose pattern matches its table."""

    suite: tuple[ExpectationSettings, ...] = ()
    """Expectations for every table."""
    suites: Mapping[str, str] = field(default_factory=dict)
    """Files of suites, as Great Expectations 1.x exports them, by table or pattern of tables."""
    modules: tuple[str, ...] = ()
    """Full names of modules with expectations of your own."""

    def __post_init__(self) -> None:
        """Reject a config without expectations, and one without the Great Expectations package."""
        require_package("great_expectations")
        if not self.suite and not self.suites:
            raise ConfigError("has no expectations; write `suite`, or files under `suites`")

    def located_from(self, folder: Path) -> "Expectations":
        """Return a copy whose files are relative to *folder*; ConfigError if one is no suite."""
        return replace(self, suites=resolve_suites(self.suites, folder))

    @property
    def holds_any(self) -> bool:
        """Whether any row can be held; true if a module cannot be imported, which is a mistake."""
        try:
            import_expectations(self.modules)
        except ConfigError:
            return True
        return any(_held(one for _, own in self._listed() for one in own))

    def doubts(self) -> Iterator[str]:
        """Yield the fault of suites that can hold no row, as ``key: problem; fix``."""
        yield from self.share_doubts()
        if any(own for _, own in self._listed()) and not self.holds_any:
            key = "suite" if self.suite else "suites"
            yield f"{key}: has no effect without {HOLDING}; add one, or remove the invariant"

    def share_doubts(self) -> Iterator[str]:
        """Yield each critical expectation that holds no row because of its ``mostly``."""
        with suppress(ConfigError):  # which is a mistake, too
            import_expectations(self.modules)
        for at, own in self._listed():
            critical = _critical(own)
            for number, one in enumerate(own):
                if one in critical and is_share(one):
                    what = "holds no row, because a slice does not show the share of all rows"
                    fix = "write 1, or use `severity: warning`"
                    yield f"{at}[{number}].kwargs.mostly: {what}; {fix}"

    def _listed(self) -> Iterator[tuple[str, Sequence[ExpectationSettings]]]:
        """Yield all suites, each after its key."""
        yield "suite", self.suite
        for name in self.suites:
            yield from list_suites(self.suites, name, exactly=True)

    def mistakes(self) -> Iterator[str]:
        """Yield each expectation that cannot be evaluated on any table, as ``key.fault``."""
        return list_mistakes(self.suite, self.suites, self.modules)

    def column_mistakes(self, table: str, columns: Sequence[str]) -> Iterator[str]:
        """Yield the fault of each expectation about a column that the *table* does not have."""
        return list_column_mistakes(self.suite, self.suites, table, columns)

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check each critical expectation about single rows; others are skipped."""
        try:
            import_expectations(self.modules)
            read = (*self.suite, *read_suites(self.suites, intended.table))
        except ConfigError as error:
            raise HeldError("invariant", f"{intended.table}: {error}") from error
        wanted = _held(read)
        if not wanted or not intended.rows.num_rows:
            return
        for text, places in find_unmet(intended.rows, intended.table, wanted):
            if places is None:
                fix = "correct the suite"
                raise HeldError("invariant", f"{intended.table}: {text}; {fix}")
            mask = np.zeros(intended.rows.num_rows, np.bool_)
            mask[list(places)] = True
            yield Breach(f"does not meet {text}", mask if places else None)


def _held(expectations: Iterable[ExpectationSettings]) -> list[ExpectationSettings]:
    """The expectations that hold a row."""
    return [one for one in _critical(expectations) if not is_share(one)]


def _critical(expectations: Iterable[ExpectationSettings]) -> list[ExpectationSettings]:
    single, _ = split_expectations(tuple(expectations))
    return [one for one in single if one.severity == "critical"]


INVARIANT: type[Invariant] = Expectations
