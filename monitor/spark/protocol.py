"""Encodes requests and replies between service and Spark process, one JSON line each.

Requests are numbered. A reply carries the number of its request, and the reply to the opening
is 0. Reports of the pipeline travel as their own dataclasses, and decoding yields an equal
value. A request may hold secrets, so it goes to a pipe only.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from pipeline.apply.image_export import Manifest
from pipeline.archive import NO_WORD, ArchiveWord
from pipeline.backfill_state import BackfillRequest, BackfillState
from pipeline.errors import (
    ConfigError,
    FormatError,
    HeldError,
    ProofError,
    SluiceError,
    UnreachableError,
)
from pipeline.finding import Finding
from pipeline.image import DueCut
from pipeline.invariants import invariant as invariants
from pipeline.reports import LandingReport, MergeReport, SparkWork
from pipeline.resubmissions import Resubmission
from pipeline.settings import PipelineSettings
from pipeline.standards import standard as standards

OPENING = 0
_PLAIN = {kind.__name__: kind for kind in (ConfigError, UnreachableError, FormatError, ProofError)}


class Verb(StrEnum):
    """What the Spark process can be asked to do."""

    OPEN = "open"
    LAND = "land"
    APPLY = "apply"
    APPLY_URGENT = "apply_urgent"
    UPKEEP = "upkeep"
    PUBLISH = "publish"
    REREAD = "reread"
    STOP = "stop"


LINES = (
    Verb.LAND,
    Verb.APPLY,
    Verb.APPLY_URGENT,
    Verb.UPKEEP,
    Verb.PUBLISH,
    Verb.REREAD,
)
"""What is answered side by side, each in a line of its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to do; ``settings`` only opens, ``readers`` only serves upkeep, ``cuts`` merges.

    ``paused`` are tables whose mirrors nothing is written to, ``wanted`` those that somebody waits
    for, ``resubmissions`` corrected messages that are to land, ``archived`` what people said
    of archives.  ``hazards`` are what the process before had seen, by source, and only open.
    """

    id: int
    verb: Verb
    waived: frozenset[str] = frozenset()
    readers: Mapping[str, int] = field(default_factory=dict)
    settings: PipelineSettings | None = None
    cuts: tuple[DueCut, ...] = ()
    rereads: tuple[BackfillRequest, ...] = ()
    paused: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    archived: ArchiveWord = NO_WORD
    resubmissions: tuple[Resubmission, ...] = ()
    hazards: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as values; ``kind`` is its class, ``crash`` if it is unexpected."""

    kind: str
    text: str
    reason: str = ""
    detail: str = ""


CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one request: a report, a failure, or just the end of it.

    ``spark`` is what Spark jobs did since the reply before, by kind of work.  ``hazards`` are
    harmful settings that were seen and are in no mark yet, by source; None if it was not to land.
    """

    id: int
    landed: LandingReport | None = None
    applied: tuple[MergeReport, ...] = ()
    published: tuple[Manifest, ...] = ()
    rereads: tuple[BackfillState, ...] = ()
    failure: Failure | None = None
    spark: Mapping[str, SparkWork] = field(default_factory=dict)
    hazards: Mapping[str, tuple[Finding, ...]] | None = None


_REQUEST = TypeAdapter(Request)
_REPLY = TypeAdapter(Reply)


def dump_request(request: Request) -> bytes:
    """Return one line with its end; it may hold secrets, so write it only to a pipe."""
    return _REQUEST.dump_json(request) + b"\n"


def load_request(line: bytes) -> Request:
    """Read back what :func:`dump_request` wrote; of a plug-in a line has only the name."""
    request = _REQUEST.validate_json(line)
    if request.settings is None:
        return request
    rules = tuple(
        replace(rule, invariants=_built(invariants.find_invariant, rule.invariants))
        for rule in request.settings.invariants
    )
    own = tuple(
        replace(rule, standards=_built(standards.find_standard, rule.standards))
        for rule in request.settings.standards
    )
    settings = replace(request.settings, invariants=rules, standards=own)
    return replace(request, settings=settings)


def _built(
    find: Callable[[str], type], named: Iterable[tuple[str, Any]]
) -> tuple[tuple[str, Any], ...]:
    return tuple((name, TypeAdapter(find(name)).validate_python(one)) for name, one in named)


def dump_reply(reply: Reply) -> bytes:
    """Return one line with its end."""
    return _REPLY.dump_json(reply) + b"\n"


def load_reply(line: bytes) -> Reply:
    """Read back what :func:`dump_reply` wrote."""
    return _REPLY.validate_json(line)


def as_failure(error: Exception) -> Failure:
    """Name *error* so that the other side can raise it again."""
    if isinstance(error, HeldError):
        return Failure("HeldError", str(error), error.reason, error.detail)
    for kind in type(error).__mro__:
        if kind.__name__ in _PLAIN:
            return Failure(kind.__name__, str(error))
    return Failure(CRASH, f"{type(error).__name__}: {error}"[:2000])


def as_error(failure: Failure) -> SluiceError:
    """The error to raise here for a failure over there; a crash may pass, so it is unreachable."""
    if failure.kind == "HeldError":
        return HeldError(failure.reason, failure.detail)
    return _PLAIN.get(failure.kind, UnreachableError)(failure.text)
