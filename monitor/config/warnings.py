"""Finds settings that are allowed but probably mistakes: rules and patterns without effect.

A warning never stops the service. Rules are compared by sampled names that their patterns match;
the sample is always the same.
"""

import importlib
import random
import re
import stat
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any

from monitor.config.model import LOW, Config
from monitor.config.sections import invariants_of_file
from monitor.config.text import resolve_path
from monitor.row_selection import NAMING
from pipeline.model import table_name_fault
from pipeline.suites import list_suites

_parser: ModuleType = importlib.import_module("re._parser")  # it has no public name
_op: ModuleType = importlib.import_module("re._constants")
SAMPLES = 300
ALL = (".*", ".+")
_GLOB = re.compile(r"(?:^|[\w-])\*")
_WIDE = re.compile(r"([\w-]+)\.([*+])")  # a database's name and `.*`: meant as a glob
_REGEX = re.compile(r"\\|\$$|^\^|[|(]|^\.\*|\.\+")
_GLOB_PART = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
_WILDCARD = re.compile(r"[*?[]")
_ANY = {"*": ".*", "?": "."}
_LETTERS = string.ascii_letters + string.digits + "_-.$ \u00e9"
_CLASSES: Mapping[Any, str] = {
    _op.CATEGORY_DIGIT: string.digits,
    _op.CATEGORY_WORD: string.ascii_letters + string.digits + "_",
    _op.CATEGORY_SPACE: " ",
    _op.CATEGORY_NOT_DIGIT: string.ascii_letters + "_-.",
    _op.CATEGORY_NOT_WORD: "-.$ ",
    _op.CATEGORY_NOT_SPACE: _LETTERS.replace(" ", ""),
}


def config_warnings(config: Config) -> list[str]:
    """Return each warning as ``key: what; fix``, in the order of the file's sections."""
    return [
        *_rules(config),
        *_names(config),
        *_tiers(config),
        *_globs(config),
        *_auto_rules(config),
        *_suites(config),
        *_windows(config),
        *_doubts(config),
    ]


def _names(config: Config) -> Iterator[str]:
    """Yield names of tables with two dots: Sluice writes no such name elsewhere."""
    for i, rule in enumerate(config.tables):
        if "\\" not in rule.table and rule.table and (fault := table_name_fault(rule.table)):
            yield f"tables[{i}].table: {fault}"


def _windows(config: Config) -> Iterator[str]:
    """Yield archive windows for days after the window: a mistyped year would keep deleted rows."""
    for i, rule in enumerate(config.archive):
        for j, window in enumerate(rule.windows):
            day = re.match(r"\d{4}-\d\d-\d\d", window.before)
            if day and day[0] > window.until.date().isoformat():
                yield (
                    f"archive[{i}].windows[{j}].before: {window.before} is after the window, so"
                    " every delete in it counts as archiving; write an earlier day"
                )


def _doubts(config: Config) -> Iterator[str]:
    """Yield settings without effect that probes and invariants find in themselves.

    A probe with overrides may have settings that apply only to these.
    """
    for plan in config.plans:
        parts = [(f"overrides[{number}].", one) for number, (_, one) in enumerate(plan.variants)]
        for at, one in parts or [("", plan.probe)]:
            yield from (f"probes.{plan.name}.{at}{doubt}" for doubt in _of_part(one))
    for number, rule in enumerate(invariants_of_file(config)):
        for name, one in rule.invariants:
            yield from (f"invariants[{number}].{name}.{doubt}" for doubt in _of_part(one))


def _of_part(part: Any) -> Iterator[str]:
    yield from getattr(part, "doubts", tuple)()


def _suites(config: Config) -> Iterator[str]:
    """Yield files of suites without an expectation."""
    for at, suites in _named_suites(config):
        for name, path in suites.items():
            if not any(suite for _, suite in list_suites(suites, name, exactly=True)):
                fix = "add some, or remove the entry"
                yield f"{at}: {name}: {path} has no expectations; {fix}"


def _named_suites(config: Config) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the files of suites of each probe and invariant by table, after their key."""
    for plan in config.plans:
        yield f"probes.{plan.name}.suites", getattr(plan.probe, "suites", {})
    for number, rule in enumerate(invariants_of_file(config)):
        for name, one in rule.invariants:
            yield f"invariants[{number}].{name}.suites", getattr(one, "suites", {})


@dataclass(frozen=True, slots=True)
class ExposedFile:
    """A private file that others may read: ``key: what``, and the command that fixes it."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; run {self.fix}"


def exposed_files(raw: Mapping[str, Any], path: Path) -> list[ExposedFile]:
    """Return files of secrets and private keys that other users may read.

    *raw* is the config in *path*. A missing file is reported elsewhere.
    """
    return [
        fault for at, file in _private(raw, "") for fault in _exposed(at, resolve_path(file, path))
    ]


def _private(node: Any, at: str) -> Iterator[tuple[str, str]]:
    """Yield each private file by its key: ``{file: PATH}``, and a certificate's key."""
    if isinstance(node, list):
        for number, one in enumerate(node):
            yield from _private(one, f"{at}[{number}]")
    if not isinstance(node, Mapping):
        return
    if set(node) == {"file"} and isinstance(node["file"], str) and at != "openlineage":
        yield at, node["file"]
        return
    for name, one in node.items():
        below = f"{at}.{name}" if at else str(name)
        if name == "key" and isinstance(one, str) and "certificate" in node:
            yield below, one
        yield from _private(one, below)


def _exposed(at: str, file: str) -> Iterator[ExposedFile]:
    try:
        mode = Path(file).stat().st_mode
    except (OSError, ValueError):
        return
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        said = f"{file} can be read by other users (mode {stat.S_IMODE(mode):04o})"
        yield ExposedFile(f"{at}: {said}", f"chmod 600 {quote(file)}")


def _rules(config: Config) -> Iterator[str]:
    for number, rule in enumerate(config.tables):
        at = f"tables[{number}].shards"
        if _GLOB.search(re.sub(r"\\.", ".", rule.shards)):
            yield (
                f"{at}: {rule.shards!r} looks like a glob, but is read as a regular"
                f" expression; write {_as_regex(rule.shards)!r}"
            )
        elif not rule.ignore and "\\" not in rule.table and (wide := _WIDE.fullmatch(rule.shards)):
            yield (
                f"{at}: {rule.shards!r} also matches the tables of other databases whose names"
                f" begin with {wide[1]!r}, and {rule.table} gets the rows of all; for one"
                rf" database write '{wide[1]}\..{wide[2]}'"
            )
        if rule.ignore and rule.table != r"\g<0>":
            yield f"tables[{number}].table: has no effect beside `ignore: true`; remove one"
    yield from _shadowed("tables", "shards", [rule.shards for rule in config.tables])


def _auto_rules(config: Config) -> Iterator[str]:
    """Yield rules about a repair or a new base that never apply, or that no check can start."""
    for section in ("rebootstrap", "repair"):
        globs = [one.tables for one in getattr(config, section)]
        yield from _shadowed(section, "tables", globs, _read_glob)
    plans = [plan.tables for plan in config.plans if plan.name in NAMING]
    for number, rule in enumerate(config.repair):
        if rule.how == "auto" and not any(_may_overlap(rule.tables, one) for one in plans):
            yield (
                f"repair[{number}].how: auto repairs no row, because no check that names wrong"
                f" rows looks at {rule.tables!r}; enable one of the probes {', '.join(NAMING)},"
                " or use how: ask"
            )


def _shadowed(
    section: str, key: str, patterns: Sequence[str], read: Callable[[str], str] = str
) -> Iterator[str]:
    """Yield each rule of *section* whose names are all matched by earlier rules.

    *read* converts a pattern to a regular expression.
    """
    for number, shown in enumerate(patterns):
        if by := _shadowing([*map(read, patterns)], number):
            names = " and ".join(f"{section}[{one}]" for one in by)
            yield (
                f"{section}[{number}].{key}: {shown!r} has no effect, because {names} matches the"
                " same names first; move this rule up, or remove it"
            )


def _shadowing(patterns: Sequence[str], number: int) -> list[int]:
    """Return earlier rules that match every sampled name of a rule; empty if one name is left."""
    if not number:
        return []
    earlier = [re.compile(one) for one in patterns[:number]]
    taken = set[int]()
    for name in _samples(patterns[number]):
        first = next((at for at, one in enumerate(earlier) if one.fullmatch(name)), None)
        if first is None:
            return []
        taken.add(first)
    return sorted(taken)


def _read_glob(glob: str) -> str:
    """Return *glob* as a regular expression of a syntax that can be sampled."""
    parts = _GLOB_PART.findall(glob)
    found = "".join(_ANY.get(one) or (_class(one) if one[1:] else re.escape(one)) for one in parts)
    try:
        re.compile(found)
    except re.error:  # an empty range of characters
        return re.escape(glob)
    return found


def _class(part: str) -> str:
    negated, body = part[1] == "!", re.escape(part[1:-1].removeprefix("!")).replace(r"\-", "-")
    return f"[{'^' * negated}{body}]"


def _may_overlap(one: str, other: str) -> bool:
    """Tell whether a table may match both globs; of two with wildcards, only the starts count."""
    heads = [_WILDCARD.split(glob, maxsplit=1)[0] for glob in (one, other)]
    if heads[0] != one and heads[1] != other:
        return heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])
    return fnmatchcase(one, other) or fnmatchcase(other, one)


def _samples(pattern: str) -> Iterator[str]:
    """Yield names that *pattern* matches, always the same; none for unsupported syntax."""
    dice = random.Random(0)  # noqa: S311  - no secret
    try:
        parsed = _parser.parse(pattern)
        made = (_one(parsed, dice) for _ in range(SAMPLES))
        yield from (one for one in made if re.fullmatch(pattern, one))
    except (_Unknown, re.error):
        return


class _Unknown(Exception):  # noqa: N818  - it ends a search
    """Raised for a part of a pattern that cannot be sampled."""


def _one(parsed: Any, dice: random.Random) -> str:
    return "".join(_part(op, value, dice) for op, value in parsed)


def _part(op: Any, value: Any, dice: random.Random) -> str:
    if op in (_op.LITERAL, _op.AT):
        return chr(value) if op is _op.LITERAL else ""
    if op in (_op.ANY, _op.NOT_LITERAL, _op.IN):
        return dice.choice(_choices(value) if op is _op.IN else _LETTERS)
    if op is _op.BRANCH:
        return _one(dice.choice(value[1]), dice)
    if op is _op.SUBPATTERN:
        return _one(value[-1], dice)
    if op in (_op.MAX_REPEAT, _op.MIN_REPEAT):
        low, high, body = value
        times = dice.randint(low, min(int(high), low + 5))
        return "".join(_one(body, dice) for _ in range(times))
    raise _Unknown


def _choices(members: Any) -> str:
    if members[0][0] is _op.NEGATE:
        no = set(_choices(members[1:]))
        return "".join(one for one in _LETTERS if one not in no) or "~"
    found = ""
    for op, value in members:
        if op is _op.LITERAL:
            found += chr(value)
        elif op is _op.RANGE:
            found += "".join(map(chr, range(value[0], min(value[1], value[0] + 99) + 1)))
        elif op is _op.CATEGORY:
            found += _CLASSES[value]
    return found


def _as_regex(glob: str) -> str:
    """Return *glob* as the regular expression that was probably meant."""
    return re.sub(r"(?<![.\])}\\])\*", ".*", re.sub(r"(?<!\\)\.(?![*+?])", r"\.", glob))


def _tiers(config: Config) -> Iterator[str]:
    named = {int(one) for one in (*config.readiness.lag_budget, *(config.schedule.cycles or ()))}
    known = sorted(named | set(range(LOW + 1)))
    for number, rule in enumerate(config.tables):
        if rule.tier not in known:
            yield (
                f"tables[{number}].tier: {rule.tier} is in neither readiness.lag_budget nor"
                f" schedule.cycles, so tier {known[-1]} applies; known: {known}"
            )


def _globs(config: Config) -> Iterator[str]:
    tables = [rule.table for rule in config.tables if not rule.ignore and "\\" not in rule.table]
    last = config.tables[-1] if config.tables else None
    closed = (
        last is not None
        and last.ignore
        and last.shards in ALL
        and len(tables) == sum(not rule.ignore for rule in config.tables)
    )
    for at, glob in _patterns(config):
        if _REGEX.search(glob):
            yield f"{at}: {glob!r} looks like a regular expression; write a glob such as shop.*"
        elif any(fnmatchcase(table, glob) for table in tables):
            continue
        elif (closed or not any(sign in glob for sign in "*?[")) and (
            close := get_close_matches(glob, tables, n=1, cutoff=0.0 if closed else 0.85)
        ):
            yield f"{at}: {glob!r} matches no table of `tables`; the nearest is {close[0]}"


def _patterns(config: Config) -> Iterator[tuple[str, str]]:
    """Yield every glob of table names, with its key."""
    for plan in config.plans:
        yield f"probes.{plan.name}.tables", plan.tables
        for number, (glob, _) in enumerate(plan.variants):
            yield f"probes.{plan.name}.overrides[{number}].tables", glob
    for at, suites in _named_suites(config):
        yield from ((at, glob) for glob in suites)
    for section in ("publish", "rebootstrap", "repair", "archive", "standards"):
        for number, one in enumerate(getattr(config, section)):
            yield f"{section}[{number}].tables", one.tables
    for number, rule in enumerate(invariants_of_file(config)):
        yield f"invariants[{number}].tables", rule.tables
    for copy in config.copies:
        for number, glob in enumerate(copy.tables):
            yield f"copies.{copy.name}.tables[{number}]", glob
    for number, route in enumerate(config.alerts.routes):
        if ":" not in route.tables:
            yield f"alerts.routes[{number}].tables", route.tables
