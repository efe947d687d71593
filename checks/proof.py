"""Proves from positions that a stage holds every change committed before a cut.

The first heartbeat after the cut is the fence of the cut. A batch covers the fence when two
things hold: the heartbeat has landed, and W has passed the end offsets. These offsets were
listed after the collector had acknowledged the position of the fence. The mirror holds the cut
when it is applied through a covering batch. Landed changes stay landed, so any remembered
covering batch may serve.

An image is a version of the mirror. It holds everything below the fence that it names, if a
batch had covered that fence. `imageless` also checks that the image is kept and belongs to the
cut.

Without log positions, a redelivered change looks new until the newer change has been
redelivered too. Only heartbeats reveal this: a falling number means that the log is being
resent, until the numbers have climbed back. Behind the newest heartbeat, nothing shows yet
whether the next number is higher. So a mirror is trusted only after a heartbeat higher than all
earlier ones has landed after its batch.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from checks.certificate import Evidence
from checks.model import Reason
from pipeline.checkpoint import Checkpoint, Incarnations
from pipeline.clocks import first_fence
from pipeline.heartbeats import HeartbeatHistory
from pipeline.image import Image, find_missing, shards_digest
from pipeline.lags.samples import (
    LandedBatch,
    MirrorPosition,
    Samples,
    explain_future_fence,
    require_active_fences,
    require_fresh,
)
from pipeline.model import Fence, Missing, Order, Stage, Table, TopicPartition


def missing_image_reasons(
    table: Table,
    cut: datetime,
    samples: Samples,
    standing: MirrorPosition,
    checkpoint: Checkpoint,
    *,
    now: datetime,
) -> Iterator[Reason]:
    """Yield why an image of *cut* may not be read; nothing if it exists, is kept and fits."""
    image = standing.image(cut)
    if image is None:
        yield Reason("no_image", f"the mirror has no image of the cut {cut.isoformat()}")
    elif not image.held(now):
        yield Reason("image_old", f"the image was kept until {image.until.isoformat()}")
    elif image.left_out:
        count = sum(one.rows for one in image.left_out)
        text = f"{count} changes from before the cut landed after the image was made"
        yield Reason("image_late", text)
    elif why := _unbased(table, image, checkpoint):
        yield Reason("image_unbased", why)
    else:
        own = {fence.source: fence for fence in image.fences}
        for source in table.sources:
            if not _is_confirmed(own.get(source), samples.source(source).known(), cut):
                text = f"source {source}: the heartbeat that the image goes by is not after the cut"
                yield Reason("image_misplaced", text)


def doubtful_image_reasons(
    cut: datetime, samples: Samples, bad_until: Mapping[str, datetime]
) -> Iterator[Reason]:
    """Yield why an uncertified image may lack rows: a check failed after it was made.

    *bad_until*: gating check -> end of its last FAIL.  A repair changes the mirror, and not the
    image.
    """
    image = None if isinstance(samples.mirror, Missing) else samples.mirror.value.image(cut)
    if image is None:
        return
    for check, until in sorted(bad_until.items()):
        if until > image.made:
            text = f"{check} failed after the image was made, until {until.isoformat()}"
            yield Reason("image_doubted", text)


def _unbased(table: Table, image: Image, checkpoint: Checkpoint) -> str:
    """Why the image may lack changes from before its cut, judged from bases; empty if not.

    When the image was made, all of its shards had a base.
    """
    if any(source not in image.positions for source in table.sources):
        return "the image is of other sources"
    same = image.shards == shards_digest(table.shards)
    lowest = Order(0, 0, 0)
    return find_missing(
        table, image.positions, checkpoint, dict.fromkeys(table.shards, lowest) if same else {}
    )


def _is_confirmed(fence: Fence | None, known: Sequence[Fence], cut: datetime) -> bool:
    """Whether *fence* is after the cut, and no later fence of *known* is before the cut."""
    if fence is None or fence.at < cut:
        return False
    return not any(one.number > fence.number and one.at < cut for one in known)


def image_evidence(
    landed: Evidence, standing: MirrorPosition, cut: datetime, checkpoint: Checkpoint
) -> Evidence:
    """Evidence for a certificate of the image; *landed* if there is no image."""
    image = standing.image(cut)
    if image is None:
        return landed
    return replace(
        landed,
        fences=image.fences,
        batch=image.through,
        version=image.version,
        mirror=standing.mirror,
        life=Incarnations.of(checkpoint.incarnations).at(image.through),
        path=image.path,
    )


UNWRITTEN = ("cut_ahead", "no_fence")  # reasons why there is no heartbeat for the cut


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a stage holds a cut; ``holds`` is absent when an input is missing."""

    holds: bool | None
    reasons: tuple[Reason, ...] = ()
    evidence: Evidence | None = None


