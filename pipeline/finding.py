"""Defines a finding about a setting, and the rules that produce findings from lists of demands.

A finding with an ``effect`` means that changes may be missing from the topics: the doctor prints
it, and the running service withholds READY for it. Both use the same lists. Pure.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

EVERY = ".*"  # the alternative for all tables

# An alternative that matches only names with the same letters, digits, dots and dashes.
_PLAIN = re.compile(r'(?:"\?|\\[.-]|[A-Za-z0-9_]|\[\^A-Za-z0-9\.-\])+')
_UNSPLIT = re.compile(r"[(]|\\\||\[(?!\^A-Za-z0-9\.-\])")  # a bar here may be no separator
_FLAGS = re.DOTALL | re.IGNORECASE


class FindingSeverity(StrEnum):
    """REFUSE: rows would silently be lost or wrong; WARN: less is proven; NOTE: information."""

    REFUSE = "refuse"
    WARN = "warn"
    NOTE = "note"


class Effect(StrEnum):
    """How a setting affects changes; NONE does not concern the gate.

    DROPS and REWRITES leave changes missing or wrong, also after the setting is gone.  REKEYS does
    so where the config names no key of its own.  DELAYS lasts only as long as the setting.
    """

    NONE = ""
    DROPS = "drops"
    REWRITES = "rewrites"
    REKEYS = "rekeys"
    DELAYS = "delays"


REFUSE, WARN, NOTE = FindingSeverity.REFUSE, FindingSeverity.WARN, FindingSeverity.NOTE


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with a setting or a table.

    ``code`` is a stable name; ``fix`` is the statement or setting that solves it.
    ``effect`` is the effect on changes of tables whose ``database.table`` matches the regular
    expression ``shards``; empty: of all tables.  ``but_keys``: tables for which the
    config names a key of only these columns are not affected.
    ``setting`` identifies what was found, with its value: `name=value`, and the table or topic if
    it has one of its own.  It holds no explanation, so that waivers survive a new wording.
    """

    severity: FindingSeverity
    code: str
    where: str
    what: str
    fix: str
    effect: Effect = Effect.NONE
    shards: str = ""
    but_keys: tuple[str, ...] = ()
    setting: str = ""

    @property
    def identity(self) -> str:
        """The setting with its value; the text, if the finding names no setting."""
        return self.setting or self.what

    def affects(self, shard: str) -> bool:
        """Whether changes of *shard*, ``database.table``, are affected."""
        return self.effect is not Effect.NONE and (not self.shards or _matches(self.shards, shard))

    def spares(self, key: Collection[str]) -> bool:
        """Whether a table for which the config names *key* is not affected; empty: it does not."""
        return bool(key) and (self.effect is Effect.REKEYS or set(key) <= set(self.but_keys))


@lru_cache(maxsize=64)
def split_alternatives(shards: str) -> frozenset[str]:
    """Split `Finding.shards` into expressions that match the same tables together.

    An expression with parentheses is not split. The empty text is `EVERY`.
    """
    if not shards or _UNSPLIT.search(shards):
        return frozenset({shards or EVERY})
    return frozenset(shards.split("|"))


def join_alternatives(parts: Collection[str]) -> str:
    """Join *parts* to `Finding.shards`, the inverse of `split_alternatives`.

    `EVERY` alone becomes the empty text.
    """
    return "" if set(parts) == {EVERY} else "|".join(sorted(parts))


def _matches(shards: str, shard: str) -> bool:
    """Match *shard* without trying every alternative: a list may name thousands of tables."""
    parts = split_alternatives(shards)
    if len(parts) > 1 and shard.isascii():
        plain, others = _by_letters(shards)
        parts = frozenset({*plain.get(_letters(shard), ()), *others})
    return any(_compiled(part).fullmatch(shard) for part in parts)


@lru_cache(maxsize=16)
def _by_letters(shards: str) -> tuple[Mapping[str, Collection[str]], Collection[str]]:
    plain, others = dict[str, list[str]](), list[str]()
    for part in split_alternatives(shards):
        if _PLAIN.fullmatch(part):
            plain.setdefault(_letters(part.replace("[^A-Za-z0-9.-]", "")), []).append(part)
        else:
            others.append(part)
    return plain, others


def _letters(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "", text).lower()


@lru_cache(maxsize=20_000)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(part, _FLAGS)


@dataclass(frozen=True, slots=True)
class Demand:
    """A required setting: one of *good*, or not one of *bad*; without either, it must be absent.

    Case does not matter.  ``default`` applies if the setting is absent; with None there is no
    finding then.
    """

    name: str
    why: str
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    default: str | None = None
    severity: FindingSeverity = REFUSE
    fix: str = ""
    effect: Effect = Effect.NONE

    def met(self, value: str) -> bool:
        """Whether *value* is accepted."""
        small = value.strip().lower()
        good = (one.lower() for one in self.good)
        return small not in self.bad if self.bad else small in good


def find_unmet(
    demands: Iterable[Demand], settings: Mapping[str, str], where: str, *, remedy: str
) -> list[Finding]:
    """Findings for the demands that *settings* do not meet, in the demands' order.

    *remedy* is the fix of demands without one of their own; ``{name}`` and ``{value}`` in it are
    the setting and the first accepted value.
    """
    found = []
    for demand in demands:
        value = settings.get(demand.name, demand.default)
        if value is None or demand.met(value):
            continue
        wanted = demand.good[0] if demand.good else "another value"
        fix = demand.fix or remedy.format(name=demand.name, value=wanted)
        implied = "" if demand.name in settings else " (by default)"
        setting = f"{demand.name}={value}"
        what = f"{setting}{implied}: {demand.why}"
        severity, effect = demand.severity, demand.effect
        found.append(Finding(severity, demand.name, where, what, fix, effect, setting=setting))
    return found
