"""Is what keeps a source's log for its collector still what kept it before?  Its kind knows.

A source whose log is kept so has these rules as a class of its module, beside ``SOURCE``, as
``LOG_KEEPER``; they are asked about what `Capture.keeper` told at two looks.  Pure, but for the
import of the kind.
"""

from functools import cache
from typing import Protocol, cast

from pipeline import plugins, sources
from pipeline.model import LogKeeper


class LogKeeperRules(Protocol):
    """How a kind of source knows again what keeps its log."""

    def exchanged(self, known: str, now: str) -> str | None:
        """Why what has the words *now* may be another than had the words *known*, earlier.

        None if it is the same, or if nothing shows that it is not.
        """
        ...


@cache
def rules(kind: str) -> LogKeeperRules:
    """The rules of *kind*; ConfigError if it has none."""
    return cast("LogKeeperRules", plugins.find(sources, "LOG_KEEPER", kind)())


def exchanged(known: LogKeeper, now: LogKeeper) -> str | None:
    """Why *now* may not keep what *known* kept, when that was looked at; None if it does."""
    if known.kind != now.kind:
        return f"the source was of kind {known.kind} and is of kind {now.kind}"
    return rules(now.kind).exchanged(known.words, now.words)
