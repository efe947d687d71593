"""Finds a probe by name and runs it once: returns a verdict or `NotYet`, never raises.

The readers that a probe is given enforce the limits on time and rows. This module also measures the
time of the probe.  A PASS after the limit becomes UNKNOWN, because its two sides may have been read
far apart.  A FAIL counts even after the limit: a confirmed loss is still a loss.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Protocol, TypeVar, cast

import structlog

from checks import probes
from checks.model import FailKind, NotYet, Outcome, Ruling, Undecided, Verdict
from checks.world import World
from pipeline import plugins
from pipeline.errors import ProofError, SluiceError, UnreachableError
from pipeline.model import Fence, Table
from pipeline.schema.model import TableSchema

STEP = timedelta(seconds=1)
"""If clock and timer differ by more than this in one round, the clock was set."""
ARRAY = '["'  # a key that is a JSON array of texts
log = structlog.get_logger(__name__)


class Reading(Protocol):
    """What a probe measured.  ``value`` is its one number for history and graphs.

    Optional attributes:
    ``ended``: the probe is timed up to this instant of the world's clock. Reads after it, for the
    next round, do not count against the limit.
    ``verified``: what the probe has compared so far.
    ``suspicious``: the probe must look again at something that it found, and runs again at once.
    ``cause``: the part that causes an UNKNOWN, if other tables share it.
    ``counted``: minutes that the probe counted for the table's ledger.
    """

    @property
    def value(self) -> float | None:
        """The number kept for history; None without one."""
        ...

    @property
    def as_of(self) -> tuple[Fence, ...]:
        """The fences, one per source, that the compared mirror holds; may be empty."""
        ...


R = TypeVar("R", bound=Reading)


class Probe(Protocol[R]):
    """One check of one table; its settings are its dataclass fields.

    ``every`` is the usual interval between two rounds on a table. ``gating``: whether a FAIL blocks
    readiness by default.  Both are class attributes and not settings.
    A class whose FAIL is a loss sets ``kind = FailKind.LOST``; otherwise a FAIL is a suspicion.
    """

    every: ClassVar[timedelta]
    gating: ClassVar[bool]

    @property
    def limit(self) -> timedelta:
        """Longest time one round may take."""
        ...

    def measure(self, table: Table, world: World) -> R | NotYet | Undecided:
        """Take one reading.

        Raises:
            UnreachableError: a side did not answer; the verdict is UNKNOWN.
            ProofError: it answered, but the check cannot be decided; the verdict is UNKNOWN.
        """
        ...

    def judge(self, reading: R, past: Sequence[float]) -> Ruling:
        """Rule on *reading*; *past* has earlier values, oldest first, as of `looks_back`.  Pure."""
        ...


@dataclass(frozen=True, slots=True)
class Check:
    """A probe under its name, for one table."""

    name: str
    probe: Probe[Any]
    table: Table


def probe_names() -> tuple[str, ...]:
    """Names of all probes, sorted: the files of checks/probes."""
    return plugins.list_keys(probes, "PROBE")


def find_probe(name: str) -> type[Probe[Any]]:
    """Return the probe class *name*; raises ConfigError if it is unknown."""
    return cast("type[Probe[Any]]", plugins.find_class(probes, "PROBE", name))


def is_whole(name: str) -> bool:
    """Whether a PASS of that probe covers all rows: its class sets ``whole = True``.

    Only such a PASS protects older certificates from a later FAIL.
    """
    return bool(getattr(find_probe(name), "whole", False))


def runs_by_default(name: str) -> bool:
    """Whether that probe runs without a section in the config: its class may set ``by_default``."""
    return bool(getattr(find_probe(name), "by_default", True))


def kind_of(probe: Probe[Any] | type[Probe[Any]]) -> FailKind:
    """What a FAIL of *probe* means: a suspicion, unless its class sets ``kind``."""
    return FailKind(getattr(probe, "kind", FailKind.SUSPECT))


def looks_back(probe: Probe[Any]) -> int:
    """How many earlier values ``judge`` gets: 0, unless the class sets ``looks_back = n``.

    If set, all of its values are kept, and each round reads them from the store.
    """
    return int(getattr(probe, "looks_back", 0))


def run_probe(
    check: Check,
    world: World,
    past: Sequence[float] = (),
    run: str = "",
    elapsed: Callable[[], float] | None = None,
) -> Verdict | NotYet:
    """Run *check* once; *past* holds earlier values, oldest first; *run* is the id of the round.

    *elapsed* is a timer in seconds that does not depend on the world's clock.
    """
    started, began = world.clock(), elapsed() if elapsed else 0.0
    measured = _measure(check, world, past)
    if isinstance(measured, NotYet):
        return measured
    ruling, reading, cause = measured
    if any(ARRAY in key for key in ruling.keys):
        ruling = replace(ruling, integer_parts=_integer_parts(check.table, world))
    verified = getattr(reading, "verified", None)
    now = world.clock()
    took = (getattr(reading, "ended", None) or now) - started
    timed = now - started if elapsed is None else timedelta(seconds=elapsed() - began)
    if abs(now - started - timed) > STEP:
        took = timed
    if took > check.probe.limit and ruling.outcome is Outcome.PASS:
        why = f"took {took.total_seconds():.1f} s, limit {check.probe.limit.total_seconds():.1f} s"
        ruling, verified = Ruling(Outcome.UNKNOWN, why, "over_time"), None
    elif ruling.outcome is Outcome.UNKNOWN:
        cause = cause or getattr(reading, "cause", "")
    return Verdict(
        table=check.table.name,
        check=check.name,
        ruling=ruling,
        at=world.now,
        as_of=reading.as_of if reading else (),
        value=reading.value if reading else None,
        cause=cause,
        run=run,
        kind=kind_of(check.probe),
        verified=verified,
        suspicious=getattr(reading, "suspicious", False),
        counted=getattr(reading, "counted", ()),
    )


def _measure(
    check: Check, world: World, past: Sequence[float]
) -> tuple[Ruling, Reading | None, str] | NotYet:
    """Return ruling, reading and cause of one round; an error of the probe becomes UNKNOWN."""
    try:
        found = check.probe.measure(check.table, world)
        if isinstance(found, NotYet):
            return found
        if isinstance(found, Undecided):
            return _unknown(found.code, found.why), None, ""
        return check.probe.judge(found, past), found, ""
    except UnreachableError as error:
        return _unknown("unreachable", str(error)), None, _cause(error)
    except ProofError as error:
        return _unknown("unprovable", str(error)), None, ""
    except Exception as error:
        log.exception("check_broken", check=check.name, table=check.table.name)
        why = f"{type(error).__name__} in {check.name}; see its traceback in the service's log"
        return _unknown("check_broken", why), None, ""


def _integer_parts(table: Table, world: World) -> tuple[bool, ...]:
    """Return for each key column whether it holds integers in all shards; empty if not known."""
    try:
        schemas = [world.schema(shard) for shard in table.shards]
    except SluiceError:
        return ()
    if any(one is None or one.key != table.key for one in schemas):
        return ()
    return tuple(
        not table.restates(name) and all(_is_integer(one, name) for one in schemas if one)
        for name in table.key
    )


def _is_integer(schema: TableSchema, name: str) -> bool:
    column = schema.column(name)
    return column is not None and column.dialect.whole(column)


def _unknown(code: str, why: str) -> Ruling:
    return Ruling(Outcome.UNKNOWN, why, code)


def _cause(error: UnreachableError) -> str:
    """The part that did not answer, if the message begins with one: ``source:shop: why``.

    One cause makes one incident, however many tables it affects.
    """
    part, colon, _ = str(error).partition(": ")
    return part if colon and ":" in part and " " not in part else ""
