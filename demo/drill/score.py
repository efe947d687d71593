"""Decides which faults the incidents and the reports of `sluice compare` name, and how soon.

A fault is named by its key once an incident lists it, and by its column if the same incident says
that this row differs in it. A fault whose row was changed in the log is due 60 seconds after the
merge of the change. Any other fault is due when its whole table has been compared, because only
that can find it. Pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from demo.drill.faults import Fault
from demo.drill.outages import OutageScore
from demo.drill.simple_checks import SimpleRecall

Json = Mapping[str, Any]
Row = tuple[str, int]
"""A table and an id."""
ALARMS = frozenset({"lost", "blocked", "suspect"})
"""Kinds of incidents that report wrong data."""
FOREIGN = "foreign_write"
"""The check that names the commit of another writer and not its rows."""
WITHIN = 60.0
"""Seconds from the merge of a changed row to the incident that names it."""
_KEY = re.compile(r"[^/:]+/(?P<table>[^:]+):(?P<low>-?\d+)(?:-(?P<high>-?\d+))?")


@dataclass(frozen=True, slots=True)
class RowRange:
    """Ids of a table from ``low`` to ``high``, both included, as an incident lists them."""

    table: str
    low: int
    high: int

    def __contains__(self, row: object) -> bool:
        """Tell whether a table and an id are in the range."""
        match row:
            case (self.table, int(id_)):
                return self.low <= id_ <= self.high
        return False


def listed_ranges(keys: Iterable[str]) -> Iterator[RowRange]:
    """Yield the rows that *keys* name; skip keys of another form, such as versions."""
    for key in keys:
        if found := _KEY.fullmatch(key):
            low = int(found["low"])
            yield RowRange(found["table"], low, int(found["high"] or low))


def named_columns(incident: Json) -> dict[Row, frozenset[str]]:
    """Return the columns in which rows differ, according to *incident*."""
    found = dict[Row, frozenset[str]]()
    for one in incident.get("differing", ()):
        for span in listed_ranges(one["keys"]):
            for id_ in range(span.low, span.high + 1):
                row = (span.table, id_)
                found[row] = found.get(row, frozenset()) | {*one["columns"]}
    return found


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of a table, in seconds after the drill began; None while unknown.

    Changes before ``merged`` are in the mirror, and each row was compared after ``compared``.
    """

    table: str
    merged: float | None
    compared: float | None


@dataclass(frozen=True, slots=True)
class Finding:
    """When a fault was noticed, named by key and named by column, in seconds after it; None: never.

    ``checks`` are the checks whose incidents noticed it. ``merged`` is when the changes before it
    were in the mirror, ``compared`` when all rows of its table had been compared since.
    """

    noticed: float | None = None
    key: float | None = None
    column: float | None = None
    checks: tuple[str, ...] = ()
    merged: float | None = None
    compared: float | None = None

    def is_named(self, fault: Fault) -> bool:
        """Tell whether *fault* is named by its key, and by its column if it has one."""
        return self.key is not None and (self.column is not None or not fault.column)

    def due(self, fault: Fault) -> float | None:
        """Return the seconds after *fault* by which it must be named; None while unknown."""
        if not fault.logged:
            return self.compared
        return None if self.merged is None else self.merged + WITHIN

    def is_late(self, fault: Fault) -> bool:
        """Tell whether *fault* was named by key or column after it was due."""
        due, named = self.due(fault), (self.key, self.column)
        return due is not None and any(one is not None and one > due for one in named)


