"""Where do our own turns run?  Here if they are few, else side by side; no mirror ends all others'.

A worker that dies over one mirror, as for want of memory, takes the whole job with it.  The groups
are then tried one by one, and the mirrors of one that fails again each by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from pipeline.apply.mirror_job import Group, TurnOutcome, grouped, run
from pipeline.apply.refusal import Refusal
from pipeline.errors import UnreachableError

HERE = 100_000  # rows that are read in this process; more are worth a Spark job
HERE_MIRRORS = 24
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

    def __call__(self, group: Group) -> Outcomes:
        """What the turns came to, by table.

        Raises:
            UnreachableError: not one of them could be run.
        """
        rows = sum(part.rows for part in group.files)
        if rows <= HERE and len(group.jobs) <= HERE_MIRRORS:
            return run(group) if group.jobs else {}
        alone = [job for job in group.jobs if job.table.name in self._fatal]
        others = tuple(job for job in group.jobs if job.table.name not in self._fatal)
        found: dict[str, TurnOutcome] = {}
        for part in self._together(grouped(replace(group, jobs=others), GROUPS * self.workers)):
            found |= part
        for job in alone:
            found |= self._single(replace(group, jobs=(job,)))
        return found

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
