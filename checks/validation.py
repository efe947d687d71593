"""Keeps the newest validation results of a table's suites of expectations, for its page.

A result holds what a page shows: each expectation with its arguments, its outcome, counts, and
keys of some rows that are unexpected. No other value of a row is kept: an observed value only
where it is a count, or a number about at least 10 values, such as a mean.

It is kept in the memory of the check, so it outlives a restart. It is bounded: of more than
`MOST_SHOWN` expectations, those that are not met are kept first.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pipeline.suites import COLUMNS, ExpectationResult, ExpectationSettings, list_columns

MEMORY = "expectations.results"
"""The name in the memory of checks under which the results of a table are kept."""
MOST_SHOWN = 200
LONGEST_ARGUMENTS, LONGEST_KEY, LONGEST_TEXT = 300, 120, 300
"""Characters of the arguments of an expectation, of a key, and of another text."""
WHOLE, CHANGES = "whole", "changes"
"""Which rows a look was at: all, or those that have changed."""


@dataclass(frozen=True, slots=True)
class ShownExpectation:
    """One expectation with its outcome; ``met`` is None where ``why`` it could not be evaluated.

    ``unexpected`` of ``rows`` do not meet it; ``keys`` names some of them.
    """

    type: str
    columns: tuple[str, ...]
    arguments: str
    severity: str
    met: bool | None
    unexpected: int = 0
    rows: int = 0
    observed: str = ""
    keys: tuple[str, ...] = ()
    why: str = ""

    @property
    def unnamed(self) -> int:
        """Unexpected rows that no key names."""
        return max(self.unexpected - len(self.keys), 0)


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """One look at ``rows``: all of them, or those that changed after batch ``after``.

    The mirror had ``batch``.  ``left_out`` expectations are not shown.
    """

    at: datetime
    after: int | None
    rows: int
    batch: int
    shown: tuple[ShownExpectation, ...]
    left_out: int = 0

    @property
    def unmet(self) -> int:
        """Expectations that are not met, of those shown."""
        return sum(one.met is False for one in self.shown)

    def dumps(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "at": self.at.isoformat()}

    @staticmethod
    def loads(known: Mapping[str, Any]) -> "ValidationResult":
        """Read back what :meth:`dumps` returned."""
        shown = (
            ShownExpectation(
                **{**one, "columns": tuple(one["columns"]), "keys": tuple(one["keys"])}
            )
            for one in known["shown"]
        )
        at = datetime.fromisoformat(known["at"])
        return ValidationResult(**{**known, "at": at, "shown": tuple(shown)})


def bound_results(
    suite: Sequence[ExpectationSettings], results: Sequence[ExpectationResult]
) -> tuple[tuple[ShownExpectation, ...], int]:
    """What is kept of *results*, which are in the order of *suite*, and how many are left out."""
    shown = [_show(*pair) for pair in zip(suite, results, strict=True)]
    if len(shown) > MOST_SHOWN:
        bad = [one for one in shown if one.met is not True]
        shown = (bad + [one for one in shown if one.met])[:MOST_SHOWN]
    return tuple(shown), len(results) - len(shown)


def _show(each: ExpectationSettings, result: ExpectationResult) -> ShownExpectation:
    columns = tuple(list_columns(each))
    given = {name: value for name, value in each.kwargs.items() if name not in COLUMNS}
    text = json.dumps(given, default=str, ensure_ascii=False) if given else ""
    why = result.text.partition("): ")[2] if result.met is None else ""
    return ShownExpectation(
        type=_cut(each.type, LONGEST_TEXT),
        columns=tuple(_cut(one, LONGEST_KEY) for one in columns[:MOST_SHOWN]),
        arguments=_cut(text, LONGEST_ARGUMENTS),
        severity=result.severity,
        met=result.met,
        unexpected=result.unexpected,
        rows=result.rows,
        observed=result.observed,
        keys=tuple(_cut(key, LONGEST_KEY) for key in result.keys),
        why=_cut(why, LONGEST_TEXT),
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def load_results(kept: Mapping[str, Any] | None) -> tuple[ValidationResult, ...]:
    """The newest results of a table, that of the newest look first; none if none is kept."""
    found = (
        [ValidationResult.loads(kept[name]) for name in (CHANGES, WHOLE) if name in kept]
        if kept
        else []
    )
    return tuple(sorted(found, key=lambda one: one.at, reverse=True))
