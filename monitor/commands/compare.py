"""`sluice compare TABLE`: compare a whole table with its source, once and now."""

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.options import UNKNOWN, Duration
from monitor.config.file import load_config
from monitor.config.sections import plugin_faults
from monitor.display_text import say

if TYPE_CHECKING:
    from checks.compare.walk import WalkProgress
    from checks.world import Range
    from monitor.comparing import CompareReport

DIFFERENT = 1
DAY = timedelta(days=1)
EVERY = 2.0  # seconds between two lines of progress
MOST_RANGES = 20  # undecided ranges shown as text; --json has all
WORDS = {"missing": "MISSING", "extra": "EXTRA", "doubled": "DUPLICATE", "different": "DIFFERENT"}
_RANGE = re.compile(r"(-?[0-9]{1,20})?:(-?[0-9]{1,20})?")


class IdRange(click.ParamType["Range"]):
    """A range ``LOW:HIGH`` of ids: LOW is included, HIGH is not; either may be left out."""

    name = "range"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Range":
        """Return the range; refuse text that is no range, or a range without an id."""
        from checks.compare.walk import ANY  # noqa: PLC0415  - help needs none

        if isinstance(value, tuple):
            return value
        found = _RANGE.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no range; write LOW:HIGH, such as 1000:2000", param, ctx)
        low, high = (int(one) if one else end for one, end in zip(found.groups(), ANY, strict=True))
        if not ANY[0] <= low < high <= ANY[1]:
            self.fail(f"{value!r} holds no id; HIGH must be above LOW", param, ctx)
        return low, high


@click.command("compare")
@click.argument("table")
@click.option("--columns", default="", metavar="A,B", help="Compare only these, and the key.")
@click.option(
    "--range",
    "within",
    default=":",
    type=IdRange(),
    metavar="LOW:HIGH",
    help="Compare only ids from LOW up to HIGH, which is excluded; either may be left out.",
)
@click.option("--shard", default="", help="Compare only this shard, as database.table.")
@click.option(
    "--wait",
    default="10m",
    show_default=True,
    type=Duration(timedelta(seconds=1), DAY),
    help="How long a range waits until the mirror has passed the source's position, and how long"
    " to ask a server again that stops answering; a plain number means seconds.",
)
@click.option(
    "--config",
    default="sluice.yaml",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Path of the config file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compare(
    *,
    table: str,
    columns: str,
    within: "Range",
    shard: str,
    wait: timedelta,
    config: Path,
    as_json: bool,
) -> None:
    """Compare all values of TABLE with its source, each range of ids at one position.

    Nothing is written, and the `limits` of the source apply. The table may change meanwhile. A
    running service goes on merging. Without one, a range with changes that are not merged yet
    cannot be decided. If a server stays away, the rows found so far are printed, and the ranges
    that were not read are undecided.

    Exit status 0: equal; 1: rows differ; 2: wrong usage; 3: no row differs so far, but a range is
    undecided or a server does not answer.
    """
    found = load_config(config, plugin_faults)
    from monitor.comparing import CompareRequest, compare_table  # noqa: PLC0415  - seconds

    names = tuple(dict.fromkeys(filter(None, (one.strip() for one in columns.split(",")))))
    request = CompareRequest(table, names, within, shard, wait)
    report = compare_table(found, request, _quiet if as_json else ProgressLines(table))
    if as_json:
        say(json.dumps(_answer(report)))
    else:
        for line in _lines(report):
            say(line)
    result = report.result
    sys.exit(DIFFERENT if result.differences else UNKNOWN if result.undecided else 0)


def _quiet(_: "WalkProgress") -> None:
    """Print no progress."""


@dataclass(eq=False)
class ProgressLines:
    """Prints rows, ranges and rate to stderr, every two seconds."""

    table: str
    _begun: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)

    def __call__(self, progress: "WalkProgress") -> None:
        """Print a line if it is time."""
        now = time.monotonic()
        if now - self._shown < EVERY:
            return
        self._shown = now
        line = f"{self.table}: {progress.rows:,} rows, {progress.ranges} of {progress.expected}"
        if progress.ranges < progress.expected:
            rate = progress.rows / (now - self._begun)
            say(f"{line} ranges, {rate:,.0f} rows a second", err=True)
        else:
            say(f"{line} ranges; {progress.waiting} looks wait for the mirror", err=True)


