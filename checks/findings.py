"""Confirmed differences as a reading: which ids, on which side, as of which position."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from checks.model import Outcome, Ruling
from checks.ranges import spans
from checks.suspects import Fate, Suspect, name
from pipeline.model import Fence

MOST_KEYS = 20
_CODES = {Fate.MISSING: "missing_rows", Fate.EXTRA: "extra_rows", Fate.DOUBLED: "doubled_rows"}
_WORDS = {Fate.MISSING: "missing", Fate.EXTRA: "extra", Fate.DOUBLED: "doubled"}


@dataclass(frozen=True, slots=True)
class Differences:
    """What one cycle of looking found.

    ``looked`` says in words what was compared; ``moving`` counts suspects that kept changing;
    ``more`` counts rows that ranges differ by and that no id was named for.  ``ended`` is when the
    looking ended: what is read after it for the next cycle counts against no time limit.
    """

    as_of: tuple[Fence, ...]
    looked: str
    found: tuple[tuple[Suspect, Fate], ...] = ()
    moving: int = 0
    more: int = 0
    ended: datetime | None = None

    @property
    def value(self) -> float:
        """Rows found to be wrong."""
        return float(len(self.found) + self.more)


def ruled(reading: Differences) -> Ruling:
    """FAIL for anything confirmed, UNKNOWN for what would not stand still, else PASS."""
    if reading.found:
        keys = tuple(_keys(reading))
        fates = [fate for fate in _CODES if any(fate is each for _, each in reading.found)]
        told = "; ".join(_told(reading, fate) for fate in fates)
        more = f"; about {reading.more} more rows differ" if reading.more else ""
        unnamed = reading.more + len(keys[MOST_KEYS:])
        code = _CODES[fates[0]]
        return Ruling(Outcome.FAIL, f"{told}{more}", code, keys[:MOST_KEYS], unnamed)
    if reading.moving:
        why = f"{reading.moving} ids changed each time they were looked at"
        return Ruling(Outcome.UNKNOWN, why, "in_motion")
    if reading.more:
        why = f"about {reading.more} more rows differed than could be asked for; counted again"
        return Ruling(Outcome.UNKNOWN, why, "not_all_asked")
    return Ruling(Outcome.PASS, reading.looked)


def _told(reading: Differences, fate: Fate) -> str:
    own = [suspect for suspect, each in reading.found if each is fate]
    shown = ", ".join(list(_spelled(own))[:3])
    rest = ", ..." if len(list(_spelled(own))) > 3 else ""
    rows = "1 row" if len(own) == 1 else f"{len(own)} rows"
    return f"{rows} {_WORDS[fate]} in the mirror: {shown}{rest}"


def _keys(reading: Differences) -> Iterator[str]:
    for fate in _CODES:
        yield from _spelled([suspect for suspect, each in reading.found if each is fate])


def _spelled(suspects: Sequence[Suspect]) -> Iterator[str]:
    """Ids by shard, runs of consecutive ones as ``first-last``: ``shop/shop_00.orders:17-29``."""
    for shard in sorted({shard for shard, _ in suspects}):
        for first, last in spans(sorted(id_ for own, id_ in suspects if own == shard)):
            yield f"{name(shard)}:{first}" + (f"-{last}" if last > first else "")
