"""Reports the progress of each table: source, change log, mirrors and readiness in one snapshot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from demo.shop.schema import MIRRORS
from demo.story.landed import LandedCount
from demo.story.service import Json, Service


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table: rows at the source, changes landed and merged, seconds of lag per known hop.

    ``state`` is the readiness of the mirror for one lag budget ago; empty before the first round.
    """

    name: str
    rows: int
    landed: int
    merged: int
    hops: Mapping[str, float | None] = field(default_factory=dict)
    state: str = ""

    @property
    def known(self) -> Mapping[str, float] | None:
        """Return the lag of every hop; None if one of them is unknown."""
        known = {hop: lag for hop, lag in self.hops.items() if lag is not None}
        return known if known and len(known) == len(self.hops) else None

    @property
    def lag(self) -> float | None:
        """Return the total lag; None if unknown."""
        return None if self.known is None else sum(self.known.values())


Progress = tuple[TableProgress, ...]


@dataclass(eq=False)
class Watch:
    """Takes the snapshots; ``shelves`` counts the rows of every physical table."""

    service: Service
    shelves: Callable[[], Mapping[str, int]]
    landed: LandedCount

    def take(self) -> Progress:
        """Return the progress of all tables now."""
        rows, landed = self.shelves(), self.landed.by_table()
        merged, told = self.service.merged(), {t["table"]: t for t in self.service.tables()}
        return tuple(
            TableProgress(
                name,
                sum(rows[shard] for shard in shards),
                landed.get(name, 0),
                merged.get(name, 0),
                _hops(told.get(name, {}).get("hops", ())),
                told[name]["recent"]["mirror"]["state"] if name in told else "",
            )
            for name, shards in MIRRORS.items()
        )


def line(progress: Progress) -> str:
    """Return the snapshot as one line of text."""
    rows, landed, merged = (
        sum(getattr(table, name) for table in progress) for name in ("rows", "landed", "merged")
    )
    ready = [table.name for table in progress if table.state == "ready"]
    return (
        f"rows at the source {rows}, changes landed {landed}, merged {merged};"
        f" {_lags(progress)}; ready {len(ready)} of {len(progress)}"
    )


def _lags(progress: Progress) -> str:
    """Return the slowest table's lag by hop; for a table without a lag, the reason."""
    slowest = max((t for t in progress if t.known), key=lambda t: t.lag or 0.0, default=None)
    if slowest is None or slowest.known is None:
        return "lag not known yet"
    hops = " + ".join(f"{hop} {lag:.1f}" for hop, lag in slowest.known.items())
    unknown = sum(table.known is None for table in progress)
    return f"lag {slowest.lag:.1f} s = {hops}" + (f" ({unknown} not known)" if unknown else "")


def _hops(told: Sequence[Json]) -> dict[str, float | None]:
    return {hop["hop"]: hop["lag_seconds"] for hop in told}
