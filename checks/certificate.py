"""Defines a stored READY answer with its evidence, and decides what revokes it.

A certificate answers its cut until it is revoked, even if samples go missing later.

Its evidence must still exist: its version of the mirror, image or copy, and its batches. A FAIL
of a gating check revokes it too, and so does a heartbeat whose time proved wrong.
"""

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime

from checks.model import Outcome, Verdict
from pipeline.apply.foreign_commits import FOREIGN_WRITE
from pipeline.checkpoint import Incarnations
from pipeline.clocks import ClockStep
from pipeline.copies.copy import CopyPosition
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Fence, Ordering, Stage, stage_name


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a certificate rests on.

    ``fences`` are the fences of the cut, one per source.
    ``batch`` is the newest landed batch, and ``offsets`` its W in the partitions of the table.
    ``version`` is the version of the mirror and ``applied`` its batch; both are None for `landed`.
    ``mirror`` is the id of the mirror's table.
    ``life`` is the incarnation that landed the batch. A change log that lost the batch may have
    given its number to another one.
    For `image`, ``fences``, ``batch`` and ``version`` are those of the image, and ``applied`` is
    None. ``path`` is the folder to which the image is exported; empty if it is not.
    For `copy`, ``version`` and ``applied`` are those that the copy named ``copy`` holds.
    ``ordering`` is what the order of the table's changes rests on. Anything weaker than log
    positions proves less.
    ``verified_through``: each row changed before then had been compared with its source; None
    except for `mirror`.
    ``waived`` are the ids of what would have blocked it, or made it UNKNOWN, without a waiver.
    """

    fences: tuple[Fence, ...]
    batch: int
    version: int | None = None
    applied: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    mirror: str = ""
    life: int | None = None
    path: str = ""
    copy: str = ""
    ordering: Ordering = Ordering.LOG
    verified_through: datetime | None = None
    waived: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Certificate:
    """READY for one table, stage and cut, as issued.

    ``unknown`` lists gating checks that had no ruling then. ``revoked`` is the time from which it
    no longer holds, ``why`` the reason.
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


@dataclass(frozen=True, slots=True)
class CertificateBasis:
    """The last known state of everything that a table's certificates rest on.

    ``mirror`` is the position of the mirror, or the reason why it cannot be read; None if no answer
    came.
    ``batch`` is the newest batch of the change log; None if it is not known.
    ``incarnations`` name the incarnation that landed each batch, as in `Checkpoint.incarnations`.
    ``ruled`` is the newest batch from which changed rules send a shard to the table that has no
    base there yet; -1 without such a shard.
    ``copies`` has the position of each copy that answered; None if it holds nothing of the table.
    ``lacking`` are the copies that miss rows according to the ledger.
    """

    mirror: MirrorPosition | str | None
    batch: int | None
    incarnations: Mapping[str, int] = field(default_factory=dict)
    ruled: int = -1
    copies: Mapping[str, CopyPosition | None] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()


def certify(
    table: str,
    stage: Stage,
    cut: datetime,
    *,
    issued: datetime,
    evidence: Evidence,
    unknown: tuple[str, ...],
) -> Certificate:
    """Return a certificate whose id depends only on table, stage, copy, cut and time of issue."""
    about = stage_name(stage, evidence.copy)
    text = "|".join((table, about, cut.isoformat(), issued.isoformat()))
    name = hashlib.sha256(text.encode()).hexdigest()[:20]
    return Certificate(name, table, stage, cut, issued, evidence, unknown)


