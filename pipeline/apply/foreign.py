"""Who else has written to a mirror?  Judged from the commits of its Delta log; pure.

Each commit of Sluice names the version it follows.  A commit that changes data and is not ours
makes the mirror foreign, until it is taken back to the version just before that commit.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipeline.lake.commits import Commit
from pipeline.report import Hold

_WAIVER = "foreign_write:"
_VERSION = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Intrusion:
    """The first foreign commit that still counts, and the version to go back to.

    ``good`` is -1 when there is none, because Sluice has written on top of the foreign commit.
    """

    version: int
    operation: str
    good: int


def waiver(table: str, version: int) -> str:
    """What a person closes to accept another writer's *version* of a mirror."""
    return f"{_WAIVER}{table}:{version}"


def accepted(table: str, waived: Iterable[str]) -> frozenset[int]:
    """Versions of others in the mirror of *table* that a person has closed by name."""
    prefix = f"{_WAIVER}{table}:"
    named = (one.removeprefix(prefix) for one in waived if one.startswith(prefix))
    return frozenset(int(text) for text in named if _VERSION.fullmatch(text))


def foreign_hold(table: str, found: Intrusion) -> Hold:
    """Why *table* must stand still, and the ways out."""
    name = waiver(table, found.version)
    back = f"restore version {found.good}" if found.good >= 0 else "rebuild the mirror"
    detail = (
        f"version {found.version} of mirror {table} ({found.operation}) changed data "
        f"and is not Sluice's; {back}, or waive {name}"
    )
    return Hold(name, table, "foreign_write", detail)


def find(
    commits: Iterable[Commit], good: int = -1, accepted: frozenset[int] = frozenset()
) -> Intrusion | None:
    """The intrusion that still counts after all *commits*, ascending; None when all is ours.

    *good*: the version before the first of *commits*, known to be ours.
    *accepted*: versions a person has waived.
    """
    intrusion = None
    for commit in commits:
        if intrusion is not None:
            if commit.after is not None:
                # ours came on top: going back would undo it, not its number
                intrusion = replace(intrusion, good=-1)
            elif intrusion.good >= 0 and _restored(commit) == intrusion.good:
                good, intrusion = commit.version, None
        elif not commit.data_changing or commit.after is not None or commit.version in accepted:
            good = commit.version
        else:
            intrusion = Intrusion(commit.version, commit.operation, good)
    return intrusion


def _restored(commit: Commit) -> int | None:
    if commit.operation != "RESTORE":
        return None
    version = commit.parameters.get("version")
    return None if version is None else int(version)
