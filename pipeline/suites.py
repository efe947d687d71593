"""Reads suites of Great Expectations, and evaluates them on rows.

This is the only module that uses Great Expectations. Its import takes seconds, so it is delayed
until the first suite. Results hold counts, names of columns and keys of rows, never other values.

Times are in UTC without a zone, because Great Expectations reads a time in a suite so. An
expectation about single rows can be evaluated on some rows alone. One about a set of rows (unique
values, a mean, a row count) cannot: `split_expectations` separates them.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from textwrap import shorten
from threading import Lock
from typing import Any, Literal, cast, get_origin

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.comparisons import (
    Columns,
    IncomparableError,
    TextMatch,
    Verdict,
    WholeVerdict,
    fit_values,
    list_patterns,
    plan_comparison,
    plan_match,
)
from pipeline.errors import ConfigError, describe_half_pair
from pipeline.files.layout import FileStamp
from pipeline.model import Op, Shard, Table
from pipeline.patterns import explain_different, explain_unreadable
from pipeline.row_conditions import (
    list_condition_columns,
    require_comparisons,
    require_plain_condition,
)

SLUICE = "_sluice"
MOST_KEYS = 20  # rows that one result names
MOST_COLUMNS = 10  # columns that one result names
MOST_LEVELS = 100  # of mappings and lists in the arguments of an expectation
MOST_FILES = 1_000  # suites that are cached
MOST_BYTES = 16 << 20  # of the file of a suite
MATCH_JSON_SCHEMA = "expect_column_values_to_match_json_schema"
JSON_METRICS = tuple(
    f"great_expectations.expectations.metrics.column_map_metrics.column_values_{name}"
    for name in ("match_json_schema", "json_parseable")
)
CAUSES = {
    "TooManyReferencesError": "a value follows too many `$ref`s of its json_schema; where several"
    " parts of an `allOf`, `anyOf` or `oneOf` have a `$ref` for the same property, keep one",
    "TooManyDigitsError": "a value has a number of more digits than Python reads; exclude it with a"
    " row_condition",
    "RecursionError": "a value is nested too deeply; exclude it with a row_condition",
}
"""Name of an error -> the explanation for an expectation that raised it."""
COLUMNS = ("column", "column_A", "column_B", "column_list", "column_set")
ABOUT_NAMES = ("expect_column_to_exist", "expect_table_columns_")
NEED_ALL_ROWS = frozenset(
    {
        "expect_column_value_z_scores_to_be_less_than",
        "expect_column_values_to_be_decreasing",
        "expect_column_values_to_be_in_type_list",
        "expect_column_values_to_be_increasing",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_unique",
        "expect_column_values_to_not_be_outliers",
        "expect_compound_columns_to_be_unique",
        "expect_multicolumn_values_to_be_unique",
    }
)
"""Expectations by row that compare it with the others, or are about the type of the column."""
NEED_DATABASE = frozenset(
    {
        "expect_column_values_to_match_like_pattern",
        "expect_column_values_to_match_like_pattern_list",
        "expect_column_values_to_not_match_like_pattern",
        "expect_column_values_to_not_match_like_pattern_list",
        "expect_query_results_to_match_comparison",
        "expect_table_row_count_to_equal_other_table",
    }
)
"""Expectations that neither pandas nor Spark evaluates."""
NEED_MEMORY = "expect_column_values_to_be_dateutil_parseable"
"""The expectation that Spark does not evaluate."""
PLACES = {"result_format": "COMPLETE"}  # for rows in memory; asking for keys would cost more
COUNTS = {"result_format": "BASIC", "partial_unexpected_count": 0}
ROWS = {
    "result_format": "BASIC",  # any other collects all values, or all keys
    "partial_unexpected_count": MOST_KEYS,
    "include_unexpected_rows": True,
}
COUNTING = (
    *("expect_table_row_count_to_", "expect_table_column_count_to_"),
    *("expect_column_unique_value_count_to_", "expect_column_proportion_of_"),
)
"""Expectations whose observed value is a number or proportion, of however few rows."""
SUMMING = ("expect_column_mean_to_", "expect_column_stdev_to_", "expect_column_sum_to_")
"""Expectations whose observed value is that of a row, if only one row has a value."""
FEWEST_VALUES = 10
"""Values of a column below which its mean, sum or deviation is not shown."""
Severity = Literal["critical", "warning", "info"]
logging.getLogger("great_expectations").setLevel(logging.WARNING)  # its import logs much
_context_lock = Lock()
"""Held while a context is made: Great Expectations returns the newest one of the process.

