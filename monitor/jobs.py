"""What runs how often, and how long each may take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from monitor.config.model import Config
from monitor.copying import CopyWork
from monitor.observe.heartbeat import HeartbeatWriter
from monitor.schedule import Job

Work = Callable[[], object]
CENSUS = timedelta(seconds=5)  # how often it is looked who is to be asked, which is far rarer
RETENTION = timedelta(seconds=30)  # after which it is known that the brokers do not answer
PUBLISH = timedelta(seconds=30)
LINEAGE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Works:
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


def jobs(config: Config, works: Works) -> tuple[Job, ...]:
    """The timetable; each deadline is well above what the clients' own time limits add up to.

    Continuous are those that work off what has piled up.  The others must keep their pace.
    """
    paces = config.schedule
    minute = timedelta(minutes=1)
    beats = [
        Job(f"heartbeat:{one.settings.name}", config.heartbeat, minute, one.beat)
        for one in works.heartbeats
    ]
    some = []
    if works.publish is not None:
        some = [Job("publish", PUBLISH, paces.upkeep_deadline, works.publish, continuous=True)]
    if works.merge_urgent is not None:
        merging = (paces.merge, paces.merge_deadline, works.merge_urgent)
        some.append(Job("merge_urgent", *merging, continuous=True))
    if works.openlineage is not None:
        some.append(Job("openlineage", LINEAGE, 30 * minute, works.openlineage, continuous=True))
    for one in works.copies:
        pace = (paces.merge, paces.merge_deadline, one.run)
        some.append(Job(f"copy:{one.plan.name}", *pace, continuous=True))
    return (
        *beats,
        *some,
        Job("land", paces.land, paces.land_deadline, works.land, continuous=True),
        Job("merge", paces.merge, paces.merge_deadline, works.merge, continuous=True),
        Job("watch", paces.watch, minute, works.watch, vital=True),
        Job("probe", paces.probe, 30 * minute, works.probe, continuous=True),
        Job("census", CENSUS, 30 * minute, works.census, continuous=True),
        Job("retention", RETENTION, 10 * minute, works.retention),
        Job("deliver", paces.deliver, minute, works.deliver, continuous=True, vital=True),
        Job("upkeep", paces.upkeep, paces.upkeep_deadline, works.upkeep, continuous=True),
        Job("reread", paces.land, paces.land_deadline, works.reread, continuous=True),
        Job("prune", paces.prune, 10 * minute, works.prune),
    )