def revoke_failed(
    fail: Verdict, certificates: Iterable[Certificate], last_pass: Verdict | None
) -> tuple[Certificate, ...]:
    """Return the certificates that *fail*, a FAIL of a gating check, revokes, marked as revoked.

    These are the valid certificates of its table that *last_pass* does not cover: issued since
    then, or not wholly below its position. *last_pass* is the check's last PASS over all rows;
    without one, all are revoked.
    Certificates above the position of the FAIL are revoked too. A check reads slightly behind the
    newest heartbeat, and rows that are lost there stay lost above it until they are repaired.
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
    )


MOST_IDS = 3  # ids in the reason of a revocation
WAIVER_ENDED = "a waiver that it rests on has ended: "


def revoke_waived(
    certificates: Iterable[Certificate],
    blocking: AbstractSet[str],
    waived: AbstractSet[str],
    at: datetime,
) -> tuple[Certificate, ...]:
    """Return the certificates that rest on a waiver that has ended, marked as revoked.

    *blocking* are ids of reasons that are not *waived*. Once they no longer block, perhaps because
    a new base has read the rows, the version of such a certificate still does not have them. A
    version with a foreign commit has its rows also once the mirror was restored.
    """
    valid = (one for one in certificates if one.revoked is None)
    ended = ((one, _find_ended(one.evidence.waived, blocking, waived)) for one in valid)
    return tuple(
        replace(one, revoked=at, why=f"{WAIVER_ENDED}{', '.join(ids[:MOST_IDS])}")
        for one, ids in ended
        if ids
    )


def _find_ended(
    ids: Iterable[str], blocking: AbstractSet[str], waived: AbstractSet[str]
) -> list[str]:
    return [
        one
        for one in ids
        if one in blocking or (one.startswith(FOREIGN_WRITE) and one not in waived)
    ]


def is_of_wrong_image(
    revoked: Certificate | None, found: Evidence | None, waived: frozenset[str]
) -> bool:
    """Whether the revoked certificate belongs to the image that still exists.

    A repair changes the mirror, and never an older version of it; a corrected image rests on a
    later batch. An image that was ready under a waiver is so again once that is *waived* again.
    """
    if revoked is None or found is None or revoked.stage is not Stage.IMAGE:
        return False
    before = revoked.evidence
    if revoked.why.startswith(WAIVER_ENDED) and waived.issuperset(before.waived):
        return False
    same = (before.mirror, before.version) == (found.mirror, found.version)
    return same and before.batch == found.batch


def revoke_lost(
    certificates: Iterable[Certificate], ground: CertificateBasis, at: datetime
) -> tuple[Certificate, ...]:
    """Return the certificates whose evidence is gone, marked as revoked *at* now."""
    valid = (one for one in certificates if one.revoked is None)
    explained = ((one, _explain_lost(one, ground, at)) for one in valid)
    return tuple(replace(one, revoked=at, why=why) for one, why in explained if why)


def revoke_misdated(
    certificates: Iterable[Certificate], step: ClockStep
) -> tuple[Certificate, ...]:
    """Return the certificates that rest on a heartbeat that *step* misdated, marked as revoked."""
    why = f"the clocks of source {step.source} and Sluice went back at heartbeat {step.number}"
    return tuple(
        replace(one, revoked=step.after, why=why)
        for one in certificates
        if one.revoked is None and any(step.fells(fence) for fence in one.evidence.fences)
    )


def _explain_lost(one: Certificate, ground: CertificateBasis, at: datetime) -> str:
    """Why what *one* certifies cannot be read; empty if it still can."""
    why = _batch_lost(one.evidence, ground)
    if not why and one.stage is Stage.COPY and one.evidence.copy in ground.lacking:
        why = f"copy {one.evidence.copy} did not take over all rows, as the ledger of it counts"
    if why or ground.mirror is None:
        return why
    if isinstance(ground.mirror, MirrorPosition) and (late := _explain_late(one, ground.mirror)):
        return late
    if one.stage is Stage.LANDED:
        return ""
    if one.stage is Stage.IMAGE:
        return _image_lost(one, ground.mirror, at)
    if one.stage is Stage.COPY and one.evidence.copy in ground.copies:
        return _copy_lost(one.evidence, ground.copies[one.evidence.copy])
    return _mirror_lost(one, ground.mirror)


def _batch_lost(evidence: Evidence, ground: CertificateBasis) -> str:
    if ground.batch is None:
        return ""
    if ground.batch < evidence.batch:
        return (
            f"the change log ends at batch {ground.batch}, but the certificate rests"
            f" on {evidence.batch}"
        )
    life = Incarnations.of(ground.incarnations).at(evidence.batch)
    if None not in (life, evidence.life) and life != evidence.life:
        return f"the change log has lost batch {evidence.batch}, and another batch has its number"
    if evidence.batch < ground.ruled:
        return f"since batch {ground.ruled} the rules send it a shard that it did not have"
    return ""


def _explain_late(one: Certificate, mirror: MirrorPosition) -> str:
    image = mirror.image(one.cut)
    late_batches = () if image is None else image.late
    count = sum(late.rows for late in late_batches if late.batch > one.evidence.batch)
    return f"{count} changes from before its cut landed after it" if count else ""


def _image_lost(one: Certificate, mirror: MirrorPosition | str, at: datetime) -> str:
    why = _other_mirror(one.evidence, mirror)
    if why or isinstance(mirror, str):
        return why
    image = mirror.image(one.cut)
    if image is None:
        return "the mirror has no image of that cut any more"
    if not image.held(at):
        return f"the image was kept until {image.until.isoformat()}"
    if image.version != one.evidence.version:
        return f"the image of that cut is version {image.version} now"
    if image.path != one.evidence.path:
        return f"the image of that cut is read at {image.path or 'its mirror'} now"
    return ""


def _copy_lost(evidence: Evidence, at: CopyPosition | None) -> str:
    """Why the copy no longer holds what it held: emptied, loaded again, replaced or set back."""
    if at is None or not at.whole:
        return f"copy {evidence.copy} was emptied, or is loaded again"
    if at.mirror != evidence.mirror:
        return f"copy {evidence.copy} now belongs to table {at.mirror}"
    if at.version < (evidence.version or 0):
        return (
            f"copy {evidence.copy} holds version {at.version}, but the certificate"
            f" names {evidence.version}"
        )
    return ""


def _other_mirror(evidence: Evidence, mirror: MirrorPosition | str) -> str:
    if isinstance(mirror, str):
        return f"its mirror cannot be read: {mirror}"
    if mirror.mirror != evidence.mirror or not evidence.mirror:
        return (
            f"the mirror is another Delta table now ({mirror.mirror}), so its rows are not proven"
        )
    return ""


def _mirror_lost(one: Certificate, mirror: MirrorPosition | str) -> str:
    evidence = one.evidence
    why = _other_mirror(evidence, mirror)
    if why or isinstance(mirror, str):
        return why
    if evidence.version is None or mirror.version < evidence.version:
        return (
            f"the mirror is at version {mirror.version}, but the certificate names"
            f" {evidence.version}"
        )
    if evidence.applied is None or mirror.batch < evidence.applied:
        return (
            f"the mirror holds batch {mirror.batch}, but the certificate rests on"
            f" {evidence.applied}"
        )
    if mirror.put_back is not None and one.issued < mirror.put_back:
        return (
            f"the mirror was put back to an older version; {evidence.version} may be another"
            " commit now"
        )
    return ""


def _covered(one: Certificate, last_pass: Verdict) -> bool:
    """Whether the PASS covers everything that *one* certifies.

    A certificate issued at the time of the PASS or later is not covered.
    """
    if one.issued >= last_pass.at or not one.evidence.fences:
        return False
    highest = {fence.source: fence for fence in last_pass.as_of}
    return all(_under(fence, highest.get(fence.source)) for fence in one.evidence.fences)


def _under(fence: Fence, limit: Fence | None) -> bool:
    if limit is None or limit.head.identity != fence.head.identity:
        return False
    return fence.number < limit.number
