"""Keeps the newest validation results of a table's suites of expectations, for its page.

A result holds what a page shows: each expectation with its arguments, outcome and counts, and the
keys of some unexpected rows. No other value of a row is kept. An observed value is kept only if it
is a count, or a number about at least 10 values, such as a mean.

Results are kept in the memory of the check, so they survive a restart. They are limited to
`MOST_SHOWN` expectations and `LARGEST` bytes. Expectations that are not met are kept first.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

from pipeline.suites import COLUMNS, ExpectationResult, ExpectationSettings, name_columns

MEMORY = "expectations.results"
"""The name in the memory of checks under which the results of a table are kept."""
MOST_SHOWN = 200
LARGEST = 200_000
"""Most bytes of the kept expectations of a validation, as JSON."""
LONGEST_ARGUMENTS, LONGEST_KEY, LONGEST_TEXT = 300, 120, 300
"""Most characters of an expectation's arguments, of a key, and of another text."""
WHOLE, CHANGES = "whole", "changes"
"""Which rows were validated: all, or those that have changed."""


@dataclass(frozen=True, slots=True)
class ShownExpectation:
    """One expectation with its outcome; ``met`` is None if it could not be evaluated, see ``why``.

    ``unexpected`` of ``rows`` do not meet it; ``keys`` names some of them. ``columns`` has at most
    10 columns, and then the number of further ones.
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
        """Number of unexpected rows that ``keys`` does not name."""
        return max(self.unexpected - len(self.keys), 0)


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """One validation of ``rows`` rows: of all, or of those changed after batch ``after``.

    The mirror was applied through ``batch``.  ``left_out`` expectations are not shown.
    """

    at: datetime
    after: int | None
    rows: int
    batch: int
    shown: tuple[ShownExpectation, ...]
    left_out: int = 0

    @property
    def unmet(self) -> int:
        """Number of shown expectations that are not met."""
        return sum(one.met is False for one in self.shown)

    def dumps(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "at": self.at.isoformat()}

    @staticmethod
    def loads(known: Mapping[str, Any]) -> "ValidationResult":
        """Read back what :meth:`dumps` returned.

        Raises:
            ValueError, TypeError, KeyError: it has an unexpected structure.
        """
        numbers = {name: int(known[name]) for name in ("rows", "batch", "left_out")}
        after = None if known["after"] is None else int(known["after"])
        at = datetime.fromisoformat(known["at"])
        if at.tzinfo is None:
            raise ValueError("the instant has no offset")
        shown = tuple(map(_load_shown, known["shown"]))
        return ValidationResult(**{**known, **numbers, "at": at, "after": after, "shown": shown})


def _load_shown(known: Mapping[str, Any]) -> ShownExpectation:
    texts = {name: tuple(map(str, known[name])) for name in ("columns", "keys")}
    numbers = {name: int(known[name]) for name in ("unexpected", "rows")}
    return ShownExpectation(**{**known, **texts, **numbers})


def bound_results(
    suite: Sequence[ExpectationSettings], results: Sequence[ExpectationResult]
) -> tuple[tuple[ShownExpectation, ...], int]:
    """Return the results to keep, and how many are left out; *results* has the order of *suite*."""
    shown = [_show(*pair) for pair in zip(suite, results, strict=True)]
    sizes = [len(json.dumps(asdict(one))) + 2 for one in shown]
    if len(shown) > MOST_SHOWN or sum(sizes) > LARGEST:
        first = sorted(range(len(shown)), key=lambda place: shown[place].met is True)[:MOST_SHOWN]
        fits = accumulate(sizes[place] for place in first)
        shown = [shown[place] for place, size in zip(first, fits, strict=True) if size <= LARGEST]
    return tuple(shown), len(results) - len(shown)


def _show(each: ExpectationSettings, result: ExpectationResult) -> ShownExpectation:
    given = {name: value for name, value in each.kwargs.items() if name not in COLUMNS}
    text = json.dumps(given, default=str, ensure_ascii=False) if given else ""
    why = result.text.partition("): ")[2] if result.met is None else ""
    return ShownExpectation(
        type=_cut(each.type, LONGEST_TEXT),
        columns=tuple(_cut(one, LONGEST_KEY) for one in name_columns(each)),
        arguments=_cut(text, LONGEST_ARGUMENTS),
        severity=result.severity,
        met=result.met,
        unexpected=result.unexpected,
        rows=result.rows,
        observed=_cut(result.observed, LONGEST_KEY),
        keys=tuple(_cut(key, LONGEST_KEY) for key in result.keys),
        why=_cut(why, LONGEST_TEXT),
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def load_results(kept: object) -> tuple[ValidationResult, ...]:
    """Return the newest results of a table, newest first; empty without any.

    A result that cannot be read, for example from another version, is left out.
    """
    found = list(_load_known(kept)) if isinstance(kept, Mapping) else []
    return tuple(sorted(found, key=lambda one: one.at, reverse=True))


def _load_known(kept: Mapping[str, Any]) -> Iterator[ValidationResult]:
    for name in (CHANGES, WHOLE):
        with suppress(AttributeError, KeyError, OverflowError, TypeError, ValueError):
            yield ValidationResult.loads(kept[name])
