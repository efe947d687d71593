r"""Which lists let in all that the rules of `tables` name, the heartbeat, and the tables beside?

Whole databases: a table that no rule names is a table of its own name, and so is one that an
online schema change swaps in.  Only what is ignored is left out by its name.  Pure.
"""

import re
from collections.abc import Iterable, Mapping

from pipeline.settings import TableRule

GROUP = re.compile(r"\(\?P<(\w+)>")  # Python's named groups and how it calls them again
AGAIN = re.compile(r"\(\?P=(\w+)\)")
REPEATS = ("*", "+", "?", "{")


def include_lists(
    rules: Iterable[TableRule], heartbeat: str, outer: str = "database"
) -> Mapping[str, str]:
    """Settings by their names; no list of databases where a rule fits tables of any.

    What is *outer* in a table's name is a ``database``, or a ``schema``.
    """
    rules = tuple(rules)
    wanted = [_databases(rule.shards) for rule in rules if not rule.ignore]
    found = {}
    if wanted and all(wanted):
        databases = [name for names in wanted for name in names]
        databases.append(re.escape(heartbeat.partition(".")[0]))
        found[f"{outer}.include.list"] = _list(databases)
    if ignored := _ignored_first(rules):
        found["table.exclude.list"] = _list(ignored)
    return found


def _ignored_first(rules: tuple[TableRule, ...]) -> list[str]:
    """Patterns of what is ignored; the first rule that fits decides, so others are spared."""
    found, spared = [], list[str]()
    for rule in rules:
        if rule.ignore:
            found.append("".join(f"(?!(?:{one})$)" for one in spared) + f"(?:{rule.shards})")
        else:
            spared.append(rule.shards)
    return found


def _list(patterns: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(_java(one).replace(",", r"\,") for one in patterns))


def _java(pattern: str) -> str:
    return AGAIN.sub(r"\\k<\1>", GROUP.sub(r"(?<\1>", pattern))


def _databases(pattern: str) -> list[str]:
    """The database's part of each way that *pattern* may fit; empty if it cannot be told."""
    found, start, depth, at = [], 0, 0, 0
    cut: int | None = None
    while at < len(pattern):
        sign = pattern[at]
        ends = _token(pattern, at)
        depth += (sign == "(") - (sign == ")")
        if cut is None and depth == 0 and _dot(pattern, at, ends):
            cut = at
        if sign == "|" and depth == 0:
            found.append(pattern[start:cut] if cut is not None else "")
            start, cut = at + 1, None
        at = ends
    found.append(pattern[start:cut] if cut is not None else "")
    return found if all(found) else []


def _token(pattern: str, at: int) -> int:
    """Where what stands at *at* ends: an escape, a set of letters, or one sign."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] != "[":
        return at + 1
    at += 2 if pattern[at + 1 : at + 2] != "^" else 3  # a bracket that comes first is a letter
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _dot(pattern: str, at: int, ends: int) -> bool:
    """Whether one dot stands there: written as such, or as any letter that comes once."""
    once = not pattern.startswith(REPEATS, ends)
    return once and pattern[at:ends] in (".", r"\.")
