"""Is a mirror's image of a cut there, kept, and really of that cut?  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from checks.evidence import Evidence
from checks.model import Reason
from pipeline.checkpoint import Lives, Mark
from pipeline.image import Image, digest, lacking
from pipeline.lags.samples import MirrorPosition, Samples
from pipeline.model import Fence, Missing, Order, Table


def imageless(
    table: Table,
    cut: datetime,
    samples: Samples,
    standing: MirrorPosition,
    mark: Mark,
    *,
    now: datetime,
) -> Iterator[Reason]:
    """Why nobody may read an image of *cut*; nothing if it is there, kept and of that cut."""
    image = standing.image(cut)
    if image is None:
        yield Reason("no_image", f"the mirror has no image of the cut {cut.isoformat()}")
    elif not image.held(now):
        yield Reason("image_old", f"the image was kept until {image.until.isoformat()}")
    elif image.left_out:
        count = sum(one.rows for one in image.left_out)
        text = f"{count} changes from before the cut landed after the image was made"
        yield Reason("image_late", text)
    elif why := _unbased(table, image, mark):
        yield Reason("image_unbased", why)
    else:
        own = {fence.source: fence for fence in image.fences}
        for source in table.sources:
            if not _stands(own.get(source), samples.source(source).known(), cut):
                text = f"source {source}: the heartbeat that the image goes by is not after the cut"
                yield Reason("image_misplaced", text)


def doubted(cut: datetime, samples: Samples, bad_until: Mapping[str, datetime]) -> Iterator[Reason]:
    """Why an image that nobody was told of may lack rows: a check failed when it was there already.

    *bad_until*: gating check -> until when its last FAIL stood.  What put that right went into the
    mirror, and not into the image.
    """
    image = None if isinstance(samples.mirror, Missing) else samples.mirror.value.image(cut)
    if image is None:
        return
    for check, until in sorted(bad_until.items()):
        if until > image.made:
            text = f"{check} failed after the image was made, until {until.isoformat()}"
            yield Reason("image_doubted", text)


def _unbased(table: Table, image: Image, mark: Mark) -> str:
    """Why the image may lack changes from before its cut, as far as bases tell; empty if not.

    Whoever made it saw that the shards which it is of had a base by then.
    """
    if any(source not in image.positions for source in table.sources):
        return "the image is of other sources"
    same = image.shards == digest(table.shards)
    lowest = Order(0, 0, 0)
    return lacking(
        table, image.positions, mark, dict.fromkeys(table.shards, lowest) if same else {}
    )


def _stands(fence: Fence | None, known: Sequence[Fence], cut: datetime) -> bool:
    """Whether *fence* is after the cut, and no later one of those *known* shows it was not."""
    if fence is None or fence.at < cut:
        return False
    return not any(one.number > fence.number and one.at < cut for one in known)


def image_evidence(
    landed: Evidence, standing: MirrorPosition, cut: datetime, mark: Mark
) -> Evidence:
    """What a certificate of the image rests on; *landed*, where there is none."""
    image = standing.image(cut)
    if image is None:
        return landed
    return replace(
        landed,
        fences=image.fences,
        batch=image.through,
        version=image.version,
        mirror=standing.mirror,
        life=Lives.of(mark.lives).at(image.through),
        path=image.path,
    )
