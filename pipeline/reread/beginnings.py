"""How often was a re-reading begun anew, why, and is that too often?

What began again tells nothing of before, so a table that is altered all the time would be read for
ever, and its server would bear that.  Pure.
"""

from pipeline.backfill_state import Reread, WishedReread
from pipeline.errors import ConfigError
from pipeline.model import Shard

ANEW = 10  # times that it begins before somebody is to look why


def require_few_beginnings(wish: WishedReread, shard: Shard, known: Reread | None) -> None:
    """Refuse what is begun anew again and again.

    Raises:
        ConfigError: says how often, and why it was the last time.
    """
    if known is not None and known.former == wish.id and known.begun >= ANEW:
        msg = f"{shard.name} was begun {known.begun} times and never ended, now since {known.void}"
        raise ConfigError(f"{msg}; ask for it again once that is over")


def begun_anew(known: Reread) -> str:
    """How often it was begun, for people; empty if once, or if it is done."""
    if known.done is not None or known.begun < 2:
        return ""
    return f"it was begun {known.begun} times, now since {known.void}"
