"""A stored READY answer with its evidence, and what takes it back.

A certificate answers its cut until it is revoked, whatever samples go missing later.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from checks.model import Outcome, Verdict
from checks.proof import Evidence
from pipeline.model import Fence, Stage


@dataclass(frozen=True, slots=True)
class Certificate:
    """READY for one table, stage and cut, as issued.

    ``unknown`` lists gating checks that had no ruling then; ``revoked`` says since when it no
    longer holds, ``why`` what took it back.
    """

    id: str
    table: str
    stage: Stage
    cut: datetime
    issued: datetime
    evidence: Evidence
    unknown: tuple[str, ...] = ()
    revoked: datetime | None = None
    why: str = ""


def certify(
    table: str,
    stage: Stage,
    cut: datetime,
    *,
    issued: datetime,
    evidence: Evidence,
    unknown: tuple[str, ...],
) -> Certificate:
    """A certificate whose id depends on nothing but what it answers and when."""
    text = "|".join((table, stage, cut.isoformat(), issued.isoformat()))
    name = hashlib.sha256(text.encode()).hexdigest()[:20]
    return Certificate(name, table, stage, cut, issued, evidence, unknown)


def revocations(
    fail: Verdict, certificates: Iterable[Certificate], last_pass: Verdict | None
) -> tuple[Certificate, ...]:
    """Those that *fail*, of a gating check, takes back, marked so.

    They are the valid ones of its table, at or below the position it holds as of, that the
    check's last PASS did not cover: issued since, or not wholly below the position that it held
    as of.  Without a PASS ever, or without a position, all of them.
    """
    if fail.ruling.outcome is not Outcome.FAIL:
        return ()
    why = f"{fail.check}: {fail.ruling.reason}"
    return tuple(
        replace(one, revoked=fail.at, why=why)
        for one in certificates
        if one.table == fail.table
        and one.revoked is None
        and not (last_pass and _covered(one, last_pass))
        and _at_or_below(one.evidence.fences, fail.as_of)
    )


def _covered(one: Certificate, last_pass: Verdict) -> bool:
    """Whether the PASS looked at all that *one* promised; what came meanwhile it did not see."""
    if one.issued >= last_pass.at or not one.evidence.fences:
        return False
    highest = {fence.source: fence for fence in last_pass.as_of}
    return all(_under(fence, highest.get(fence.source)) for fence in one.evidence.fences)


def _under(fence: Fence, limit: Fence | None) -> bool:
    if limit is None or limit.head.identity != fence.head.identity:
        return False
    return fence.number < limit.number


def _at_or_below(fences: Iterable[Fence], limit: Iterable[Fence]) -> bool:
    """Whether no fence is above its source's limit; positions of two servers count as below."""
    highest = {fence.source: fence for fence in limit}
    return not any(_above(fence, highest.get(fence.source)) for fence in fences)


def _above(fence: Fence, limit: Fence | None) -> bool:
    if limit is None or limit.head.identity != fence.head.identity:
        return False
    return fence.number > limit.number
