"""What runs how often, and how long each may take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from monitor.config.model import Config
from monitor.schedule import Job
from monitor.watch.pulse import Pulse

Work = Callable[[], object]
CENSUS = timedelta(seconds=5)  # how often it is looked who is to be asked, which is far rarer
KEEPERS = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Works:
    """What each job does."""

    pulses: Sequence[Pulse]
    round: Work
    watch: Work
    probe: Work
    census: Work
    keepers: Work
    deliver: Work
    upkeep: Work
    prune: Work


def jobs(config: Config, works: Works) -> tuple[Job, ...]:
    """The timetable; each deadline is well above what the clients' own time limits add up to."""
    paces = config.schedule
    minute = timedelta(minutes=1)
    beats = [
        Job(f"heartbeat:{one.settings.name}", config.heartbeat, minute, one.beat)
        for one in works.pulses
    ]
    return (
        *beats,
        Job("round", paces.round, paces.land_deadline + paces.apply_deadline, works.round),
        Job("watch", paces.watch, minute, works.watch),
        Job("probe", paces.probe, 30 * minute, works.probe),
        Job("census", CENSUS, 30 * minute, works.census),
        Job("keepers", KEEPERS, 10 * minute, works.keepers),
        Job("deliver", paces.deliver, minute, works.deliver),
        Job("upkeep", paces.upkeep, paces.upkeep_deadline, works.upkeep),
        Job("prune", paces.prune, 10 * minute, works.prune),
    )
