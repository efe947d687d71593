"""Is what certificates rest on still there?  Asked of the store only when it may not be.

A mirror that is gone, cannot be read, was made anew or has lost its newest versions takes back
what was said of it, and so does a change log that has lost batches, or a rule that sends the table
another shard.

A round goes through its tables with one look while jobs ask with newer ones.  What the older look
does not show was not lost, and what is certified by it was not gone through.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from checks.certificate import Ground, forfeited
from monitor.observe.sampler import Sampling
from monitor.store.certificates import Certificates
from pipeline.copies.copy import CopyPosition
from pipeline.lags.samples import MirrorPosition
from pipeline.landing.new_rules import RULES
from pipeline.model import Missing
from pipeline.reports import read_gap

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Forfeits:
    """Remembers what each table's certificates stood on when they were last gone through."""

    certificates: Certificates
    _ground: dict[str, Ground] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)  # looks
    _when: dict[str, datetime] = field(default_factory=dict)  # of the last of those looks
    _ruled: tuple[int, Mapping[str, int]] = field(default=(-1, {}))

    def take_back(self, table: str, look: Sampling, at: datetime) -> None:
        """Revoke the certificates of *table* that *look* shows to speak of something lost."""
        if look.number < self._newest.get(table, 0):
            self._ground.pop(table, None)
            return
        self._newest[table] = look.number
        if self._ruled[0] != look.number:
            self._ruled = (look.number, _ruled(look))
        ruled = self._ruled[1].get(table, -1)
        now, before = _ground(table, look, ruled), self._ground.get(table)
        since = self._when.get(table, at)
        self._when[table] = max(since, at)
        if before is not None and _onward(before, now) and not _ended(before, since, at):
            self._ground[table] = _known(now, before)
            return
        gone = forfeited(self.certificates.holding(table), now, at)
        if gone:
            count = self.certificates.revoke(gone)
            log.warning("certificates_revoked", table=table, count=count, why=gone[0].why)
        self._ground[table] = now if before is None else _known(now, before)


def _ruled(look: Sampling) -> dict[str, int]:
    """Table -> the newest batch since which other rules send it a shard, of those still open."""
    found: dict[str, int] = {}
    if isinstance(look.mark, Missing):
        return found
    mark = look.mark.value
    for name, text in mark.gaps.items():
        if name.startswith(RULES):
            gap = read_gap(text)
            for table in {mark.shards.get(shard) for shard in gap.shards} - {None}:
                found[str(table)] = max(found.get(str(table), gap.batch), gap.batch)
    return found


def _ground(table: str, look: Sampling, ruled: int) -> Ground:
    sample = look.mirrors.get(table)
    mirror: MirrorPosition | str | None = look.unreadable.get(table)
    if sample is not None and not isinstance(sample, Missing):
        mirror = sample.value
    copies = {
        name: told.value.get(table)
        for name, told in look.copies.items()
        if not isinstance(told, Missing)
    }
    if isinstance(look.mark, Missing):
        return Ground(mirror, None, copies=copies)
    mark = look.mark.value
    return Ground(mirror, mark.batch, mark.lives, ruled, copies)


def _onward(before: Ground, now: Ground) -> bool:
    """Whether all that stood on *before* stands on *now*."""
    if now.batch is not None and (before.batch is None or now.batch < before.batch):
        return False
    fell = any(_fell(before.copies.get(name), at) for name, at in now.copies.items())
    if now.ruled > before.ruled or fell:
        return False
    if now.batch is not None and now.lives != before.lives:
        return False  # landing has begun anew, perhaps on a log that has lost its end
    if now.mirror is None or now.mirror == before.mirror:
        return True
    if not isinstance(now.mirror, MirrorPosition) or not isinstance(before.mirror, MirrorPosition):
        return False
    same = now.mirror.mirror == before.mirror.mirror
    later = now.mirror.version >= before.mirror.version and now.mirror.batch >= before.mirror.batch
    kept = all(one in now.mirror.images for one in before.mirror.images)
    return same and later and kept


def _fell(before: CopyPosition | None, now: CopyPosition | None) -> bool:
    """Whether a copy may hold less than it did."""
    if before is None or not before.whole:
        return False  # nothing was certified by it
    same = now is not None and now.whole and now.mirror == before.mirror
    return not same or now is None or now.version < before.version


def _ended(ground: Ground, since: datetime, at: datetime) -> bool:
    """Whether an image was to be kept at *since* and is not *at* now."""
    mirror = ground.mirror
    if not isinstance(mirror, MirrorPosition):
        return False
    return any(one.held(since) and not one.held(at) for one in mirror.images)


def _known(now: Ground, before: Ground) -> Ground:
    """What is known now, and where nothing is, what was known before."""
    return Ground(
        before.mirror if now.mirror is None else now.mirror,
        before.batch if now.batch is None else now.batch,
        before.lives if now.batch is None else now.lives,
        before.ruled if now.batch is None else now.ruled,
        {**before.copies, **now.copies},
    )
