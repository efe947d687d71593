"""Shows progress: a table that is redrawn on a terminal, plain lines elsewhere."""

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo.story.progress import Progress, line

PACE = 5.0  # seconds between two plain lines
WIDTH = 160  # columns for tables that are not drawn on a terminal
CAPTION = "source: rows there; landed, merged: changes; lag in seconds, hop by hop"
MIDDLE = ("source", "landed", "merged")


def open_console() -> Console:
    """Return the terminal; for a file or pipe, a console with unwrapped lines and wide tables."""
    console = Console(soft_wrap=True)
    return console if console.is_terminal else Console(soft_wrap=True, width=WIDTH)


@dataclass(eq=False)
class Screen:
    """Prints events, with the seconds since the start."""

    console: Console = field(default_factory=open_console)
    began: float = field(default_factory=time.monotonic)
    _live: Live | None = None
    _shown: float = 0.0

    def __enter__(self) -> Self:
        """Start drawing, if there is a terminal."""
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began

    def say(self, text: str, style: str = "") -> None:
        """Print one line that stays."""
        stamp = f"{int(self.elapsed) // 60:2}:{int(self.elapsed) % 60:02}  "
        self.console.print(stamp + text, style=style, markup=False, highlight=False)

    def show(self, progress: Progress) -> None:
        """Show the newest snapshot: redrawn on a terminal, else a line every few seconds."""
        if self._live is not None:
            self._live.update(_drawn(progress))
        elif self.elapsed - self._shown >= PACE:
            self._shown = self.elapsed
            self.say(line(progress))


def _drawn(progress: Progress) -> Table:
    hops = list(dict.fromkeys(hop for table in progress for hop in table.hops))
    drawn = Table("table", box=None, pad_edge=False, padding=(0, 1, 0, 0), caption=CAPTION)
    for head in (*MIDDLE, *hops, "lag"):
        drawn.add_column(head, justify="right")
    drawn.add_column("readiness")
    for table in progress:
        lags = [_seconds(table.hops.get(hop)) for hop in hops]
        counts = [str(n) for n in (table.rows, table.landed, table.merged)]
        drawn.add_row(table.name, *counts, *lags, _seconds(table.lag), table.state)
    return drawn


def _seconds(lag: float | None) -> str:
    return "?" if lag is None else f"{lag:.1f}"