def prove(table: Table, stage: Stage, cut: datetime, samples: Samples, now: datetime) -> Proof:
    """Whether *stage* of *table* holds everything committed before *cut*."""
    landed = _proof_of_landing(table, cut, samples, now)
    if stage is Stage.LANDED:
        return landed
    standing, checkpoint, evidence = (
        require_fresh(samples.mirror, now),
        samples.checkpoint,
        landed.evidence,
    )
    if isinstance(standing, Missing):
        return Proof(None, _with_unknown_mirror(standing, landed))
    if evidence is None or isinstance(checkpoint, Missing):
        return landed
    if stage is Stage.IMAGE:
        reasons = tuple(one for one in landed.reasons if one.code in UNWRITTEN) or tuple(
            missing_image_reasons(table, cut, samples, standing, checkpoint.value, now=now)
        )
        return Proof(
            not reasons, reasons, image_evidence(evidence, standing, cut, checkpoint.value)
        )
    reasons = landed.reasons or _unapplied(table, evidence, cut, samples, standing)
    return Proof(not reasons, reasons, _evidence(evidence, standing))


def _proof_of_landing(table: Table, cut: datetime, samples: Samples, now: datetime) -> Proof:
    """The landing proof, which every stage needs; most tables of the same sources share it."""
    if samples.walked(table) is samples.steps_of(table):
        key = ("landed", table.sources, cut, now)
        return samples.once(key, lambda: _landing(table, cut, samples, now))
    return _landing(table, cut, samples, now)


def _landing(table: Table, cut: datetime, samples: Samples, now: datetime) -> Proof:
    checkpoint = require_fresh(samples.checkpoint, now)
    fences = {source: _fence(source, cut, samples, now) for source in table.sources}
    if isinstance(checkpoint, Missing) or any(
        isinstance(fence, Missing) for fence in fences.values()
    ):
        return Proof(None, tuple(_missing(checkpoint, fences)))
    known = {source: fence for source, fence in fences.items() if isinstance(fence, Fence)}
    evidence = samples.once(
        ("evidence", table.sources, cut), lambda: _landed_evidence(known, checkpoint)
    )
    reasons = tuple(_unwritten(fences, cut, now))
    if not reasons and not _find_landed(table, known, cut, samples):
        behind = Reason("not_landed", "the cut's heartbeat is not proven landed yet")
        reasons = (behind, *_read_anew(checkpoint, known))
    return Proof(not reasons, reasons, evidence)


def landed_offsets(checkpoint: Checkpoint, topics: frozenset[str]) -> Mapping[str, int]:
    """W by ``topic:partition``, in the partitions of *topics*; in all if *topics* is empty."""
    if not topics:
        return {str(at): end.offset for at, end in checkpoint.offsets.items()}
    return dict(_own(checkpoint, topics))


def _own(checkpoint: Checkpoint, topics: Iterable[str]) -> Iterator[tuple[str, int]]:
    """W by partition of *topics*, by number: a checkpoint has thousands of other partitions."""
    for topic in sorted(topics):
        for number in count():
            at = TopicPartition(topic, number)
            if at not in checkpoint.offsets and at not in checkpoint.gone:
                break
            if at in checkpoint.offsets:
                yield str(at), checkpoint.offsets[at].offset


def _fence(source: str, cut: datetime, samples: Samples, now: datetime) -> Fence | Missing | None:
    """The source's first fence after the cut; None while active heartbeats have not reached it."""
    one = samples.source(source)
    found = explain_future_fence(one.known(), now) or samples.once(
        ("fence", source, cut), lambda: first_fence(one.known(), cut)
    )
    if found or cut > now:
        return found
    fences = require_active_fences(one, now)
    return fences if isinstance(fences, Missing) else None


def _missing(
    checkpoint: Checkpoint | Missing, fences: Mapping[str, Fence | Missing | None]
) -> Iterator[Reason]:
    if isinstance(checkpoint, Missing):
        yield Reason("no_mark", f"what is landed is unknown: {checkpoint.why}")
    for source, fence in fences.items():
        if isinstance(fence, Missing):
            yield Reason("no_heartbeat", f"source {source}: {fence.why}")


def _with_unknown_mirror(standing: Missing, landed: Proof) -> tuple[Reason, ...]:
    """What is missing, upstream first: checkpoint, mirror, heartbeats."""
    known = () if landed.holds is not None else landed.reasons
    no_checkpoint = tuple(one for one in known if one.code == "no_mark")
    mirror = Reason("no_mirror", f"how far the mirror is merged is unknown: {standing.why}")
    return (*no_checkpoint, mirror, *known[len(no_checkpoint) :])


def _unwritten(
    fences: Mapping[str, Fence | Missing | None], cut: datetime, now: datetime
) -> Iterator[Reason]:
    if cut > now:
        yield Reason("cut_ahead", f"the cut {cut.isoformat()} is in the future")
    for source, fence in fences.items():
        if fence is None:
            yield Reason("no_fence", f"source {source}: no heartbeat after the cut yet")


