"""Compares two ways by alternating rounds on the same input.

The speed of the machine changes over minutes. So contenders alternate within a round, and the first
one rotates; a ratio is computed within each round. No time counts before the results were found
equal.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click

Times = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work; ``run`` gets the round's number."""

    name: str
    run: Callable[[int], None]


def compete(
    contenders: Sequence[Contender], rounds: int, check: Callable[[int], None]
) -> dict[str, list[float]]:
    """Run *rounds* rounds; return seconds by contender, one for each round.

    *check* raises if the results of a round differ.
    """
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            started = time.monotonic()
            contender.run(number)
            times[contender.name].append(time.monotonic() - started)
        check(number)
        told = ", ".join(f"{name} {spent[-1]:.1f} s" for name, spent in times.items())
        click.echo(f"  round {number + 1} of {rounds}: {told}; results equal")
    return times


def speed(times: Times, name: str, against: str) -> float:
    """Return how many times as fast *name* is as *against*: the median of the rounds' ratios."""
    return statistics.median(
        theirs / ours for ours, theirs in zip(times[name], times[against], strict=True)
    )


def report(title: str, times: Times, against: str, wanted: float | None = None) -> None:
    """Print median seconds, the ratio to *against* and its spread, as lines of one table."""
    click.echo(f"{title}; {under_load()}")
    for name, spent in times.items():
        ratios = sorted(t / s for s, t in zip(spent, times[against], strict=True))
        line = (
            f"  {name:28} {statistics.median(spent):8.2f} s   {speed(times, name, against):5.2f} x"
        )
        click.echo(f"{line}   ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    if wanted is not None:
        click.echo(f"  wanted: {wanted} x {against}")


def under_load() -> str:
    """Return how busy the machine is; seconds mean little without it."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
