"""May an older row stand in a mirror because its log is being sent again?

Where changes bear no place in the log, one that is sent again is taken for a new one, until the
newer one has come again, too.  Heartbeats tell: a number that falls is a log that is sent again,
until they have climbed back; and of what came behind the newest one nobody knows yet whether the
next is a higher one.  So a mirror is believed once a heartbeat has landed after its batch that is
higher than all before.  Pure.
"""

from collections.abc import Iterable, Iterator

from checks.model import Reason
from pipeline.heartbeats import BeatTrail
from pipeline.lags.samples import Samples
from pipeline.model import Missing, Stage, Table

CODE = "sent_again"


def sent_again(table: Table, stage: Stage, samples: Samples) -> tuple[Reason, ...]:
    """Why older rows may stand in *table* now; also of what a certificate was given for."""
    behind = _behind(table, stage, samples)
    return tuple(
        reason
        for source, trail in _trails(table, samples)
        for reason in _again(source, trail, behind)
    )


def unconfirmed(table: Table, stage: Stage, samples: Samples) -> tuple[Reason, ...]:
    """Why nobody knows yet whether what the mirror holds was sent again."""
    applied = _applied(stage, samples)
    late = "no heartbeat has come yet behind all that was listed with"
    return tuple(
        Reason(CODE, f"source {source}: {late} batch {applied}")
        for source, trail in _trails(table, samples)
        if applied is not None and trail.waits and trail.known < applied
    )


def _behind(table: Table, stage: Stage, samples: Samples) -> int | None:
    """The batch that it is applied through, if there is a change of *table* above it."""
    applied = _applied(stage, samples)
    if applied is None or isinstance(samples.mark, Missing):
        return None
    return applied if applied < samples.mark.value.tables.get(table.name, -1) else None


def _again(source: str, trail: BeatTrail, applied: int | None) -> Iterator[Reason]:
    if trail.resending or trail.divided:
        told = f"heartbeat {trail.last} came behind {trail.highest}"
        yield Reason(CODE, f"source {source}: its log is being sent again: {told}")
    elif applied is not None and applied < trail.over:
        told = f"applied through batch {applied}; its log was sent again until {trail.over}"
        yield Reason(CODE, f"source {source}: {told}")


def _trails(table: Table, samples: Samples) -> Iterable[tuple[str, BeatTrail]]:
    if isinstance(samples.mark, Missing):
        return ()
    beats = samples.mark.value.beats
    return tuple((source, beats[source]) for source in table.sources if source in beats)


def _applied(stage: Stage, samples: Samples) -> int | None:
    """The batch of the mirror, or of the copy; None where it is not asked for, or not known."""
    if stage not in (Stage.MIRROR, Stage.COPY) or isinstance(samples.mirror, Missing):
        return None
    return samples.mirror.value.batch
