"""Evaluates expectations of Great Expectations on the newest rows of a mirror.

The only file that uses Great Expectations; importing it takes seconds, so that waits for the
first round.  Results hold counts and column names, never values.
Cannot see: rows outside its sample; whether a plausible value is the source's value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, ClassVar

from checks.model import FailKind, NotYet, OneOrMore, Outcome, Ruling, Span, Undecided
from checks.run import Probe
from checks.world import World
from pipeline.installed import require
from pipeline.model import Fence, Table

COLUMNS = ("column", "column_A", "column_B", "column_list", "column_set")
COUNTS_ONLY = {"result_format": "SUMMARY", "partial_unexpected_count": 0}


@dataclass(frozen=True, slots=True)
class ExpectationResults:
    """One expectation by its Great Expectations name, with its arguments."""

    type: str
    """Its name, such as `expect_column_values_to_not_be_null`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments by their names."""


@dataclass(frozen=True, slots=True)
class MetExpectations:
    """The result of one expectation; ``met`` is absent when it could not be evaluated."""

    told: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Content:
    """What became of the suite on one sample."""

    rows: int
    results: tuple[MetExpectations, ...]
    as_of: tuple[Fence, ...] = ()

    @property
    def value(self) -> float:
        """Expectations that are not met."""
        return float(sum(each.met is False for each in self.results))


@dataclass(frozen=True, slots=True)
class Expectations:
    """Fail when an expectation of *suite* is not met by the newest *rows* of the mirror."""

    suite: tuple[ExpectationResults, ...] = ()
    rows: OneOrMore = 1000
    limit: Span = timedelta(minutes=2)
    every: ClassVar[timedelta] = timedelta(minutes=15)
    gating: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.SUSPECT

    def __post_init__(self) -> None:
        """Refuse a suite without what evaluates it."""
        if self.suite:
            require("great_expectations")

    def mistakes(self) -> Iterator[str]:
        """Each expectation that cannot be evaluated on any table, behind its key."""
        if not self.suite:
            return
        from great_expectations.exceptions.exceptions import (  # noqa: PLC0415
            GreatExpectationsError,
        )
        from great_expectations.expectations import registry  # noqa: PLC0415  - takes seconds

        known = registry.list_registered_expectation_implementations()
        for number, each in enumerate(self.suite):
            try:
                registry.get_expectation_impl(each.type)(**each.kwargs)
            except (GreatExpectationsError, ValueError, TypeError) as error:
                if each.type in known:
                    said = " ".join(str(error).split())[:200]
                    yield f"suite[{number}].kwargs: do not fit {each.type}: {said}"
                else:
                    close = get_close_matches(each.type, known, n=1)
                    near = f"; the nearest is {close[0]}" if close else ""
                    yield f"suite[{number}].type: no expectation {each.type!r}{near}"

    def measure(self, table: Table, world: World) -> Content | NotYet | Undecided:
        """Evaluate the suite on a sample."""
        if not self.suite:
            return NotYet("no expectations are set for it")
        sample = world.mirror(table).sample(self.rows)
        if not sample:
            return NotYet("the mirror is empty")
        return Content(len(sample), tuple(_evaluated(self.suite, sample)))

    def judge(self, reading: Content, past: Sequence[float]) -> Ruling:
        """FAIL for any that is not met, UNKNOWN if one could not be evaluated."""
        unmet = [each.told for each in reading.results if each.met is False]
        broken = [each.told for each in reading.results if each.met is None]
        if unmet:
            more = f" and {len(unmet) - 1} more" if len(unmet) > 1 else ""
            return Ruling(Outcome.FAIL, f"not met: {unmet[0]}{more}", "not_met")
        if broken:
            return Ruling(Outcome.UNKNOWN, f"could not be evaluated: {broken[0]}", "broken")
        told = f"{len(reading.results)} expectations met by {reading.rows} rows"
        return Ruling(Outcome.PASS, told)


def _evaluated(
    suite: Sequence[ExpectationResults], sample: Sequence[Mapping[str, Any]]
) -> Iterator[MetExpectations]:
    import great_expectations as gx  # noqa: PLC0415  - takes seconds, so only when it is used
    import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415  - comes with it
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415
    from great_expectations.exceptions.exceptions import GreatExpectationsError  # noqa: PLC0415
    from great_expectations.expectations.registry import get_expectation_impl  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("mirror").add_dataframe_asset("sample")
    whole = asset.add_batch_definition_whole_dataframe("newest")
    batch = whole.get_batch({"dataframe": pd.DataFrame(list(sample))})
    for each in suite:
        told = f"{each.type}({', '.join(_columns(each.kwargs))})"
        try:
            expectation = get_expectation_impl(each.type)(**each.kwargs)
        except (GreatExpectationsError, ValueError, TypeError):
            yield MetExpectations(f"{told}: no such expectation, or wrong arguments", None)
            continue
        yield _met(told, batch.validate(expectation, result_format=COUNTS_ONLY))


def _met(told: str, result: Any) -> MetExpectations:
    if _raised(result.exception_info):
        return MetExpectations(f"{told}: it raised an error; do its columns exist?", None)
    unexpected = int(result.result.get("unexpected_count") or 0)
    count = f": {unexpected} of {result.result.get('element_count')} rows" if unexpected else ""
    return MetExpectations(f"{told}{count}", bool(result.success))


def _raised(info: Mapping[str, Any] | None) -> bool:
    """Whether anything was raised; the report is one mapping, or one per metric."""
    known = info or {}
    nested = [each for each in known.values() if isinstance(each, Mapping)]
    return bool(known.get("raised_exception")) or any(map(_raised, nested))


def _columns(kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Names of the columns an expectation is about; other arguments may hold values."""
    for name in COLUMNS:
        found = kwargs.get(name, ())
        yield from [found] if isinstance(found, str) else map(str, found)


PROBE: type[Probe[Content]] = Expectations