def _unapplied(
    table: Table, evidence: Evidence, cut: datetime, samples: Samples, standing: MirrorPosition
) -> tuple[Reason, ...]:
    fences = {fence.source: fence for fence in evidence.fences}
    landed = _find_landed(table, fences, cut, samples)
    if any(step.holds(table.name, standing.batch) for step in landed):
        return ()
    batches = f"through batch {standing.batch}, and the cut landed in batch {landed[0].batch}"
    text = f"the mirror is applied {batches}; wait for its next merge"
    return (Reason("not_applied", text),)


def _find_landed(
    table: Table, fences: Mapping[str, Fence], cut: datetime, samples: Samples
) -> Sequence[LandedBatch]:
    """The steps that concern *table* and prove that the cut landed, ascending by batch."""
    since = samples.walked(table)[0].batch  # the end of the steps that all tables share

    def covering() -> tuple[LandedBatch, ...]:
        return tuple(step for step in samples.steps_of(table) if _covers(step, fences, cut))

    found = samples.once(("covering", table.sources, cut), covering)
    return found[bisect_left(found, since, key=lambda step: step.batch) :]


def _read_anew(checkpoint: Checkpoint, sources: Iterable[str]) -> Iterator[Reason]:
    """Open snapshots of *sources*: until they end, rows deleted before them may still be there.

    An abandoned snapshot never ends, unless it is started again or waived.
    """
    for shard in sorted(checkpoint.snaps, key=str):
        if shard.source in sources:
            snap = checkpoint.snaps[shard]
            text = f"the snapshot of {shard} is not complete, {snap.rows} rows came so far"
            yield Reason("snapshot", text, snap.waiver(shard))


def _covers(step: LandedBatch, fences: Mapping[str, Fence], cut: datetime) -> bool:
    return all(_is_past(step.passed.get(source), fence, cut) for source, fence in fences.items())


def _is_past(passed: Fence | None, fence: Fence, cut: datetime) -> bool:
    """Whether *passed* proves *fence*: same log and not below it, or any fence after the cut."""
    if passed is None:
        return False
    same = passed.head.identity == fence.head.identity
    return passed.at >= cut or (same and passed.number >= fence.number)


def _landed_evidence(fences: Mapping[str, Fence], checkpoint: Checkpoint) -> Evidence:
    ordered = tuple(fences[source] for source in sorted(fences))
    life = Incarnations.of(checkpoint.incarnations).at(checkpoint.batch)
    return Evidence(ordered, checkpoint.batch, life=life)


def _evidence(landed: Evidence, standing: MirrorPosition) -> Evidence:
    return Evidence(
        landed.fences,
        landed.batch,
        standing.version,
        standing.batch,
        mirror=standing.mirror,
        life=landed.life,
    )


CODE = "sent_again"


def resent_reasons(table: Table, stage: Stage, samples: Samples) -> tuple[Reason, ...]:
    """Why *table* may have older rows now, even in what a certificate covers."""
    return tuple(
        reason
        for source, trail in _trails(table, samples)
        for reason in _explain_resending(source, trail, table, stage, samples)
    )


def unconfirmed_reasons(table: Table, stage: Stage, samples: Samples) -> tuple[Reason, ...]:
    """Why it is unknown yet whether the content of the mirror was sent again."""
    applied = _applied_batch(stage, samples)
    late = "no heartbeat has landed yet after everything that was listed with"
    return tuple(
        Reason(CODE, f"source {source}: {late} batch {applied}")
        for source, trail in _trails(table, samples)
        if applied is not None and trail.waits and trail.known < applied
    )


def _batch_behind(table: Table, stage: Stage, samples: Samples) -> int | None:
    """The batch that the stage is applied through; None unless a newer change of *table* landed."""
    applied = _applied_batch(stage, samples)
    if applied is None or isinstance(samples.checkpoint, Missing):
        return None
    return applied if applied < samples.checkpoint.value.tables.get(table.name, -1) else None


def _explain_resending(
    source: str, trail: HeartbeatHistory, table: Table, stage: Stage, samples: Samples
) -> Iterator[Reason]:
    if trail.resending or trail.divided:
        detail = f"heartbeat {trail.last} came after {trail.highest}"
        yield Reason(CODE, f"source {source}: its log is being sent again, as {detail}")
        return
    applied = _batch_behind(table, stage, samples) if trail.over >= 0 else None
    if applied is not None and applied < trail.over:
        text = f"its log was sent again until batch {trail.over}, and the mirror is applied through"
        yield Reason(CODE, f"source {source}: {text} batch {applied}; wait for its next merge")


def _trails(table: Table, samples: Samples) -> Iterable[tuple[str, HeartbeatHistory]]:
    if isinstance(samples.checkpoint, Missing):
        return ()
    histories = samples.checkpoint.value.heartbeat_histories
    return tuple((source, histories[source]) for source in table.sources if source in histories)


def _applied_batch(stage: Stage, samples: Samples) -> int | None:
    """The applied batch of mirror or copy; None for another stage, or if it is not known."""
    if stage not in (Stage.MIRROR, Stage.COPY) or isinstance(samples.mirror, Missing):
        return None
    return samples.mirror.value.batch
