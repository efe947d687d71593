"""Find a probe by name, and run it once: always a verdict or "nothing new", never an exception.

Limits on time and rows are enforced by the readers a probe is given; here its time is measured
too.  A PASS that came too late counts as UNKNOWN, because its two sides may lie far apart.  A FAIL
counts however late it came: what a probe has confirmed is no less lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Protocol, TypeVar, cast

import structlog

from checks import probes
from checks.model import FailKind, NotYet, Outcome, Ruling, Undecided, Verdict
from checks.world import World
from pipeline import plugins
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Fence, Table

STEP = timedelta(seconds=1)
"""A clock that differs by more from a timer, during one round, was set."""
log = structlog.get_logger(__name__)


class Reading(Protocol):
    """What a probe measured.  ``value`` is its one number for history and graphs.

    One that also has ``ended``, an instant by the world's clock, is timed up to then: what the
    probe reads after it for its next round does not count against its limit.  One that also has
    ``verified`` states what the probe has compared so far.  One that is ``suspicious`` is not all:
    the probe has to look at more again, and does so at once.  One may name the ``cause`` that an
    UNKNOWN of it has: the part that other tables share.
    """

    @property
    def value(self) -> float | None:
        """The number kept for history; None when the reading has none."""
        ...

    @property
    def as_of(self) -> tuple[Fence, ...]:
        """The fences, one per source, that the compared mirror holds; may be empty."""
        ...


R = TypeVar("R", bound=Reading)


class Probe(Protocol[R]):
    """One question about one table; its settings are its dataclass fields.

    ``every`` is the usual pause between two rounds on a table; whether a FAIL blocks readiness
    by default is ``gating``.  Both belong to the question, so they are no settings of it.
    A class whose FAIL is a loss says ``kind = FailKind.LOST``; without it a FAIL is a suspicion.
    """

    every: ClassVar[timedelta]
    gating: ClassVar[bool]

    @property
    def limit(self) -> timedelta:
        """Longest time one round may take."""
        ...

    def measure(self, table: Table, world: World) -> R | NotYet | Undecided:
        """Look once.

        Raises:
            UnreachableError: a side did not answer; the verdict is UNKNOWN.
            ProofError: it answered, but the question cannot be decided; UNKNOWN too.
        """
        ...

    def judge(self, reading: R, past: Sequence[float]) -> Ruling:
        """Rule on *reading*; *past* holds earlier values, oldest first, if it looks back.  Pure."""
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
    """Return the probe class of that name; ConfigError if it is unknown."""
    return cast("type[Probe[Any]]", plugins.find_class(probes, "PROBE", name))


def is_whole(name: str) -> bool:
    """Whether a PASS of that probe has looked at all rows: its class says ``whole = True``.

    Only such a PASS spares older certificates from a later FAIL.
    """
    return bool(getattr(find_probe(name), "whole", False))


def runs_by_default(name: str) -> bool:
    """Whether that probe runs without a section of its own: its class may say ``by_default``."""
    return bool(getattr(find_probe(name), "by_default", True))


def kind_of(probe: Probe[Any] | type[Probe[Any]]) -> FailKind:
    """What a FAIL of *probe* means: a suspicion, unless its class says ``kind``."""
    return FailKind(getattr(probe, "kind", FailKind.SUSPECT))


def looks_back(probe: Probe[Any]) -> int:
    """How many earlier values its ``judge`` is given: none but where it says ``looks_back = n``.

    All of its values are kept then, and they are asked of the store each time.
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

    ``elapsed`` is a timer in seconds that no step of the world's clock moves.
    """
    started, began = world.clock(), elapsed() if elapsed else 0.0
    measured = _measure(check, world, past)
    if isinstance(measured, NotYet):
        return measured
    ruling, reading, cause = measured
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
    """Ruling, reading and cause of one round; the one place where a probe's errors end."""
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


def _unknown(code: str, why: str) -> Ruling:
    return Ruling(Outcome.UNKNOWN, why, code)


def _cause(error: UnreachableError) -> str:
    """The part that did not answer, if the message begins with one: ``source:shop: why``.

    One cause makes one incident, however many tables it reaches.
    """
    part, colon, _ = str(error).partition(": ")
    return part if colon and ":" in part and " " not in part else ""
