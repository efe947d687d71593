"""Where do our own turns run?  Here if they are few, else side by side; no mirror ends all others'.

A worker that dies over one mirror, as for want of memory, takes the whole job with it.  The groups
are then tried one by one, and the mirrors of one that fails again each by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from pipeline.apply.mirror_job import Group, MirrorJob, TurnOutcome, grouped, run
from pipeline.changelog.scan import TableRows
from pipeline.errors import SluiceError, UnreachableError
from pipeline.reports import Refusal

HERE = 100_000  # rows that are read in this process; more are worth a Spark job
HERE_MIRRORS = 24
FAR_MORE = 4  # times as many rows as the next one has
GROUPS = 8  # for each worker, so that one large mirror does not leave the others idle
log = structlog.get_logger(__name__)

Outcomes = Mapping[str, TurnOutcome]
Run = Callable[[Sequence[Group]], Sequence[Outcomes]]


@dataclass(eq=False)
class SpreadTurns:
    """``spread`` runs groups side by side; ``_fatal`` are mirrors that ended a worker last time."""

    spread: Run
    workers: int
    _fatal: set[str] = field(default_factory=set)

    def __call__(self, group: Group, rows: TableRows) -> Outcomes:
        """What the turns came to, by table; *rows* counts those of the files.

        Raises:
            UnreachableError: not one of them could be run.
        """
        if not group.jobs:
            return {}
        if len(group.jobs) <= HERE_MIRRORS and _are_few(group, rows):
            return run(group)
        alone = [job for job in group.jobs if job.table.name in self._fatal]
        others = tuple(job for job in group.jobs if job.table.name not in self._fatal)
        found: dict[str, TurnOutcome] = {}
        for part in self._together(grouped(replace(group, jobs=others), GROUPS * self.workers)):
            found |= part
        for job in alone:
            found |= self._single(replace(group, jobs=(job,)))
        return found

    def in_turn(self, group: Group, rows: TableRows) -> Iterator[Outcomes]:
        """The same, step by step: a mirror of most changes comes after all others.

        Who takes a step commits it before the next one: nobody waits for the largest.

        Raises:
            UnreachableError: not one of all could be run.
        """
        large = _largest(group, rows)
        others = tuple(job for job in group.jobs if job is not large)
        if large is None or not others:
            yield self(group, rows)
            return
        try:
            small = self(replace(group, jobs=others), rows)
        except UnreachableError:
            yield self(group, rows)  # the large one shows whether it is for one of them
            return
        yield small
        yield self._single(replace(group, jobs=(large,)))

    def _together(self, groups: Sequence[Group]) -> Sequence[Outcomes]:
        try:
            return self.spread(groups) if groups else ()
        except UnreachableError as error:
            log.warning("turns_run_apart", groups=len(groups), why=str(error))
            return self._apart(groups, error)

    def _apart(self, groups: Sequence[Group], error: UnreachableError) -> Sequence[Outcomes]:
        found: list[Outcomes] = []
        failed: list[Group] = []
        for one in groups:
            try:
                found += self.spread([one])
            except UnreachableError:
                failed.append(one)
        if not found:
            raise error  # it is not for one of them
        singles = [replace(one, jobs=(job,)) for one in failed for job in one.jobs]
        return [*found, *map(self._single, singles)]

    def _single(self, group: Group) -> Outcomes:
        """The turn of one mirror that may end its worker."""
        (job,) = group.jobs
        name = job.table.name
        try:
            (found,) = self.spread([group])
        except UnreachableError as error:
            self._fatal.add(name)
            return {name: TurnOutcome(Refusal.of(error))}
        self._fatal.discard(name)
        return found


def _largest(group: Group, rows: TableRows) -> MirrorJob[Any] | None:
    """The mirror of far more changes than any other, if they are many; None if there is none."""
    if len(group.jobs) < 2 or sum(part.rows for part in group.files) <= HERE:
        return None
    try:
        counts = [_rows(rows, group, job) for job in group.jobs]
    except SluiceError:
        return None  # a turn tells which file it is
    most, next_ = sorted(counts, reverse=True)[:2]
    return group.jobs[counts.index(most)] if most > max(HERE, FAR_MORE * next_) else None


def _rows(rows: TableRows, group: Group, job: MirrorJob[Any]) -> int:
    return sum(rows.of(part, job.table.name) for part in group.files if job.wanted.meets(part))


def _are_few(group: Group, rows: TableRows) -> bool:
    """Whether so little is to be read that no Spark job is worth it, nor the wait for one.

    Files hold other tables' rows, too: where all would be many, their footers are asked.
    """
    if sum(part.rows for part in group.files) <= HERE:
        return True
    left = HERE
    try:
        for part in group.files:
            near = (job for job in group.jobs if job.wanted.meets(part))
            left -= sum(rows.of(part, job.table.name) for job in near)
            if left < 0:
                return False
    except SluiceError:
        return False  # a turn tells which file it is
    return True
