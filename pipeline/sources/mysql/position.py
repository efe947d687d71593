"""Compares binary log positions and GTID sets, and decides whether a server may be read.

Text of a position: `7/1234`, then a blank and the GTID set if there is one. The set contains the
transactions that a server has executed or a collector has finished. After a failover the last
position of a collector may still be of the old server; its larger offset says nothing about the
new one.

GTID sets are compared by content, never by text: servers print one set in several ways. A
tagged GTID (MySQL 8.3 and later) counts under a name of its own, `uuid:tag`. A MariaDB GTID
(`0-11-5`) is one position per domain, not a set, so it is rejected; MariaDB uses file and
offset.

Reading behind a fence: the server of the fence may be read once the heartbeat after it is
committed. With `binlog_order_commits`, everything logged before that is committed by then.
Measured: if commits wait, reading the log end and then the rows misses transactions that are
logged but not yet visible. A replica must have executed all transactions that had ended by that
time; its position in its own log says nothing.

XA: rows are logged and sent at XA PREPARE and become visible at XA COMMIT, which logs no row
(measured on MySQL 8.0.15, Debezium 3.5). A read waits until the transactions prepared before
the fence have ended at the server that is read.
Cannot detect: a logged XA PREPARE that takes longer than `SETTLING` to be listed.
"""

import json
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Self

from pipeline.errors import FormatError
from pipeline.model import Head, Order, Position
from pipeline.sources.positions import PositionRules
from pipeline.sources.row_reader import ReadFence

UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")
MARIADB = re.compile(r"\d+-\d+-\d+(?:,\d+-\d+-\d+)*")
HIGHEST = 2**63 - 1

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GtidSet:
    """Transactions by name of their origin, as disjoint closed spans, ascending and merged.

    Build it with `parse` or `of`; both produce this canonical form, so that equal sets are equal.
    """

    spans: tuple[tuple[str, tuple[Span, ...]], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``uuid:1-5:7,uuid2:tag:1``, with any white space; an empty text is the empty set.

        Raises:
            FormatError: the text is no GTID set, for example a MariaDB position.
        """
        squeezed = "".join(text.split()).lower()
        if MARIADB.fullmatch(squeezed):
            msg = f"{squeezed} is a MariaDB position, not a GTID set; compare log positions instead"
            raise FormatError(msg)
        return cls.of(span for part in squeezed.split(",") if part for span in _spans(part))

    @classmethod
    def of(cls, spans: Iterable[tuple[str, Span]]) -> Self:
        """Build the set of all *spans*, which may touch and overlap."""
        by_name = groupby(sorted(spans), key=itemgetter(0))
        return cls(tuple((name, _merged(span for _, span in group)) for name, group in by_name))

    def contains(self, other: "GtidSet") -> bool:
        """Whether every transaction of *other* is in this set; the empty set is in every set."""
        mine: Mapping[str, tuple[Span, ...]] = dict(self.spans)
        return all(
            any(low <= first and last <= high for low, high in mine.get(name, ()))
            for name, spans in other.spans
            for first, last in spans
        )

    def __or__(self, other: "GtidSet") -> "GtidSet":
        """Return the union."""
        both = (*self.spans, *other.spans)
        return GtidSet.of((name, span) for name, spans in both for span in spans)

    def __str__(self) -> str:
        """Return MySQL's text in a canonical form: a tag is always written with its uuid."""
        return ",".join(
            f"{name}:{':'.join(_text(span) for span in spans)}" for name, spans in self.spans
        )


def contains_gtids(big: str, small: str) -> bool:
    """Whether every transaction of *small* is in *big*, both as text."""
    return GtidSet.parse(big).contains(GtidSet.parse(small))


def _spans(part: str) -> Iterable[tuple[str, Span]]:
    uuid, *rest = part.split(":")
    if not UUID.fullmatch(uuid) or not rest or TAG.fullmatch(rest[-1]):
        msg = f"not a GTID set: {part!r}; expected uuid:1-5:7"
        raise FormatError(msg)
    name = uuid
    for word in rest:
        interval = INTERVAL.fullmatch(word)
        if interval is None and TAG.fullmatch(word):
            name = f"{uuid}:{word}"  # a tag applies to the intervals up to the next tag
            continue
        first, last = (int(interval[1]), int(interval[2] or interval[1])) if interval else (0, 0)
        if not 1 <= first <= last <= HIGHEST:
            msg = f"not a GTID interval: {word!r} in {part!r}"
            raise FormatError(msg)
        yield name, (first, last)


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge ascending spans that touch or overlap; `contains` requires that."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _text(span: Span) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}-{span[1]}"


KIND = "mysql"


def binlog_position(log: int, pos: int, executed: str = "") -> Position:
    """The position at offset *pos* of log file number *log*; *executed* is a GTID set or empty."""
    return Position(KIND, f"{log}/{pos} {''.join(executed.split())}".rstrip())


def executed_gtids(position: Position) -> str:
    """The GTID set of a position; empty without one."""
    return _read(position.words)[1]


@dataclass(frozen=True, slots=True)
class MySqlPositions:
    """Position rules of MySQL; MariaDB's GTIDs are no sets, so it has only file and offset."""

    def locate(self, position: Position) -> tuple[int, int]:
        return _read(position.words)[0]

    def has_reached(self, passed: Position, wanted: Position) -> bool:
        """Compare file and offset, and also GTIDs if both positions have them."""
        (at, done), (there, needed) = _read(passed.words), _read(wanted.words)
        return at >= there and _holds(done, needed)

    def explain_reset(self, known: Position, now: Position) -> str | None:
        """Explain an earlier file and offset, or missing transactions; None without a reset."""
        (at, had), (there, has) = _read(known.words), _read(now.words)
        if there < at:
            return f"log went back from {_place(at)} to {_place(there)}"
        if had and not contains_gtids(has, had):
            return "the server no longer has transactions that it had: its log was reset"
        return None

    def explain_missing_log(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """Explain why another server may lack the end of the old log; None if it has it by GTIDs.

        Redelivered changes are recognised.  After a reset of one server's log nothing is compared.
        Cannot detect: transactions of the old server after its last head was read.
        """
        if known.identity == now.identity:
            return None
        if not (self.names_transactions(known.position) and self.names_transactions(now.position)):
            return (
                f"server {now.identity} replaced {known.identity} without GTIDs,"
                " so it cannot show that it has the end of the old log"
            )
        if not contains_gtids(executed_gtids(now.position), executed_gtids(known.position)):
            return f"server {now.identity} has not executed all transactions of {known.identity}"
        return None

    def explain_overrun(self, said: Position, end: Position) -> str | None:
        """Explain a position *said* above *end*, or with transactions not executed by then."""
        (at, done), (there, has) = _read(said.words), _read(end.words)
        if at > there:
            return f"{_place(at)} is above the head {_place(there)} that was read after it"
        if (
            self.names_transactions(said)
            and self.names_transactions(end)
            and not contains_gtids(has, done)
        ):
            return "the server has not executed all that was acknowledged"
        return None

    def names_transactions(self, position: Position) -> bool:
        """Whether the position has GTIDs."""
        try:
            return bool(GtidSet.parse(_read(position.words)[1]).spans)
        except FormatError:
            return False

    def may_contain(self, position: Position, transaction: str) -> bool:
        """Whether the position's GTIDs include *transaction*; true if either has no GTIDs."""
        executed = _read(position.words)[1]
        try:
            return not executed or contains_gtids(executed, transaction)
        except FormatError:
            return True

    def compares_replicas(self, position: Position) -> bool:
        """True with GTIDs: without them, a position belongs to the log of one server.

        `SHOW REPLICA STATUS` has a position in the source's log (`Exec_Source_Log_Pos`).  It is not
        used: the applier sets it before it commits (`do_apply_event` of the XID event), and it
        does not change when `RESET` starts that log again.
        """
        return self.names_transactions(position)

    def explain_behind(self, source: Head, replica: Head) -> str | None:
        """Explain that *replica* has not executed all GTIDs of *source*; None if it has."""
        if self.explain_missing_log(source, replica, None) is None:
            return None
        return "it has not executed all that the source had"


POSITIONS: PositionRules = MySqlPositions()


@lru_cache(maxsize=4096)  # the same fences are compared for every table
def _read(words: str) -> tuple[tuple[int, int], str]:
    place, _, executed = words.partition(" ")
    log, _, pos = place.partition("/")
    return (int(log), int(pos)), executed


@lru_cache(maxsize=4096)
def _holds(executed: str, needed: str) -> bool:
    """Whether the GTID set *executed* contains *needed*; true if either is empty or no set."""
    if not executed or not needed:
        return True
    try:
        return contains_gtids(executed, needed)
    except FormatError:
        return True


def _place(at: tuple[int, int]) -> str:
    return f"{at[0]}/{at[1]}"


SETTLING = timedelta(milliseconds=200)
SHOWN = 3


def encode_xa_names(prepared: Set[str]) -> str:
    """Names of XA transactions as the text ``awaited`` of a fence; empty without any."""
    return json.dumps(sorted(prepared)) if prepared else ""


def find_open_xa(fence: ReadFence, prepared: Set[str]) -> tuple[str, ...]:
    """Names of the XA transactions that the fence waits for and that are still *prepared*."""
    names = json.loads(fence.awaited) if fence.awaited else []
    return tuple(name for name in names if name in prepared)


def describe_open_xa(names: tuple[str, ...], patience: timedelta) -> str:
    """A message with the XA transactions that a read waits for, and how to end them."""
    several = f"{len(names)} XA transaction{'s' if len(names) > 1 else ''}"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"{several} prepared before the read remained open for {patience}:"
        f" {'; '.join(names[:SHOWN])}{more}; end them with XA COMMIT or XA ROLLBACK"
    )


def explain_behind_fence(fence: ReadFence, server: Head) -> str | None:
    """Why *server* may lack transactions that the fence needs; None if it has them all."""
    if server.identity == fence.head.identity:
        return None
    needed, has = executed_gtids(fence.needed), executed_gtids(server.position)
    try:
        shown = bool(needed) and contains_gtids(has, needed)
    except FormatError:
        shown = False
    if shown:
        return None
    if not needed:
        other = f"it is {server.identity}, not {fence.head.identity}"
        return f"{other}, and without GTIDs its progress is unknown"
    return f"it has executed {has or 'nothing'}, and {needed} is needed"