It is never held during an evaluation, so a long or hanging one delays no other. Each batch uses
the context that it was made in (Great Expectations 1.24).
"""


@dataclass(frozen=True, slots=True)
class ExpectationSettings:
    """One expectation by its Great Expectations name, with its arguments."""

    type: str
    """Its name, such as `expect_column_values_to_not_be_null`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments by their names."""
    severity: Severity = "critical"
    """`info`: an unmet one is only mentioned; `warning`: it fails, and holds no image."""


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """One expectation on some rows; ``met`` is None if it could not be evaluated.

    ``keys`` names at most 20 of the ``unexpected`` of ``rows``. Rows of an expectation about a set
    of rows are not counted. ``observed`` is a count, or a number about at least 10 values; never a
    value of one row, and nothing about rows of a condition.
    """

    text: str
    met: bool | None
    severity: Severity = "critical"
    unexpected: int = 0
    keys: tuple[str, ...] = ()
    rows: int = 0
    observed: str = ""


@dataclass(frozen=True, slots=True)
class SuiteLook:
    """A request to Spark to evaluate a suite on a version of the mirror of ``table``.

    It evaluates the rows that changed after batch ``after``, or all if that is None. ``batch`` is
    the one that the version is applied through. ``state`` is the prober's identification of suite
    and rows.
    """

    table: Table
    version: int
    batch: int
    after: int | None
    state: str
    expectations: tuple[ExpectationSettings, ...]
    modules: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Equal for requests at a later version that answer the same question."""
        return self.table.name, self.state, self.after


@dataclass(frozen=True, slots=True)
class SuiteAnswer:
    """Spark's results: ``rows`` rows were evaluated, in the version of batch ``batch``."""

    batch: int
    rows: int
    results: tuple[ExpectationResult, ...]


_files: dict[str, tuple[FileStamp, tuple[ExpectationSettings, ...]]] = {}
_files_lock = Lock()


def read_suite(path: str) -> tuple[ExpectationSettings, ...]:
    """Read a suite that Great Expectations 1.x exported (`ExpectationSuite.to_json_dict()`).

    The same object is returned until the file is written again.

    Raises:
        ConfigError: the file is missing, is not JSON, or is not a suite; names the position.
    """
    try:
        status = Path(path).stat()
        stamp = FileStamp.of(status)
        with _files_lock:
            known = _files.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        if not S_ISREG(status.st_mode) and not S_ISDIR(status.st_mode):
            raise ConfigError(f"{path}: is a pipe or a device; name a file")  # it may never end
        if stamp.size > MOST_BYTES:
            fix = "divide it into smaller suites"
            raise ConfigError(f"{path}: is above {MOST_BYTES >> 20} MiB; {fix}")
        text = Path(path).read_text(encoding="utf-8")
        is_whole = FileStamp.of(Path(path).stat()) == stamp
    except (OSError, ValueError) as error:
        other = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        why = getattr(error, "strerror", None) or other
        raise ConfigError(f"{path}: cannot be read: {why}; correct the path") from error
    try:
        suite = json.loads(text)
    except ValueError as error:
        at = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        where = f"line {at[0]}, column {at[1]}"
        fix = "write `json.dumps(suite.to_json_dict())` there"
        raise ConfigError(f"{path}: {where}: is not JSON; {fix}") from error
    except RecursionError as error:
        fix = "write `json.dumps(suite.to_json_dict())` there"
        raise ConfigError(f"{path}: is nested too deeply for a suite; {fix}") from error
    listed = suite.get("expectations") if isinstance(suite, Mapping) else None
    if not isinstance(listed, list):
        fix = "export it with `ExpectationSuite.to_json_dict()`"
        raise ConfigError(f"{path}: expectations: must be a list; {fix}")
    found = tuple(_exported(one, f"{path}: expectations[{n}]") for n, one in enumerate(listed))
    if is_whole:
        with _files_lock:
            if len(_files) >= MOST_FILES:
                _files.clear()
            _files[path] = stamp, found
    return found


def _exported(one: Any, at: str) -> ExpectationSettings:
    entry = one if isinstance(one, Mapping) else {}
    if "expectation_type" in entry:
        raise ConfigError(
            f"{at}: has `expectation_type`, as Great Expectations 0.x wrote it; export the suite "
            "with 1.x"
        )
    kind, kwargs = entry.get("type"), entry.get("kwargs", {})
    if not isinstance(kind, str) or not isinstance(kwargs, Mapping):
        raise ConfigError(f"{at}: must have `type`, a text, and `kwargs`, a mapping")
    if fault := describe_half_pair(json.dumps([kind, kwargs], ensure_ascii=False)):
        raise ConfigError(f"{at}: {fault}")
    severity = entry.get("severity", "critical")
    if severity not in ("critical", "warning", "info"):
        raise ConfigError(f"{at}.severity: must be critical, warning or info")
    return ExpectationSettings(kind, kwargs, severity)


