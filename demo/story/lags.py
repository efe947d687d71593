"""Computes the lag of changes, in total and by hop. Pure; all in seconds.

A sample is one table at one moment: the lag of each hop, as the service reports it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Hops = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LagSummary:
    """Over all samples: quantiles of the total lag, and the share of it that each hop takes."""

    samples: int
    median: float
    p95: float
    worst: float
    shares: Mapping[str, float]

    def __str__(self) -> str:
        """Return one line for people."""
        parts = ", ".join(f"{hop} {share:.0%}" for hop, share in self.shares.items())
        return (
            f"p95 {self.p95:.1f} s, median {self.median:.1f} s, worst {self.worst:.1f} s"
            f" of {self.samples} samples; {parts}"
        )


@dataclass(eq=False)
class LagBook:
    """Samples of one run; a sample that is reported twice counts once."""

    samples: list[Hops] = field(default_factory=list)
    _last: dict[str, Hops] = field(default_factory=dict)

    def note(self, table: str, hops: Hops) -> None:
        """Add the lags of *table*, unless they equal the previous ones."""
        if self._last.get(table) != hops:
            self._last[table] = hops
            self.samples.append(hops)

    def summary(self) -> LagSummary | None:
        """Sum up; None without a sample."""
        if not self.samples:
            return None
        totals = sorted(sum(hops.values()) for hops in self.samples)
        spent = Counter[str]()
        for hops in self.samples:
            spent.update(hops)
        whole = sum(totals) or 1.0
        return LagSummary(
            samples=len(totals),
            median=quantile(totals, 0.5),
            p95=quantile(totals, 0.95),
            worst=totals[-1],
            shares={hop: seconds / whole for hop, seconds in spent.items()},
        )


def quantile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest of *ascending* (not empty) that at least *share* do not exceed."""
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]