@dataclass(eq=False)
class IncidentBook:
    """The findings of all incidents so far about ``faults``.

    Only an incident about the fault's own table counts for it. ``expected`` are prefixes of the
    subjects of incidents about a whole source that a fault may cause; ``wide`` collects those
    incidents. Incidents whose ids are in ``before`` have other causes.
    """

    faults: Sequence[Fault]
    expected: tuple[str, ...] = ()
    before: frozenset[str] = frozenset()
    findings: dict[Fault, Finding] = field(init=False)
    false_alarms: dict[str, Json] = field(default_factory=dict)
    others: dict[str, Json] = field(default_factory=dict)
    wide: dict[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start without findings."""
        self.findings = {fault: Finding() for fault in self.faults}

    def note(self, now: float, incidents: Iterable[Json]) -> None:
        """Record the *incidents* that exist *now*, in seconds after the drill began."""
        for incident in incidents:
            if incident["id"] in self.before:
                continue
            if incident["kind"] not in ALARMS:
                self.others[incident["id"]] = incident
                continue
            if self.expected and incident["about"].startswith(self.expected):
                self.wide[incident["id"]] = incident
                continue
            ranges, columns = tuple(listed_ranges(incident["keys"])), named_columns(incident)
            if not self._is_true(incident, ranges):
                self.false_alarms[incident["id"]] = incident
            for fault in self.faults:
                if fault.table == incident["about"] and fault.at <= now:
                    self._find(fault, now, incident["check"], ranges, columns)

    def _is_true(self, incident: Json, ranges: Sequence[RowRange]) -> bool:
        """Tell whether every row and table that the incident names was harmed."""
        harmed = {(fault.table, fault.id) for fault in self.faults}
        rows = {(one.table, id_) for one in ranges for id_ in range(one.low, one.high + 1)}
        return {*incident["tables"]} <= {table for table, _ in harmed} and rows <= harmed

    def _find(
        self,
        fault: Fault,
        now: float,
        check: str,
        ranges: Sequence[RowRange],
        columns: Mapping[Row, frozenset[str]],
    ) -> None:
        known, after = self.findings[fault], now - fault.at
        named = any((fault.table, fault.id) in one for one in ranges)
        told = named and fault.column in columns.get((fault.table, fault.id), ())
        self.findings[fault] = replace(
            known,
            noticed=known.noticed if known.noticed is not None else after,
            key=after if named and known.key is None else known.key,
            column=after if told and known.column is None else known.column,
            checks=tuple(dict.fromkeys((*known.checks, check))),
        )

    def note_tables(self, now: float, tables: Iterable[TableProgress]) -> None:
        """Record the progress of *tables* at *now*."""
        known = {one.table: one for one in tables}
        for fault, one in self.findings.items():
            if (progress := known.get(fault.table)) is None:
                continue
            merged = one.merged is None and (progress.merged or 0) >= fault.at
            compared = one.compared is None and (progress.compared or 0) > fault.at
            if merged or compared:
                after = now - fault.at
                self.findings[fault] = replace(
                    one,
                    merged=after if merged else one.merged,
                    compared=after if compared else one.compared,
                )

    def is_over(self, now: float) -> bool:
        """Tell whether each fault is named or past due, or a foreign commit blocks its table."""
        return all(
            one.is_named(fault)
            or FOREIGN in one.checks
            or ((due := one.due(fault)) is not None and now - fault.at > due)
            for fault, one in self.findings.items()
        )


def compared_rows(reports: Iterable[Json]) -> dict[Row, tuple[str, ...]]:
    """Return the rows that reports of `sluice compare --json` name, each with its columns."""
    return {
        (one["shard"].rpartition("/")[2], one["id"]): tuple(one["columns"])
        for report in reports
        for one in report["differences"]
    }


@dataclass(frozen=True, slots=True)
class KindScore:
    """How faults of one kind were found: numbers of faults, and seconds after the fault.

    ``compared`` is the number that `sluice compare` names, of the ``asked`` ones in its tables.
    ``median`` and ``most`` are the seconds until the key was named; if no key was ever named, until
    the table's incident. ``late`` faults were named after they were due. ``never_due`` faults were
    not due when the drill ended. ``whole`` is when the last of their tables had been compared
    whole.
    """

    kind: str
    faults: int
    noticed: int
    keys: int
    with_column: int
    columns: int
    checks: tuple[str, ...]
    median: float | None
    most: float | None
    asked: int
    compared: int
    compared_columns: int
    late: int
    never_due: int
    whole: float | None
    simple: SimpleRecall


def score_kind(
    kind: str,
    findings: Mapping[Fault, Finding],
    compared: Mapping[Row, Sequence[str]],
    asked: Iterable[str],
    simple: SimpleRecall,
) -> KindScore:
    """Sum up the *findings* of *kind*; *asked* are the tables that `sluice compare` was run on."""
    own = {fault: one for fault, one in findings.items() if fault.kind == kind}
    times = [one.key for one in own.values() if one.key is not None] or [
        one.noticed for one in own.values() if one.noticed is not None
    ]
    tables = set(asked)
    looked = [fault for fault in own if fault.table in tables]
    return KindScore(
        kind=kind,
        faults=len(own),
        noticed=sum(one.noticed is not None for one in own.values()),
        keys=sum(one.key is not None for one in own.values()),
        with_column=sum(bool(fault.column) for fault in own),
        columns=sum(one.column is not None for one in own.values()),
        checks=tuple(sorted({check for one in own.values() for check in one.checks})),
        median=median(times) if times else None,
        most=max(times, default=None),
        asked=len(looked),
        compared=sum((fault.table, fault.id) in compared for fault in looked),
        compared_columns=sum(
            bool(fault.column) and fault.column in compared.get((fault.table, fault.id), ())
            for fault in looked
        ),
        late=sum(one.is_late(fault) for fault, one in own.items()),
        never_due=sum(
            one.due(fault) is None and not one.is_named(fault) for fault, one in own.items()
        ),
        whole=max((one.compared for one in own.values() if one.compared is not None), default=None),
        simple=simple,
    )


@dataclass(frozen=True, slots=True)
class RepeatedScore:
    """Records that were sent again: their number, and how many rows are right afterwards."""

    kind: str
    records: int
    right: int


def score_repeated(repeated: Sequence[Fault], wrong: Collection[Row]) -> tuple[RepeatedScore, ...]:
    """Return the score of *repeated*, by kind, if the rows *wrong* are wrong."""
    kinds = dict.fromkeys(one.kind for one in repeated)
    rows = {kind: [(f.table, f.id) for f in repeated if f.kind == kind] for kind in kinds}
    return tuple(
        RepeatedScore(kind, len(own), sum(row not in wrong for row in own))
        for kind, own in rows.items()
    )


@dataclass(frozen=True, slots=True)
class DrillResult:
    """One drill: the score of each kind, false alarms, and rows that the service read.

    ``calm_seconds`` is how long ordinary changes ran before the first fault. Numbers of read rows
    are None if the server does not count them. ``servers`` describes the used servers.
    """

    scores: tuple[KindScore, ...]
    false_alarms: tuple[str, ...]
    wide_incidents: tuple[str, ...]
    other_incidents: tuple[str, ...]
    repeated: tuple[RepeatedScore, ...]
    calm_seconds: float
    watched_seconds: float
    changes: int
    rows_read_calm: int | None
    rows_read_watched: int | None
    outages: tuple[OutageScore, ...] = ()
    servers: tuple[str, ...] = ()

    def shortfalls(self, left_out: str) -> tuple[str, ...]:
        """Return what falls short of the aim; nothing is expected of the kind *left_out*.

        The aim: no false alarm; each fault named by key and column when it is due, or its table
        reported by `foreign_write`; no mirror changed by a repeated record; and no open gate for a
        cut after an outage.
        """
        found = [f"{len(self.false_alarms)} false alarms"] if self.false_alarms else []
        for one in self.scores:
            if one.kind == left_out or (one.noticed == one.faults and one.checks == (FOREIGN,)):
                continue
            if one.keys < one.faults:
                found.append(f"{one.kind}: {_of(one.keys, one.faults)} keys named")
            if one.columns < one.with_column:
                found.append(f"{one.kind}: {_of(one.columns, one.with_column)} columns named")
            if one.late:
                found.append(f"{one.kind}: {one.late} named after they were due")
            if one.never_due:
                found.append(f"{one.kind}: {one.never_due} were not due when the drill ended")
        found += [
            f"{one.kind}: {_of(one.right, one.records)} rows are right"
            for one in self.repeated
            if one.right < one.records
        ]
        found += [line for each in self.outages for line in each.shortfalls()]
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)

    def as_markdown(self) -> str:
        """Return two tables: what Sluice has found, and what simple checks would have found."""
        heads = (
            *("fault", "faults", "table reported", "key in an incident", "column in the incident"),
            *("seconds to the key: median, most", "seconds until compared whole: most"),
            *("named late", "found by", "key by `sluice compare`", "column by `sluice compare`"),
        )
        lines = [_line(heads), _line("---" for _ in heads)]
        for one in self.scores:
            lines.append(
                _line(
                    (
                        one.kind,
                        str(one.faults),
                        str(one.noticed),
                        str(one.keys),
                        _of(one.columns, one.with_column),
                        f"{_seconds(one.median)}, {_seconds(one.most)}",
                        _seconds(one.whole),
                        str(one.late),
                        ", ".join(f"`{check}`" for check in one.checks) or "nothing",
                        _of(one.compared, one.asked),
                        _of(one.compared_columns, one.asked if one.with_column else 0),
                    )
                )
            )
        simple_heads = ("named by `max(id)`", "table differs in `count(id)`")
        line = _line(("fault", "faults", *simple_heads, "named by keys of Kafka records"))
        lines += ["", line, _line(["---"] * 5)]
        for one in self.scores:
            simple = (one.simple.highest, one.simple.counted, one.simple.keys)
            lines.append(_line((one.kind, str(one.faults), *map(str, simple))))
        lines += ["", _line(("must change nothing", "records", "rows right in the mirror"))]
        lines.append(_line(["---"] * 3))
        lines += [_line((one.kind, str(one.records), str(one.right))) for one in self.repeated]
        if self.outages:
            outage_heads = (
                *("outage", "seconds to an incident", "incident", "gate READY meanwhile"),
                *("READY without all rows", "seconds until all tables were READY again"),
            )
            lines += ["", _line(outage_heads), _line(["---"] * 6)]
        for each in self.outages:
            said = "; ".join(each.incidents) or "nothing"
            opened = f"{each.open} of {each.answers} answers"
            cells = [_seconds(each.seconds), said, opened, str(each.untrue), _seconds(each.again)]
            if each.left_out:
                cells = ["-", f"left out: {each.left_out}", *["-"] * 3]
            lines.append(_line((each.outage, *cells)))
        lines += [
            "",
            *([f"* Servers: {'; '.join(self.servers)}."] if self.servers else ()),
            *(f"* About the whole source: {one}" for one in self.wide_incidents),
            f"* False alarms: {len(self.false_alarms)} in {self.calm_seconds:.0f} s without and"
            f" {self.watched_seconds:.0f} s with faults, beside {self.changes:,} row changes.",
            *self._describe_reads(),
        ]
        return "\n".join(lines) + "\n"

    def _describe_reads(self) -> Iterator[str]:
        calm, watched = self.rows_read_calm, self.rows_read_watched
        if calm is None or watched is None:
            return
        yield (
            f"* Rows that the service read at the source with faults: {watched:,},"
            f" {watched / max(self.watched_seconds, 1):,.0f} a second; before them"
            f" {calm / max(self.calm_seconds, 1):,.0f} a second."
        )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _of(found: int, asked: int) -> str:
    return f"{found} of {asked}" if asked else "-"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"
