"""Compares rows and sums per day at source and mirror, and finds changes that explain them.

The source is read first. Once the mirror has passed that reading, it holds all rows of the
source and maybe newer ones. Changes that landed since then are read from the change log. A day
without such changes must be equal on both sides. If more than `MOST_CHANGES` landed, every
difference counts as explained.

A day belongs to a named zone and may have 23 or 25 hours. An hour that occurs twice has two
beginnings. A column without a zone holds the local time of `wall`, which may differ from the
zone of the days.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from checks.counting import load_instant
from checks.world import ChangedRow, World
from pipeline.aggregates import AggregatedColumn, Moment, RangeAggregate, TimeSpan
from pipeline.clocks import no_zone
from pipeline.errors import ConfigError, ProofError
from pipeline.model import Missing, Op, Shard, Table
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column, arrow_type

DAY = timedelta(days=1)
CREATION_NAMES = (
    *("created_at", "create_time", "created_time", "creation_time", "created", "created_on"),
    *("create_date", "created_date", "creation_date", "date_created", "gmt_create", "gmt_created"),
    *("inserted_at", "insert_time", "inserted_on", "insert_date"),
)
"""Usual names of a column with the creation time of its row, most usual first.

Case and underscores do not matter: ``createTime`` is ``create_time``.
"""


def choose_date_column(dated: Sequence[Sequence[str]]) -> str | Missing:
    """Return the column whose usual name says that it holds the creation time of a row.

    *dated* has the `World.dated` columns of each shard.  All shards must have the column, under the
    same name.  If several qualify, the name that is first in `CREATION_NAMES` wins.
    """
    common = [name for name in dated[0] if all(name in own for own in dated)] if dated else []
    if not common:
        return Missing("no index begins with a NOT NULL column of dates or times")
    usual = {_fold_name(name): place for place, name in enumerate(CREATION_NAMES)}
    named = [name for name in common if _fold_name(name) in usual]
    if not named:
        few = ", ".join(common[:3])
        return Missing(f"no index begins with a column of a usual name of a creation time: {few}")
    return min(named, key=lambda name: usual[_fold_name(name)])


def _fold_name(name: str) -> str:
    return name.lower().replace("_", "")


def require_zone(setting: str, zone: str) -> None:
    """Reject a value of *setting* that is not a time zone; an empty text is allowed.

    Raises:
        ConfigError: it is not a time zone; the message names the setting.
    """
    try:
        ZoneInfo(zone or "UTC")
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        msg = f"{setting}: {no_zone(zone)}"
        raise ConfigError(msg) from error


def next_part(after: datetime, length: timedelta, zone: ZoneInfo) -> datetime:
    """The first instant after *after* when the time of day is a multiple of *length*.

    Midnight always counts as one.  *length* must be above zero; if it is longer than a day, it is
    rounded down to whole days.
    """
    local = after.astimezone(zone).replace(tzinfo=None)
    midnight = datetime.combine(local.date(), time())
    if length >= DAY:
        return (midnight + length // DAY * DAY).replace(tzinfo=zone).astimezone(after.tzinfo)
    begun = midnight + (local - midnight) // length * length
    walls = {begun, min(begun + length, midnight + DAY)}
    instants = [wall.replace(tzinfo=zone, fold=fold) for wall in walls for fold in (0, 1)]
    return min(i for each in instants if (i := each.astimezone(after.tzinfo)) > after)


def days_before(now: datetime, number: int, zone: ZoneInfo) -> tuple[date, ...]:
    """Return the last *number* days of *zone* that have ended, oldest first."""
    today = now.astimezone(zone).date()
    return tuple(today - ago * DAY for ago in range(number, 0, -1))


def span_of(day: date, kind: pa.DataType, zone: ZoneInfo, wall: ZoneInfo) -> TimeSpan:
    """Return start and end of *day*, as values of a column of *kind*; the end is excluded.

    *zone* is the zone of the day, and *wall* the zone of a column whose times have no zone.

    Raises:
        ProofError: a column of that kind holds no dates or times.
    """
    first, until = (_moment(one, kind, zone, wall) for one in (day, day + DAY))
    return first, until


def find_span(moment: Moment, spans: Sequence[TimeSpan]) -> int | None:
    """Return the index of the span that contains *moment*; None without one."""
    return next((n for n, (first, until) in enumerate(spans) if first <= moment < until), None)


def _moment(day: date, kind: pa.DataType, zone: ZoneInfo, wall: ZoneInfo) -> Moment:
    if pa.types.is_date(kind):
        return day
    if not pa.types.is_timestamp(kind):
        raise ProofError(f"a column of type {kind} holds no dates or times")
    begins = datetime.combine(day, time(), zone).astimezone(UTC)
    return begins if kind.tz else begins.astimezone(wall).replace(tzinfo=None)


MOST_CHANGES = 50_000
SECOND = timedelta(seconds=1)
Asked = tuple[tuple[TimeSpan, ...], tuple[AggregatedColumn, ...]]
"""The spans of a column, and the columns that are summed in each."""
_UNREAD = object()  # a reported value that cannot be read


@dataclass(frozen=True, slots=True)
class DayQuestion:
    """What to sum: ``fields``, by day of each of ``columns``.

    ``zone`` is the zone of the days, and ``wall`` the zone of columns whose times have no zone.
    """

    columns: tuple[str, ...]
    fields: tuple[str, ...]
    zone: ZoneInfo
    wall: ZoneInfo


@dataclass(frozen=True, slots=True)
class DayTallies:
    """Rows and sums at the source. ``counted``: shard name -> column -> one aggregate per day.

    ``landed`` is the newest batch before the source was read, ``ended`` the end of that reading.
    """

    days: tuple[date, ...]
    ended: datetime
    landed: int
    counted: Mapping[str, Mapping[str, tuple[RangeAggregate, ...]]]

    @property
    def rows(self) -> int:
        """Number of rows of all shards and days, by the first column."""
        return sum(self._by_day)

    @property
    def busiest(self) -> int:
        """Number of rows, of all shards, on the day with the most rows, by the first column."""
        return max(self._by_day, default=0)

    @property
    def _by_day(self) -> list[int]:
        shards = [next(iter(own.values())) for own in self.counted.values()]
        return [sum(one.rows for one in day) for day in zip(*shards, strict=True)]

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        return {
            "days": [day.isoformat() for day in self.days],
            "ended": self.ended.isoformat(),
            "landed": self.landed,
            "counted": {
                shard: {
                    column: [[one.rows, *map(str, one.sums)] for one in tallies]
                    for column, tallies in own.items()
                }
                for shard, own in self.counted.items()
            },
        }

    @classmethod
    def loads(cls, raw: Mapping[str, Any]) -> "DayTallies":
        """Read back what :meth:`dumps` wrote."""
        counted = {
            shard: {
                column: tuple(
                    RangeAggregate(int(rows), tuple(map(Decimal, sums))) for rows, *sums in tallies
                )
                for column, tallies in own.items()
            }
            for shard, own in raw["counted"].items()
        }
        days = tuple(map(date.fromisoformat, raw["days"]))
        return cls(days, load_instant(raw["ended"]), int(raw["landed"]), counted)

    def answers(self, question: DayQuestion) -> bool:
        """Whether each shard has one sum of each field for each day and column of *question*."""
        size = len(question.fields)
        return bool(self.days and self.counted) and all(
            tuple(own) == question.columns
            and all(len(tallies) == len(self.days) for tallies in own.values())
            and all(len(one.sums) == size for tallies in own.values() for one in tallies)
            for own in self.counted.values()
        )


@dataclass(frozen=True, slots=True)
class DayDifference:
    """A day of a shard, by one column, that differs between source and mirror.

    ``source`` and ``mirror`` count rows. ``fields`` names the fields whose sums differ. ``moving``
    counts the changes that may explain the difference.
    """

    shard: Shard
    column: str
    day: date
    source: int
    mirror: int
    fields: tuple[str, ...]
    moving: int

    @property
    def explained(self) -> bool:
        """Whether changes that landed since the source was read may explain the difference."""
        return self.moving > 0 and abs(self.source - self.mirror) <= self.moving

    @property
    def key(self) -> str:
        """Return its name in messages and memories."""
        return f"{self.shard}:{self.column}={self.day}"


def sum_days(table: Table, world: World, question: DayQuestion, days: Sequence[date]) -> DayTallies:
    """Sum the days at the source of every shard; one snapshot per shard and column."""
    landed = world.landed_batch()
    counted: dict[str, dict[str, tuple[RangeAggregate, ...]]] = {}
    for shard in table.shards:
        known = {one.name: one for one in world.source(shard.source).columns(shard)}
        counted[str(shard)] = {
            column: world.source(shard.source).tallies(
                *(shard, column, _spans(known, shard, column, question, days)),
                _fields(known, shard, question),
            )
            for column in question.columns
        }
    return DayTallies(tuple(days), world.clock(), landed, counted)


def find_differences(
    table: Table, world: World, question: DayQuestion, seen: DayTallies
) -> tuple[DayDifference, ...]:
    """Return the days that differ; the mirror must be newer than *seen*.

    Shards that no longer exist are left out.
    """
    mirror = world.mirror(table)
    known = {
        shard: {one.name: one for one in world.source(shard.source).columns(shard)}
        for shard in table.shards
    }
    found: list[tuple[Shard, str, int, RangeAggregate, RangeAggregate]] = []
    for column, asked, shards in _group_columns(known, question, seen):
        for shard, there in mirror.tallies(shards, column, *asked).items():
            pairs = enumerate(zip(seen.counted[str(shard)][column], there, strict=True))
            found += [(shard, column, n, *pair) for n, pair in pairs if pair[0] != pair[1]]
    if not found:
        return ()
    changed = world.log().changed_rows(table, seen.landed, mirror.batch, most=MOST_CHANGES)
    moving = (
        _moving(changed, known, question, seen.days, world=world) if changed is not None else None
    )
    return tuple(
        _difference(shard, column, seen.days[n], pair, question.fields, moving=moving)
        for shard, column, n, *pair in found
    )


def _group_columns(
    known: Mapping[Shard, Mapping[str, Column]], question: DayQuestion, seen: DayTallies
) -> Iterator[tuple[str, Asked, list[Shard]]]:
    """Yield each column with the shards that get the same query: usually all shards."""
    found: dict[tuple[str, Asked], list[Shard]] = {}
    for shard, columns in known.items():
        for column in seen.counted.get(str(shard), {}):
            spans = _spans(columns, shard, column, question, seen.days)
            asked = spans, _fields(columns, shard, question)
            found.setdefault((column, asked), []).append(shard)
    yield from ((column, asked, shards) for (column, asked), shards in found.items())


def narrow_difference(
    table: Table, world: World, question: DayQuestion, one: DayDifference
) -> TimeSpan | None:
    """Return a second of the day in which the sides differ now.

    None if they no longer differ, or if the column holds dates.
    """
    shard = next(each for each in table.shards if str(each) == str(one.shard))
    source, mirror = world.source(shard.source), world.mirror(table)
    known = {each.name: each for each in source.columns(shard)}
    (span,) = _spans(known, shard, one.column, question, [one.day])
    fields = _fields(known, shard, question)
    first, until = span
    while isinstance(first, datetime) and isinstance(until, datetime) and until - first > SECOND:
        middle = first + SECOND * int((until - first) / SECOND / 2)
        halves = ((first, middle), (middle, until))
        here = source.tallies(shard, one.column, halves, fields)
        there = mirror.tallies([shard], one.column, halves, fields)[shard]
        guilty = [h for h, ours, theirs in zip(halves, here, there, strict=True) if ours != theirs]
        if not guilty:
            return None
        first, until = guilty[0]
    return (first, until) if isinstance(first, datetime) else None


def _difference(
    shard: Shard,
    column: str,
    day: date,
    pair: Sequence[RangeAggregate],
    fields: Sequence[str],
    *,
    moving: Mapping[tuple[Shard, str, date | None], int] | None,
) -> DayDifference:
    here, there = pair
    sums = zip(fields, here.sums, there.sums, strict=True)
    names = tuple(name for name, ours, theirs in sums if ours != theirs)
    if moving is None:  # too many changes to read: any row may have changed
        most = max(here.rows, there.rows, 1)
    else:
        most = moving.get((shard, column, day), 0) + moving.get((shard, column, None), 0)
    return DayDifference(shard, column, day, here.rows, there.rows, names, most)


def _moving(
    changed: Sequence[ChangedRow],
    known: Mapping[Shard, Mapping[str, Column]],
    question: DayQuestion,
    days: Sequence[date],
    *,
    world: World,
) -> Mapping[tuple[Shard, str, date | None], int]:
    """Count the changes of each shard, column and day; the day is None if it is unknown."""
    found: Counter[tuple[Shard, str, date | None]] = Counter()
    for shard, columns in known.items():
        own = [one for one in changed if one.shard == shard]
        landed = world.schema(shard) if own else None
        for name in question.columns if own else ():
            spans = _spans(columns, shard, name, question, days)
            column = landed.column(name) if landed is not None else None
            befores = _values([one.before for one in own], column)
            afters = _values([one.after for one in own], column)
            for one, before, after in zip(own, befores, afters, strict=True):
                touched = _days(one, before, after, spans, days)
                found.update((shard, name, day) for day in touched)
    return found


def _days(
    one: ChangedRow, before: Any, after: Any, spans: Sequence[TimeSpan], days: Sequence[date]
) -> set[date | None]:
    """Return the days that the row was on before and after the change; None for an unknown day."""
    if _UNREAD in (before, after):
        return {None}
    values = [value for value in (before, after) if value is not None]
    places = (find_span(value, spans) for value in values)
    found: set[date | None] = {days[n] for n in places if n is not None}
    return found | {None} if before is None and one.op != Op.CREATE else found


def _values(texts: Sequence[str | None], column: Column | None) -> list[Any]:
    """Decode the column's values from *texts*, as messages spell them; `_UNREAD` if unknown."""
    if column is None:
        return [_UNREAD] * len(texts)
    read = type_rows(pa.array(texts, pa.string()), [column])
    pairs = zip(read.rows[column.name].to_pylist(), read.misread.to_pylist(), strict=True)
    return [_UNREAD if misread else value for value, misread in pairs]


def _spans(
    known: Mapping[str, Column],
    shard: Shard,
    column: str,
    question: DayQuestion,
    days: Sequence[date],
) -> tuple[TimeSpan, ...]:
    kind = arrow_type(_column(known, shard, column))
    return tuple(span_of(day, kind, question.zone, question.wall) for day in days)


def _fields(
    known: Mapping[str, Column], shard: Shard, question: DayQuestion
) -> tuple[AggregatedColumn, ...]:
    kinds = ((name, arrow_type(_column(known, shard, name))) for name in question.fields)
    return tuple(AggregatedColumn(name, bool(pa.types.is_string(kind))) for name, kind in kinds)


def _column(known: Mapping[str, Column], shard: Shard, name: str) -> Column:
    if name not in known:
        raise ProofError(
            f"{shard} has no column {name!r}; name one of {', '.join(known) or 'none'}"
        )
    return known[name]
