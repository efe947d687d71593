"""What must be true of a key that any source's rows are asked for by?  Its kind reads the values.

A value is one only as the log itself would write it: another spelling would be found at the source,
and looked for in vain in the mirror.  Pure.
"""

import json
from collections.abc import Collection, Sequence

from pipeline.errors import ConfigError
from pipeline.sources.row_reader import KeyTexts


def require_columns(shard: str, key: Sequence[str], columns: Collection[str]) -> None:
    """Refuse to read *shard* in parts along a *key* that is empty, or none of its *columns*.

    Raises:
        ConfigError: says which shard, and why.
    """
    if not key:
        raise ConfigError(f"{shard} declares no key, so it cannot be read in parts; give it one")
    for name in key:
        if name not in columns:
            raise ConfigError(f"{shard} has no column {name}, which its key names")


def steps(low: int | None, high: int | None, pieces: int) -> tuple[KeyTexts, ...]:
    """Even steps from *low* to *high* that make so many *pieces*; none of an empty table."""
    if low is None or high is None:
        return ()
    found = {low + (high - low) * step // pieces for step in range(1, pieces)}
    return tuple((str(step),) for step in sorted(found))


def texts_of(shard: str, names: Sequence[str], key: str) -> list[str]:
    """The texts in *key*, a JSON array, one for each of the columns *names*.

    Raises:
        ConfigError: there is not one for each.
    """
    texts: list[str] = json.loads(key)
    if len(texts) != len(names) or None in texts:
        told = ", ".join(names)
        raise ConfigError(f"{key} is no key of {shard}, which has {len(names)} values: {told}")
    return texts


def unread(shard: str, name: str, column: object, text: str) -> ConfigError:
    """What to raise where *text* is no value of the key column *name*."""
    return ConfigError(f"{text!r} is no value of {shard}'s key column {name}, a {column}")


def require_spelling(shard: str, name: str, text: str, told: str | None) -> None:
    """Refuse *text* of the key column *name* where the log writes the same value as *told*.

    Raises:
        ConfigError: says how it is written.
    """
    if told != text:
        msg = f"{text!r} of {shard}'s key column {name} is written {told!r} in its log"
        raise ConfigError(f"{msg}; ask for it by that")