def _lines(report: "CompareReport") -> Iterator[str]:
    result = report.result
    for one in result.differences:
        word = WORDS[one.state]
        label = f"{word}({', '.join(one.columns)})" if one.columns else word
        yield f"{label}  {one.shard}  {report.table.id_column}={one.id}"
    if result.more:
        counts = ", ".join(f"{count} {WORDS[state]}" for state, count in result.more.items())
        yield f"and {sum(result.more.values())} more rows: {counts}"
    for left in result.undecided[:MOST_RANGES]:
        yield f"INCONCLUSIVE  {left.shard}  {_span(left.span)}: {left.why}"
    if (others := len(result.undecided) - MOST_RANGES) > 0:
        yield f"and {others} more undecided ranges: --json has all"
    for shard, own in report.columns.items():
        for name, why in own.left_out.items():
            yield f"not compared: {name} of {shard}: {why}"
    yield _summary(report)


def _summary(report: "CompareReport") -> str:
    """Return one line: what was proven, and as of when."""
    result, name = report.result, report.table.name
    when = f"between {result.began:%Y-%m-%d %H:%M:%S} and {result.ended:%H:%M:%S %Z}"
    logs = "; ".join(
        f"{source} from {first.position} to {last.position}"
        for source, (first, last) in report.heads.items()
    )
    where = f"{when} (mirror versions {result.versions[0]} to {result.versions[1]}; log of {logs})"
    if not result.differences and not result.undecided:
        text = f"EQUAL: {result.rows:,} rows of {name} in {result.ranges} ranges equal their source"
        return f"{text}, each range at one position {where}"
    wrong = len(result.differences) + sum(result.more.values())
    verdict = f"DIFFERENT: {wrong} rows of {name}" if wrong else f"INCONCLUSIVE: {name}"
    counts = f"different: {result.different}, undecided: {result.undecided_ranges}"
    return f"{verdict}; ranges equal: {result.equal}, {counts}; {where}"


def _span(span: "Range") -> str:
    from checks.ranges import CEILING, FLOOR  # noqa: PLC0415  - help needs neither

    low, high = span
    first = f" from {low}" if low > FLOOR else ""
    last = f" up to {high}" if high < CEILING else ""
    return f"ids{first}{last}" if first or last else "all ids"


def _answer(report: "CompareReport") -> dict[str, Any]:
    result = report.result
    return {
        "table": report.table.name,
        "outcome": "different"
        if result.differences
        else "inconclusive"
        if result.undecided
        else "equal",
        "rows": result.rows,
        "ranges": {
            "all": result.ranges,
            "equal": result.equal,
            "different": result.different,
            "undecided": result.undecided_ranges,
        },
        "differences": [
            {
                "shard": str(one.shard),
                "id": one.id,
                "what": WORDS[one.state].lower(),
                "columns": list(one.columns),
            }
            for one in result.differences
        ],
        "more": {WORDS[state].lower(): count for state, count in result.more.items()},
        "undecided": [
            {"shard": str(one.shard), "low": one.span[0], "high": one.span[1], "why": one.why}
            for one in result.undecided
        ],
        "not_compared": {str(shard): dict(own.left_out) for shard, own in report.columns.items()},
        "began": result.began.isoformat(),
        "ended": result.ended.isoformat(),
        "mirror_versions": list(result.versions),
        "log": {
            source: {"server": last.identity, "from": str(first.position), "to": str(last.position)}
            for source, (first, last) in report.heads.items()
        },
    }


COMMAND = compare
