"""Defines the jobs of the service, each with its interval and deadline.

Each deadline is well above the sum of the time limits of the clients. Continuous jobs work off
a backlog, and all others must keep their interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from monitor.config.model import Config
from monitor.copying import CopyWork
from monitor.observe.heartbeats import HeartbeatWriter
from monitor.schedule import Job

Work = Callable[[], object]
CENSUS = timedelta(seconds=5)  # looks which sources are due; each is asked far less often
RETENTION = timedelta(seconds=30)  # silent brokers are noticed after it
PUBLISH = timedelta(seconds=30)
LINEAGE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class JobHandlers:
    """What each job does."""

    heartbeats: Sequence[HeartbeatWriter]
    land: Work
    merge: Work
    watch: Work
    probe: Work
    census: Work
    retention: Work
    deliver: Work
    upkeep: Work
    reread: Work
    prune: Work
    publish: Work | None = None
    merge_urgent: Work | None = None
    copies: Sequence[CopyWork] = ()
    openlineage: Work | None = None


def jobs(config: Config, handlers: JobHandlers) -> tuple[Job, ...]:
    """Build the timetable from the intervals of *config*."""
    paces = config.schedule
    minute = timedelta(minutes=1)
    beats = [
        Job(f"heartbeat:{one.settings.name}", config.heartbeat, minute, one.beat)
        for one in handlers.heartbeats
    ]
    some = []
    if handlers.publish is not None:
        some = [Job("publish", PUBLISH, paces.upkeep_deadline, handlers.publish, continuous=True)]
    if handlers.merge_urgent is not None:
        merging = (paces.merge, paces.merge_deadline, handlers.merge_urgent)
        some.append(Job("merge_urgent", *merging, continuous=True))
    if handlers.openlineage is not None:
        some.append(Job("openlineage", LINEAGE, 30 * minute, handlers.openlineage, continuous=True))
    for one in handlers.copies:
        pace = (paces.merge, paces.merge_deadline, one.run)
        some.append(Job(f"copy:{one.plan.name}", *pace, continuous=True))
    return (
        *beats,
        *some,
        Job("land", paces.land, paces.land_deadline, handlers.land, continuous=True),
        Job("merge", paces.merge, paces.merge_deadline, handlers.merge, continuous=True),
        Job("watch", paces.watch, minute, handlers.watch, vital=True),
        Job("probe", paces.probe, 30 * minute, handlers.probe, continuous=True),
        Job("census", CENSUS, 30 * minute, handlers.census, continuous=True),
        Job("retention", RETENTION, 10 * minute, handlers.retention),
        Job("deliver", paces.deliver, minute, handlers.deliver, continuous=True, vital=True),
        Job("upkeep", paces.upkeep, paces.upkeep_deadline, handlers.upkeep, continuous=True),
        Job("reread", paces.land, paces.land_deadline, handlers.reread, continuous=True),
        Job("prune", paces.prune, 10 * minute, handlers.prune),
    )
