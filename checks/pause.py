"""What may be said of a table whose merges a person has paused?  Nothing after the pause.  Pure.

Landing goes on, so the stage that it reaches is not concerned, and no change is lost.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from shlex import quote

from checks.model import Outcome, Reason, Ruling
from pipeline.model import Stage

PAUSED = "paused"
RUNS = Ruling(Outcome.PASS, "nobody has paused it")


@dataclass(frozen=True, slots=True)
class Pause:
    """Merges of ``table`` stand still ``since`` then, ``until`` it is resumed or that instant."""

    table: str
    reason: str
    who: str
    since: datetime
    until: datetime | None = None

    @property
    def told(self) -> str:
        """Who, since when, until when and why: one line."""
        end = f" until {_second(self.until)}" if self.until else ""
        return f"paused by {self.who} since {_second(self.since)}{end}: {self.reason}"


def closed(pause: Pause | None, stage: Stage, cut: datetime) -> tuple[Reason, ...]:
    """Why *stage* is BLOCKED for *cut*: nothing from after the pause gets into the mirror."""
    if pause is None or stage is Stage.LANDED or cut <= pause.since:
        return ()
    return (Reason(PAUSED, f"{pause.told}; `sluice resume {quote(pause.table)}` ends it"),)


def overlong(pause: Pause | None, kept: timedelta, at: datetime) -> Ruling:
    """Whether it is so long that a person must think of it again.

    The change log keeps what a paused table has not applied, and with it all that came since:
    half of the time that it is *kept* for otherwise is enough.
    """
    if pause is None:
        return RUNS
    if at - pause.since <= kept / 2:
        return Ruling(Outcome.PASS, pause.told)
    days, whole = (at - pause.since) / timedelta(days=1), kept / timedelta(days=1)
    text = (
        f"{pause.told}; that is {days:.0f} days, and what is kept of the change log for "
        f"{whole:.0f} days is kept for as long as it lasts: resume it, or ignore the table"
    )
    return Ruling(Outcome.FAIL, text, PAUSED)


def _second(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
