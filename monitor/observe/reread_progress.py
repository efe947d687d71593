"""How far is what is read again, how fast, how long will it take, and what holds it?  Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitor.store.rereads import RereadRequest
from pipeline.model import Shard

Estimates = Callable[[str], Mapping[str, int]]
"""Source -> about how many rows each of its shards has."""

BRAKES = {
    "rate": "held to its rate",
    "time": "fewer rows are asked for at once, as more took too long",
    "running": "its server is busy",
    "lag": "the replica that is read is behind",
}
"""What slows a re-reading, by the limit that does."""


@dataclass(frozen=True, slots=True)
class RereadProgress:
    """``rate`` is rows a second since it was asked for; None where a number is not known."""

    rows: int
    about: int | None
    rate: float
    left: timedelta | None
    brakes: tuple[str, ...]

    @property
    def told(self) -> str:
        """All of it in words; what it waits for, if it waits, is told elsewhere."""
        told = f"{self.rows} rows" + (f" of about {self.about}" if self.about else "")
        told += f", {self.rate:.0f} rows/s" if self.rate else ""
        if self.left is not None:
            told += f", about {round(self.left.total_seconds())} s left"
        return told + "".join(f"; {BRAKES[one]}" for one in self.brakes)


def progress(one: RereadRequest, estimates: Estimates, now: datetime) -> RereadProgress:
    """Of all shards of *one*, in which those that ended count with the rows they had.

    How long it takes is not known once there are more rows than were estimated.
    """
    seconds = (now - one.at).total_seconds()
    rate = one.rows / seconds if seconds > 0 else 0.0
    some = one.ended or one.wish.rows.some or one.wish.rows.where  # which, is forgotten at its end
    about = None if some else _about(one, estimates)
    left = None
    if rate and about is not None and about > one.rows:
        left = timedelta(seconds=(about - one.rows) / rate)
    brakes = {state.brake for state in one.states if state.brake and state.done is None}
    return RereadProgress(one.rows, about, rate, left, tuple(sorted(brakes)))


def _about(one: RereadRequest, estimates: Estimates) -> int | None:
    """About how many rows its shards have; None if that of one is not known."""
    shards = [Shard.parse(state.shard) for state in one.states if state.shard]
    told = (estimates(shard.source).get(shard.name) for shard in shards)
    known = [count for count in told if count is not None]
    return sum(known) if known and len(known) == len(shards) else None