def resolve_suites(suites: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return *suites* (pattern -> path) with paths relative to *folder*.

    Raises:
        ConfigError: a file is missing, or is not a suite; a pattern is empty.
    """
    found = dict[str, str]()
    for name, path in suites.items():
        if not name.strip():
            raise ConfigError(f"suites: the name before {path} is empty; write a table's name")
        try:
            found[name] = str(folder / Path(path).expanduser())
        except RuntimeError as error:
            why = "the home directory of that user is not known"
            raise ConfigError(f"suites: {name}: {path}: {why}; write the full path") from error
    for name in found:
        tuple(list_suites(found, name, exactly=True))
    return found


def list_suites(
    suites: Mapping[str, str], table: str, *, exactly: bool = False
) -> Iterator[tuple[str, tuple[ExpectationSettings, ...]]]:
    """Yield the suites for *table*, each with its key and path; *exactly*: the one of that key.

    Raises:
        ConfigError: a file is missing, or is not a suite.
    """
    for name, path in suites.items():
        if name == table if exactly else fnmatchcase(table, name):
            try:
                yield f"suites: {name}: {path}: expectations", read_suite(path)
            except ConfigError as error:
                raise ConfigError(f"suites: {name}: {error}") from error


def read_suites(suites: Mapping[str, str], table: str) -> tuple[ExpectationSettings, ...]:
    """Return all expectations of *table*; ConfigError as in `list_suites`."""
    return tuple(one for _, suite in list_suites(suites, table) for one in suite)


def import_expectations(modules: Sequence[str]) -> None:
    """Import modules with expectations of the user; each registers itself on import.

    Raises:
        ConfigError: a module cannot be imported.
    """
    for name in modules:
        try:
            import_module(name)
        except (
            Exception,
            SystemExit,
        ) as error:  # user code may raise anything
            why = f"its import fails: {type(error).__name__}: {error}"
            fix = "put its folder on PYTHONPATH, or fix the module"
            raise ConfigError(f"modules: {name}: {why}; {fix}") from error


def list_mistakes(
    suite: Sequence[ExpectationSettings], suites: Mapping[str, str], modules: Sequence[str]
) -> Iterator[str]:
    """Yield the fault of each expectation that cannot be evaluated on any table, after its key."""
    try:
        import_expectations(modules)
    except ConfigError as error:
        yield str(error)
        return
    for number, fault in find_mistakes(suite):
        yield f"suite[{number}].{fault}"
    for name in suites:
        for at, expectations in list_suites(suites, name, exactly=True):
            for number, fault in find_mistakes(expectations):
                yield f"{at}[{number}].{fault}"


def list_column_mistakes(
    suite: Sequence[ExpectationSettings],
    suites: Mapping[str, str],
    table: str,
    columns: Sequence[str],
) -> Iterator[str]:
    """Yield the fault of each expectation about an unknown column of *table*, after its key."""
    for at, expectations in (("suite", suite), *list_suites(suites, table)):
        for number, fault in find_strange_columns(expectations, columns):
            yield f"{at}[{number}].kwargs: {table} {fault}"


def find_mistakes(
    expectations: Sequence[ExpectationSettings],
) -> Iterator[tuple[int, str]]:
    """Yield the number and the fault of each expectation that cannot be evaluated on any table."""
    for number, each in enumerate(expectations):
        if fault := _unfit(each) or _explain_condition(each):
            yield number, fault


def find_strange_columns(
    expectations: Sequence[ExpectationSettings], columns: Sequence[str]
) -> Iterator[tuple[int, str]]:
    """Yield the number and the fault of each expectation about another column than *columns*."""
    for number, each in enumerate(expectations):
        if each.type.startswith(ABOUT_NAMES):
            continue  # its purpose is to fail without the column
        named = [(name, "") for name in list_columns(each)]
        named += [(name, ", which row_condition names") for name in _list_compared(each)]
        for name, where in named:
            if name not in columns:
                close = get_close_matches(name, columns, n=1)
                near = f"; the nearest is {close[0]}" if close else ""
                yield number, f"has no column {name!r}{where}{near}; correct it"


def _list_compared(each: ExpectationSettings) -> tuple[str, ...]:
    """The columns of its row condition; none of one that is refused."""
    if _explain_condition(each):
        return ()
    return tuple(dict.fromkeys(list_condition_columns(each.kwargs.get("row_condition"))))


def _unfit(each: ExpectationSettings, *, by_spark: bool = True) -> str:
    """Why no expectation can be built from it; empty if one can.

    With *by_spark*, a regular expression that Spark reads differently from memory is a fault, too.
    """
    from great_expectations.exceptions.exceptions import (  # noqa: PLC0415
        GreatExpectationsError,
    )
    from great_expectations.expectations import registry  # noqa: PLC0415  - takes seconds

    if fault := _unsupported(each):
        return fault
    try:
        built = _build_expectation(each)
    except (GreatExpectationsError, ValueError, TypeError, OverflowError) as error:
        known = registry.list_registered_expectation_implementations()
        if each.type in known:
            return f"kwargs: do not fit {each.type}: {_explain_arguments(error, each)}; correct it"
        close = get_close_matches(each.type, known, n=1)
        near = f"; the nearest is {close[0]}" if close else ""
        return f"type: no expectation {each.type!r}{near}"
    least, most = each.kwargs.get("min_value"), each.kwargs.get("max_value")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        return "kwargs: min_value is above max_value; correct them"
    return _explain_forms(each, built) or _explain_patterns(each, by_spark=by_spark)


def _explain_forms(each: ExpectationSettings, built: Any) -> str:
    """The fault of an argument that Great Expectations accepts, and cannot evaluate."""
    if each.type == "expect_column_quantile_values_to_be_between":
        if _are_quantile_ranges(each.kwargs.get("quantile_ranges")):
            return ""
        form = "`{quantiles: [0.5], value_ranges: [[1, 9]]}`, with a range for each quantile"
        return f"kwargs.quantile_ranges: must be {form}; correct it"
    if each.type == "expect_column_kl_divergence_to_be_less_than":
        if each.kwargs.get("partition_object") is None:
            what = "is missing, and the column would be compared with itself"
            return f"kwargs.partition_object: {what}; write `bins` or `values`, and `weights`"
        if not _is_partition(each.kwargs["partition_object"]):
            what = "must have `values` and as many `weights`, or increasing `bins` and one"
            return f"kwargs.partition_object: {what} weight fewer, and a sum of 1; correct it"
    return _explain_mapping(each, built)


def _explain_mapping(each: ExpectationSettings, built: Any) -> str:
    """The fault of an argument that became a mapping, and should be another value.

    Great Expectations takes any mapping for a suite parameter, and makes one of some lists.
    """
    if not type(built).__module__.startswith("great_expectations."):
        return ""
    for name in each.kwargs:
        kinds = [
            one.outer_type_ for one in getattr(built.__fields__.get(name), "sub_fields", ()) or ()
        ]
        if dict in kinds and isinstance(getattr(built, name), dict):
            is_list = any(get_origin(one) is list or one in (list, set) for one in kinds)
            form = "a list of pairs" if name == "value_pairs_set" else "a list"
            return f"kwargs.{name}: must be {form if is_list else 'one value'}; correct it"
    return ""


def _are_quantile_ranges(value: Any) -> bool:
    known = value if isinstance(value, Mapping) else {}
    quantiles, ranges = known.get("quantiles"), known.get("value_ranges")
    if not isinstance(quantiles, list | tuple) or not isinstance(ranges, list | tuple):
        return False
    are_pairs = all(isinstance(one, list | tuple) and len(one) == 2 for one in ranges)
    are_shares = all(isinstance(one, int | float) and 0 <= one <= 1 for one in quantiles)
    if not quantiles or len(quantiles) != len(ranges) or not are_pairs or not are_shares:
        return False
    bounds = [one for one in ranges if all(isinstance(each, int | float) for each in one)]
    return all(least <= most for least, most in bounds)


def _is_partition(value: Any) -> bool:
    from great_expectations.execution_engine.util import (  # noqa: PLC0415
        is_valid_partition_object,
    )

    try:
        return bool(is_valid_partition_object(value))
    except (TypeError, ValueError):
        return False


def _unsupported(each: ExpectationSettings) -> str:
    """What Great Expectations accepts in it, and Sluice does not; empty if nothing."""
    for name, value in each.kwargs.items():
        if isinstance(value, Mapping) and "$PARAMETER" in value:
            return f"kwargs.{name}: is a suite parameter, and there are none; write its value"
    query = each.kwargs.get("unexpected_rows_query")
    if isinstance(query, str) and "{batch}" not in query:
        return "kwargs.unexpected_rows_query: reads no mirror; write FROM {batch}"
    if each.type in NEED_DATABASE:
        fix = "write a regular expression" if "_like_" in each.type else "leave it out"
        return f"type: {each.type} needs an SQL database, which a mirror is not; {fix}"
    if _is_nested_deeper(each.kwargs, MOST_LEVELS):
        return f"kwargs: are nested in more than {MOST_LEVELS} levels; write them with fewer"
    return ""


def _is_nested_deeper(value: Any, levels: int) -> bool:
    at = [value]
    for _ in range(levels):
        listed = [one.values() if isinstance(one, Mapping) else one for one in at]
        below = {id(one): one for each in listed for one in each}
        at = [one for one in below.values() if isinstance(one, Mapping | list | tuple)]
    return bool(at)


def _explain_condition(each: ExpectationSettings) -> str:
    """The fault of its row condition; empty without one."""
    try:
        require_comparisons(each.kwargs.get("row_condition"))
    except IncomparableError as error:
        return f"kwargs: {error}"
    return ""


def _explain_arguments(error: Exception, each: ExpectationSettings) -> str:
    """The wrong arguments, each once, although the library reports each type of a union."""
    found = dict[str, str]()
    for one in error.errors() if hasattr(error, "errors") else ():
        name, kind, said = str(one["loc"][0]), str(one["type"]), str(one["msg"]).rstrip(".")
        if kind == "value_error.missing":
            said = f"{name} is required"
        elif kind == "value_error.extra":
            known = sorted(getattr(_find_kind(each.type), "__fields__", ()))
            close = get_close_matches(name, known, n=1)
            said = f"{name} is unknown" + (f" (the nearest is {close[0]})" if close else "")
        elif name in each.kwargs and not said.startswith(name):
            said = f"{name}: {said}"
        found.setdefault(name, said)
    return ", ".join(found.values()) or shorten(str(error), 200, placeholder=" ...")


def _explain_patterns(each: ExpectationSettings, *, by_spark: bool) -> str:
    """The fault of its regular expressions; empty without one."""
    name = "regex_list" if each.type.endswith("_list") else "regex"
    is_match = each.type.endswith(("_match_regex", "_match_regex_list"))
    if is_match and each.kwargs.get(name) in (None, []):
        return f"kwargs.{name}: is empty; name a regular expression"
    patterns: Iterable[str] = list_patterns(each.type, each.kwargs)
    if each.type == MATCH_JSON_SCHEMA:
        from pipeline.json_schema import (  # noqa: PLC0415  - needs jsonschema
            list_schema_patterns,
            require_own_references,
            require_schema,
        )

        name = "json_schema"
        try:
            require_own_references(each.kwargs.get("json_schema"))
            require_schema(each.kwargs.get("json_schema"))
            patterns = list(list_schema_patterns(each.kwargs.get("json_schema")))
        except ValueError as error:
            return f"kwargs.{name}: has {error}"
    for one in patterns:
        why = explain_unreadable(one)
        if by_spark and not why and name != "json_schema":  # RE2 evaluates those in Spark, too
            why = explain_different(one)
        if why:
            return f"kwargs.{name}: {why}"
    return ""


def _build_expectation(each: ExpectationSettings) -> Any:
    from great_expectations.expectations.expectation_configuration import (  # noqa: PLC0415
        ExpectationConfiguration,
    )

    made = ExpectationConfiguration(
        type=each.type, kwargs=dict(each.kwargs), severity=each.severity
    )
    return made.to_domain_obj()


def list_columns(each: ExpectationSettings) -> Iterator[str]:
    """Names of the columns an expectation is about; other arguments may hold values."""
    for name in COLUMNS:
        found = each.kwargs.get(name) or ()
        is_list = isinstance(found, Iterable) and not isinstance(found, str)
        yield from map(str, found if is_list else [found])


def list_read_columns(
    expectations: Iterable[ExpectationSettings], key: Iterable[str]
) -> frozenset[str] | None:
    """Return the columns that *expectations* read, and those of the *key*, which names rows.

    None if they may read others: those about a whole table, and those of your own.
    """
    found = {*key}
    for each in expectations:
        if not _reads_named_columns(each):
            return None
        found |= {*list_columns(each), *_list_compared(each)}
    return frozenset(found)


def _reads_named_columns(each: ExpectationSettings) -> bool:
    """Whether it reads no other columns than those that it names."""
    from great_expectations.expectations import core  # noqa: PLC0415  - takes seconds
    from great_expectations.expectations.expectation import (  # noqa: PLC0415
        ColumnAggregateExpectation,
    )

    kind = _find_kind(each.type)
    if kind is None or not kind.__module__.startswith(f"{core.__name__}."):
        return False
    if "result_format" in each.kwargs or _explain_condition(each):  # these may name other columns
        return False
    return _is_map(each.type) or issubclass(kind, ColumnAggregateExpectation)


def split_expectations(
    expectations: Sequence[ExpectationSettings],
) -> tuple[tuple[ExpectationSettings, ...], tuple[ExpectationSettings, ...]]:
    """Return the expectations about single rows, and those about a set of rows."""
    single = [one for one in expectations if _is_about_rows(one.type)]
    return tuple(single), tuple(one for one in expectations if one not in single)


def explain_spark_need(expectations: Iterable[ExpectationSettings]) -> str:
    """Why only Spark can evaluate *expectations*; empty if memory can do it as well."""
    from great_expectations.expectations.core import (  # noqa: PLC0415
        UnexpectedRowsExpectation,
    )

    kinds = ((one.type, _find_kind(one.type)) for one in expectations)
    own = (name for name, kind in kinds if kind and issubclass(kind, UnexpectedRowsExpectation))
    return next((f"{name} has a query" for name in own), "")


def is_share(each: ExpectationSettings) -> bool:
    """Whether some of all rows may not meet it (``mostly``, also by the default of its class)."""
    if "mostly" in each.kwargs:
        return bool(each.kwargs["mostly"] != 1)
    own = getattr(_find_kind(each.type), "__fields__", {}).get("mostly")
    return own is not None and bool(own.get_default() != 1)


def _is_about_rows(name: str) -> bool:
    """Whether an expectation of that *name* can be evaluated on some rows alone."""
    kind = _find_kind(name)
    names = {getattr(one, "expectation_type", "") for one in kind.__mro__} if kind else set()
    return kind is None or (_is_map(name) and not names & NEED_ALL_ROWS)


def _is_map(name: str) -> bool:
    """Whether it checks each row, alone or compared with others."""
    from great_expectations.expectations.expectation import (  # noqa: PLC0415
        ColumnMapExpectation,
        ColumnPairMapExpectation,
        MulticolumnMapExpectation,
    )

    maps = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
    kind = _find_kind(name)
    return kind is not None and issubclass(kind, maps)


def _find_kind(name: str) -> type | None:
    from great_expectations.exceptions.exceptions import (  # noqa: PLC0415
        ExpectationNotFoundError,
    )
    from great_expectations.expectations.registry import get_expectation_impl  # noqa: PLC0415

    try:
        return cast("type", get_expectation_impl(name))
    except ExpectationNotFoundError:
        return None


def evaluate_by_spark(every: Any, look: SuiteLook) -> SuiteAnswer:
    """Evaluate a suite on *every* row of a mirror, a Spark frame; its rows stay in Spark.

    At most 20 rows of each unmet expectation are collected, to name them.
    """
    import_expectations(look.modules)
    if SLUICE in every.columns:
        every = every.where(f"coalesce({SLUICE}.op, '') <> '{Op.DELETE}'")  # no archived rows
        if look.after is not None:
            every = every.where(f"{SLUICE}.batch > {int(look.after)}")
        shard = [f"{SLUICE}.{name} AS {SLUICE}_{name}" for name in ("source", "shard")]
        named = every.selectExpr("*", *shard).drop(SLUICE)
    else:
        named = every
    plain = every.drop(SLUICE)
    results = tuple(_by_spark(look, plain, named))
    return SuiteAnswer(look.batch, plain.count(), results)


def _by_spark(look: SuiteLook, plain: Any, named: Any) -> Iterator[ExpectationResult]:
    """Count in one validation of each kind, so that Spark reads the rows as rarely as possible."""
    asked = _ask_all(look.expectations, _spark_types(plain), by_pandas=False)
    done = {
        one.number: one.verdict.evaluate_by_spark(plain)
        for one in asked
        if isinstance(one.verdict, WholeVerdict)
    }
    exact = [one for one in asked if isinstance(one.verdict, Verdict)]
    added = [
        f"{one.verdict.sql} AS `{one.column}`" for one in exact if isinstance(one.verdict, Verdict)
    ]
    for some, frame in (
        (exact, plain.selectExpr("*", *added)),
        ([one for one in asked if not one.why and not one.verdict], plain),
    ):
        if some:
            batch = _spark_batch(look.table, frame)
            found = _validate_all(batch, [one.settings for one in some])
            done.update(zip((one.number for one in some), found, strict=True))
    named = named.selectExpr("*", *added)
    wide = _find_wide_columns(asked, partial(_count_by_spark, plain))
    for one in asked:
        yield _concluded(one, done.get(one.number), partial(_keys, look, named, one), wide)


def _count_by_spark(frame: Any, columns: Sequence[str]) -> Sequence[int]:
    """The number of values of each of *columns*, counted in one query."""
    quoted = (name.replace("`", "``") for name in columns)
    return tuple(frame.selectExpr(*(f"count(`{name}`)" for name in quoted)).first())


def _spark_types(frame: Any) -> dict[str, pa.DataType]:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415  - only where Spark is

    return {
        one.name: pa.timestamp("us", "UTC")
        if one.dataType.typeName() == "timestamp"
        else to_arrow_type(one.dataType)
        for one in frame.schema
    }


def _spark_batch(table: Table, frame: Any) -> Any:
    source = _new_context().data_sources.add_spark("mirror", persist=False)
    source._spark = frame.sparkSession  # or it would ask for a session with settings of its own
    asset = source.add_dataframe_asset(table.name)
    return asset.add_batch_definition_whole_dataframe("rows").get_batch({"dataframe": frame})


def _validate_all(batch: Any, expectations: Iterable[ExpectationSettings]) -> list[Any]:
    """Results in the order of *expectations*, without a value of a row."""
    import great_expectations as gx  # noqa: PLC0415

    built = [_build_expectation(each) for each in expectations]
    for number, one in enumerate(built):
        one.meta = {"number": number}
    suite = gx.ExpectationSuite(name="suite", expectations=built)
    found = batch.validate(suite, result_format=COUNTS)
    return sorted(found.results, key=lambda one: one.expectation_config.meta["number"])


def _keys(look: SuiteLook, named: Any, one: "Asked", _: object) -> Iterator[str]:
    """Names of some rows that do not meet an expectation about single rows."""
    if not look.table.key or not _is_map(one.settings.type):
        return
    batch = _spark_batch(look.table, named)
    result = batch.validate(_build_expectation(one.settings), result_format=ROWS)
    for row in (result.result.get("unexpected_rows") or ())[:MOST_KEYS]:
        shard = {name: row.get(f"{SLUICE}_{name}") for name in ("source", "shard")}
        yield name_row(look.table, {**row, SLUICE: shard if shard["shard"] else None})


@dataclass(frozen=True, slots=True)
class Asked:
    """How the expectation ``each`` is evaluated: by its engine, unless there is a ``verdict``.

    A verdict about rows is a column of booleans, which an expectation of the engine counts. ``why``
    is the reason if neither can evaluate it correctly.
    """

    number: int
    each: ExpectationSettings
    verdict: Verdict | WholeVerdict | TextMatch | None = None
    why: str = ""

    @property
    def column(self) -> str:
        """The name of the column of its verdicts."""
        return f"{SLUICE}_met_{self.number}"

    @property
    def settings(self) -> ExpectationSettings:
        """The expectation that the engine evaluates."""
        if not isinstance(self.verdict, Verdict | TextMatch):
            return self.each
        kept = ("mostly", "row_condition", "condition_parser")
        kwargs = {name: self.each.kwargs[name] for name in kept if name in self.each.kwargs}
        kwargs |= {"column": self.column, "value_set": [True]}
        return replace(self.each, type="expect_column_values_to_be_in_set", kwargs=kwargs)


def _ask_all(
    expectations: Sequence[ExpectationSettings],
    types: Mapping[str, pa.DataType],
    *,
    by_pandas: bool,
) -> tuple[Asked, ...]:
    return tuple(
        _ask(number, each, types, by_pandas=by_pandas) for number, each in enumerate(expectations)
    )


def _ask(
    number: int, each: ExpectationSettings, types: Mapping[str, pa.DataType], *, by_pandas: bool
) -> Asked:
    plain = {name: type_ for name, type_ in types.items() if name != SLUICE}
    if not plain.keys() >= set(_list_compared(each)):
        return Asked(number, each, why="its row_condition names an unknown column; correct it")
    if why := _unfit(each, by_spark=not by_pandas):
        return Asked(number, each, why=why)
    if each.type == NEED_MEMORY and not by_pandas:
        fix = "use expect_column_values_to_match_strftime_format, or increase `rows` of the check"
        return Asked(number, each, why=f"Spark does not evaluate it; {fix}")
    if list(find_strange_columns([each], list(plain))):
        return Asked(number, each, why="it names an unknown column; correct it")
    try:
        condition = each.kwargs.get("row_condition")
        if by_pandas:
            require_plain_condition(condition, Columns(plain))
        require_comparisons(condition)
        verdict: Verdict | WholeVerdict | TextMatch | None
        verdict = plan_comparison(each.type, each.kwargs, Columns(plain))
        if by_pandas and verdict is None:  # pandas runs many by Python's `re`, which may never end
            verdict = plan_match(each.type, each.kwargs)
        each = replace(each, kwargs=fit_values(each.type, each.kwargs, Columns(plain)))
    except IncomparableError as error:
        return Asked(number, each, why=str(error))
    return Asked(number, each, verdict)


def evaluate_rows(
    rows: pa.Table, table: Table, expectations: Sequence[ExpectationSettings]
) -> tuple[ExpectationResult, ...]:
    """Evaluate each expectation on *rows* in memory, by the pandas engine."""

    def keys(result: Mapping[str, Any]) -> Iterator[str]:
        for place in islice(_places(result), MOST_KEYS):
            yield name_row(table, rows.slice(place, 1).to_pylist()[0])

    found = tuple(_by_pandas(rows, table.name, expectations))
    wide = _find_wide_columns([one for one, _ in found], partial(_count_values, rows))
    return tuple(_concluded(one, result, keys, wide) for one, result in found)


def _count_values(rows: pa.Table, columns: Sequence[str]) -> Sequence[int]:
    """The number of values of each of *columns*, without NaN, which pandas ignores."""
    return [
        pc.sum(pc.invert(rows[name].is_null(nan_is_null=True))).as_py() or 0 for name in columns
    ]


def _find_wide_columns(
    asked: Iterable[Asked], count: Callable[[Sequence[str]], Sequence[int]]
) -> frozenset[str]:
    """Columns that have enough values for their mean, sum or deviation to be shown."""
    summed = (one.each for one in asked if one.each.type.startswith(SUMMING) and not one.why)
    names = sorted({name for each in summed for name in list_columns(each)})
    counts = count(names) if names else ()
    return frozenset(
        name for name, rows in zip(names, counts, strict=True) if rows >= FEWEST_VALUES
    )


def find_unmet(
    rows: pa.Table, table: str, expectations: Sequence[ExpectationSettings]
) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """Yield each unmet expectation about single rows with the indexes of the failing rows.

    None instead of indexes: it could not be evaluated. No indexes: it does not report which rows.
    """
    for one, result in tuple(_by_pandas(rows, table, expectations)):
        own = _concluded(one, result, lambda _: iter(()))
        if own.met is None:
            yield own.text, None
        elif not own.met and result is not None:
            yield own.text, tuple(_places(result.result))


def _by_pandas(
    rows: pa.Table, name: str, expectations: Sequence[ExpectationSettings]
) -> Iterator[tuple[Asked, Any | None]]:
    """Yield each with its result: a report of Great Expectations, a boolean, or None."""
    asked = _ask_all(expectations, {one.name: one.type for one in rows.schema}, by_pandas=True)
    exact = [one for one in asked if isinstance(one.verdict, Verdict | TextMatch)]
    conditional = any(one.each.kwargs.get("row_condition") for one in exact)
    verdicts = {
        one.column: one.verdict.evaluate(rows)
        for one in exact
        if isinstance(one.verdict, Verdict | TextMatch)
    }
    beside = {one: rows[one] for one in rows.column_names if conditional}
    judged = pa.table({**beside, **verdicts})
    batches = {True: _pandas_batch(judged, name)} if exact else {}
    if any(one.verdict is None and not one.why for one in asked):
        batches[False] = _pandas_batch(rows, name)
    for one in asked:
        if one.why:
            yield one, None
        elif isinstance(one.verdict, WholeVerdict):
            yield one, one.verdict.evaluate(rows)
        else:
            batch = batches[one.verdict is not None]
            yield one, batch.validate(_build_expectation(one.settings), result_format=PLACES)


def _pandas_batch(rows: pa.Table, name: str) -> Any:
    asset = _new_context().data_sources.add_pandas("mirror").add_dataframe_asset(name)
    whole = asset.add_batch_definition_whole_dataframe("rows")
    return whole.get_batch({"dataframe": make_frame(rows)})


def _places(result: Mapping[str, Any]) -> Iterator[int]:
    """Indexes of the rows in memory that do not meet an expectation."""
    yield from map(int, result.get("unexpected_index_list") or ())


def _concluded(
    one: Asked,
    result: Any,
    keys: Callable[[Mapping[str, Any]], Iterator[str]],
    wide: frozenset[str] = frozenset(),
) -> ExpectationResult:
    """Build the result from the engine's *result*; columns in *wide* have many values."""
    text, severity = name_expectation(one.each), one.each.severity
    if one.why:
        return ExpectationResult(f"{text}: {one.why}", None, severity)
    if isinstance(result, bool):
        return ExpectationResult(text, result, severity)
    if _raised(result.exception_info):
        info = str(result.exception_info)
        why = "it raised an error; do its columns exist, and do their types fit?"
        why = next((cause for name, cause in CAUSES.items() if name in info), why)
        return ExpectationResult(f"{text}: {why}", None, severity)
    unexpected = int(result.result.get("unexpected_count") or 0)
    count = f": {unexpected} of {result.result.get('element_count')} rows" if unexpected else ""
    met = bool(result.success)
    named = () if met else tuple(keys(result.result))
    rows = int(result.result.get("element_count") or 0)
    observed = _observed(one.each, result.result.get("observed_value"), wide)
    return ExpectationResult(f"{text}{count}", met, severity, unexpected, named, rows, observed)


def _observed(each: ExpectationSettings, value: object, wide: frozenset[str]) -> str:
    """The *value* as a number, if it cannot be a row's value, as a minimum or a median may be."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or each.kwargs.get("row_condition"):
        return ""
    summed = each.type.startswith(SUMMING) and wide.issuperset(list_columns(each))
    if not summed and not each.type.startswith(COUNTING):
        return ""
    return str(value) if isinstance(value, int) else f"{value:.10g}"


def name_expectation(each: ExpectationSettings) -> str:
    """Its type and first columns; other arguments may hold values."""
    return f"{each.type}({', '.join(name_columns(each))})"


def name_columns(each: ExpectationSettings) -> tuple[str, ...]:
    """Its columns; of more than 10 the first 10, and the number of the others."""
    columns = tuple(list_columns(each))
    more = len(columns) - MOST_COLUMNS
    return (*columns[:MOST_COLUMNS], *([f"and {more} more"] if more > 0 else ()))


def _new_context() -> Any:
    """A new context that keeps nothing on disk, because a used one would keep its last rows."""
    import great_expectations as gx  # noqa: PLC0415  - takes seconds, so only when it is used
    from great_expectations.data_context.types import base  # noqa: PLC0415

    logging.getLogger(base.__name__).setLevel(logging.WARNING)  # its import sets another level
    own = import_module("pipeline.json_schema")
    for name in JSON_METRICS:
        vars(import_module(name)).update(json=own, jsonschema=own, Exception=own.NOT_JSON)
    with _context_lock:
        context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = base.ProgressBarsConfig(globally=False)
    return context


def _raised(info: Mapping[str, Any] | None) -> bool:
    """Whether anything was raised; the report is one mapping, or one per metric."""
    known = info or {}
    nested = [each for each in known.values() if isinstance(each, Mapping)]
    return bool(known.get("raised_exception")) or any(map(_raised, nested))


def name_row(table: Table, row: Mapping[str, Any]) -> str:
    """Name a row by its shard and key: ``shop/shop_00.orders:17``, or a list of key values."""
    own = row.get(SLUICE)
    known = len(table.shards) > 1 and own
    shard = Shard(own["source"], own["shard"]) if known and own else table.shards[0]
    values = [row.get(name) for name in table.key]
    only = len(values) == 1 and isinstance(values[0], int)
    text = str(values[0]) if only else json.dumps([str(one) for one in values])
    return f"{shard}:{text}"


def make_frame(rows: pa.Table) -> Any:
    """Return *rows* as a pandas frame, times in UTC without a zone, without ``_sluice``.

    Whole numbers stay whole in columns with nulls.
    """
    plain = rows.drop_columns([SLUICE]) if SLUICE in rows.column_names else rows
    for number, one in enumerate(plain.schema):
        if pa.types.is_timestamp(one.type) and one.type.tz is not None:
            naive = plain.column(number).cast(pa.timestamp(one.type.unit))
            plain = plain.set_column(number, one.name, naive)
    frame = plain.to_pandas()
    for one in plain.schema:
        column = plain[one.name]
        if pa.types.is_integer(one.type) and column.null_count:
            import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415  - comes with it

            whole = column.cast(pa.int64())
            frame[one.name] = whole.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame
