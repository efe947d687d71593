"""Which rules fold the tables of a server into those that a lake should have?  A proposal to edit.

Shards are tables whose names differ in numbers alone, and which have the same columns and key: a
pattern of digits matches these tables of the server and no others.  Pure.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.settings import Router, TableRule

LATE = re.compile(r"(?:^|_)(?:log|logs|history|archive|audit|backup|bak|old|tmp|temp)(?:_|\d|$)")
USUAL = TableRule(shards=".*")
LOW = 2  # the tier proposed for what seldom anybody waits for
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A physical table of a server: columns as texts, in their order; rows are estimated."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """A rule, and the tables that it is for."""

    rule: TableRule
    of: tuple[SeenTable, ...]

    @property
    def rows(self) -> int:
        """As far as they are known."""
        return sum(one.rows or 0 for one in self.of)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Rules in the order they should stand; the largest first.

    ``alone`` are tables under their own names, by no rule.  ``unlike``: template of a name -> why
    the tables of such names were not taken for shards of one.
    """

    rules: tuple[ProposedRule, ...]
    alone: tuple[SeenTable, ...]
    unlike: Mapping[str, str]

    @property
    def keyless(self) -> tuple[str, ...]:
        """Tables that declare no key: their mirrors are held until ``key:`` names one."""
        every = (*self.alone, *(one for rule in self.rules for one in rule.of))
        return tuple(sorted(one.name for one in every if not one.key))


def propose(seen: Iterable[SeenTable]) -> Proposal:
    """Group tables by their names without numbers; each stands in one rule, or alone."""
    tables = sorted(seen, key=lambda one: one.name)
    groups: dict[tuple[str, ...], list[SeenTable]] = defaultdict(list)
    for one in tables:
        groups[tuple(_NUMBER.split(one.name)[::2])].append(one)
    rules: list[ProposedRule] = []
    alone: list[SeenTable] = []
    unlike: dict[str, str] = {}
    taken = {one.name for one in tables}
    for words, group in groups.items():
        why = _no_shards(group)
        rule = None if why or len(group) == 1 else _rule(group, taken)
        if rule is None:
            alone += group
            unlike |= {"#".join(words): why} if why else {}
        else:
            taken.add(rule.table)
            rules.append(ProposedRule(rule, tuple(group)))
    apart, alone = _late(alone)
    ordered = sorted((*rules, *apart), key=lambda one: (-one.rows, one.rule.shards))
    return Proposal(tuple(ordered), tuple(alone), unlike)


def _no_shards(group: Sequence[SeenTable]) -> str:
    """Why tables of alike names are not shards of one; empty if nothing speaks against it."""
    first = group[0]
    for one in group[1:]:
        if one.columns != first.columns:
            return f"{first.name} and {one.name} have different columns"
        if one.key != first.key:
            return f"{first.name} and {one.name} have different keys"
    return ""


def _rule(group: Sequence[SeenTable], taken: set[str]) -> TableRule:
    """One for *group*, of a name that nobody has: numbers that are all alike stay in it."""
    split = [_NUMBER.split(one.name) for one in group]
    shards, name = "", ""
    for at, parts in enumerate(zip(*split, strict=True)):
        varies = len(set(parts)) > 1
        shards += r"\d+" if varies else re.escape(parts[0])
        name += "" if varies else parts[0]
        if varies and at + 1 < len(split[0]):  # what parted the number from the rest goes, too
            name = name.rstrip("_-")
    database, _, relation = name.partition(".")
    relation = relation.strip("_-") or "shards"
    table = f"{database.strip('_-') or 'shards'}.{relation}"
    while table in taken or Router().table(table) != table:
        table += "_all"
    return TableRule(shards, _template(table), tier=_tier(table))


def _template(table: str) -> str:
    return table.replace("\\", r"\\")


def _tier(table: str) -> int:
    relation = table.partition(".")[2].lower()
    return LOW if LATE.search(relation) else USUAL.tier


def _late(alone: Sequence[SeenTable]) -> tuple[list[ProposedRule], list[SeenTable]]:
    """Rules for those that wait behind the others, and the rest."""
    rules, rest = [], []
    for one in alone:
        tier = _tier(one.name)
        if tier == USUAL.tier:
            rest.append(one)
        else:
            rules.append(ProposedRule(TableRule(re.escape(one.name), tier=tier), (one,)))
    return rules, rest
