"""Which hours are as they were when all of their files had been taken?

Known by this process alone.  Who wants new files asks a folder's own time, which tells of names
only.  Who must know that no file has grown where it lies asks for the stamps of all, and compares
these with what they were.
"""

from collections.abc import Callable, Container, Generator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.files.layout import HourPartition
from pipeline.files.listing import footprint

COARSE = 2.0  # seconds: a folder's own time may stand still for less, though files come
QUIET = float("-inf")


@dataclass(frozen=True, slots=True)
class _HourLook:
    """When a folder had changed, and since when it is known so; its footprint if all was taken."""

    changed: int
    since: float
    footprint: bytes = b""


@dataclass(eq=False)
class RestingHours:
    """Some hundred bytes for each hour that is looked at, however many files lie in it."""

    base: Path
    unfinished: tuple[str, ...]
    monotonic: Callable[[], float]
    _looks: dict[str, _HourLook] = field(default_factory=dict)

    def changed(self, part: HourPartition) -> int:
        """When its server last changed the folder: its own time can be set, as rsync does."""
        try:
            return (self.base / part.path).stat().st_ctime_ns
        except FileNotFoundError:
            return -1

    def is_quiet(self, part: HourPartition, changed: int) -> bool:
        """Whether two looks, some time apart, found that it had *changed* then, and none since."""
        known = self._looks.get(part.path)
        return known is not None and (known.changed, known.since) == (changed, QUIET)

    def footprint(self, part: HourPartition) -> Generator[None, None, bytes]:
        """What `looked` is told once all files that it is of were found to be taken."""
        return footprint(self.base, part, self.unfinished)

    def is_as_it_was(self, part: HourPartition, footprint: bytes) -> bool:
        """Whether all of its files were taken when they had the same."""
        known = self._looks.get(part.path)
        return known is not None and known.footprint == footprint

    def looked(self, part: HourPartition, changed: int, footprint: bytes) -> None:
        """Remember what was asked before its files were looked at; empty unless all were taken."""
        known, now = self._looks.get(part.path), self.monotonic()
        since = now
        if known is not None and known.changed == changed:
            since = QUIET if now - known.since >= COARSE else known.since
        self._looks[part.path] = _HourLook(changed, since, footprint)

    def left(self, part: HourPartition) -> int | None:
        """When it had changed as it was looked at last; None if it never was, or that was asked."""
        known = self._looks.pop(part.path, None)
        return None if known is None else known.changed

    def forget_others(self, parts: Container[str]) -> None:
        """Those that are not there any more."""
        self._looks = {path: one for path, one in self._looks.items() if path in parts}
