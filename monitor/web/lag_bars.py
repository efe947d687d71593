"""Lag per hop as bars that add up: where does the time go?  Numbers only; no HTML.  Pure."""

from dataclasses import dataclass
from datetime import timedelta

from pipeline.lags.lag import HopLag, Lags
from pipeline.model import Missing, Stage

WIDTH = 100.0
SHORTEST = timedelta(seconds=10)  # below this no bar fills its line: nobody is late
UNKNOWN_WIDTH = 12.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One hop: from ``left``, ``width`` wide, in hundredths; ``why`` says why it is unknown."""

    hop: str
    left: float
    width: float
    text: str
    why: str = ""


def segments(lags: Lags, longest: timedelta) -> tuple[Segment, ...]:
    """The hops of *lags* side by side; *longest*, the longest lag on the page, fills the line.

    A hop whose lag is unknown takes a width of its own: it must not look like nothing.
    """
    hops = lags.up_to(Stage.MIRROR)
    unknown = sum(isinstance(hop.lag, Missing) for hop in hops)
    known = sum((_span(hop) for hop in hops), timedelta())
    room = WIDTH - unknown * UNKNOWN_WIDTH
    scale = room / max(longest, known, SHORTEST).total_seconds()
    left, found = 0.0, []
    for hop in hops:
        found.append(_segment(hop, left, scale))
        left += found[-1].width
    return tuple(found)


def _segment(hop: HopLag, left: float, scale: float) -> Segment:
    if isinstance(hop.lag, Missing):
        return Segment(hop.hop.value, left, UNKNOWN_WIDTH, "?", hop.lag.why)
    seconds = _span(hop).total_seconds()
    return Segment(hop.hop.value, left, seconds * scale, f"{seconds:.1f} s")


def _span(hop: HopLag) -> timedelta:
    return timedelta() if isinstance(hop.lag, Missing) else max(hop.lag, timedelta())
