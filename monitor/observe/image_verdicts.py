"""Is the image of yesterday there, as late as somebody counts on it?  Pure.

Nothing is said of a day of which there could be none: one that ended before its table had a base,
or before this service ran, unless an older image shows that they are made.  One that was missed
stays so; what ends its incident is the image of the next day.
"""

from datetime import datetime, timedelta

from checks.blocks import Inputs
from checks.model import Outcome, Ruling, Verdict
from checks.readiness import Readiness
from pipeline.checkpoint import Mark
from pipeline.clocks import first_fence
from pipeline.lags.samples import Samples
from pipeline.model import Missing, Order, Table
from pipeline.sources.positions import place

IMAGE = "image"  # the check


def of_image(
    inputs: Inputs, answer: Readiness, due: timedelta, *, started: datetime, at: datetime
) -> Verdict:
    """One verdict on the image of ``answer.cut``, to be there *due* after it.

    *started* is since when this service runs.
    """
    return Verdict(inputs.table.name, IMAGE, _ruling(inputs, answer, due, started, at), at)


def _ruling(
    inputs: Inputs, answer: Readiness, due: timedelta, started: datetime, at: datetime
) -> Ruling:
    if answer.ready:
        return Ruling(Outcome.PASS, "the image of yesterday is there")
    if at < answer.cut + due:
        return Ruling(Outcome.UNKNOWN, "the image of yesterday is not due yet", "not_yet")
    if not _expected(inputs, answer.cut, started):
        told = "no image was made before, and there could be none of yesterday"
        return Ruling(Outcome.UNKNOWN, told, "not_yet")
    hours = (at - answer.cut).total_seconds() / 3600
    why = next((one.text for one in answer.reasons), "nothing says why")
    told = f"the image of the day that ended {hours:.1f} h ago is not ready: {why}"
    return Ruling(Outcome.FAIL, told, "image_missing")


def _expected(inputs: Inputs, cut: datetime, started: datetime) -> bool:
    mirror, mark = inputs.samples.mirror, inputs.samples.mark
    if not isinstance(mirror, Missing) and any(one.cut <= cut for one in mirror.value.images):
        return True
    if started > cut or isinstance(mark, Missing):
        return False
    return _based(inputs.table, cut, inputs.samples, mark.value)


def _based(table: Table, cut: datetime, samples: Samples, mark: Mark) -> bool:
    """Whether each shard had a base by the cut, as far as the newest ones tell."""
    for shard in table.shards:
        fence = first_fence(samples.source(shard.source).known(), cut)
        base, epoch = mark.bases.get(str(shard)), mark.epochs.get(shard.source)
        if fence is None or base is None or epoch is None:
            return False
        if base >= Order(epoch.number, *place(fence.head.position)):
            return False
    return True
