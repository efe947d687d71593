"""What is a collector to be set to, what is it set to, and where do the two differ?

A setting that a person chose stays, unless a demand forbids it; what is missing is added, and
nothing is taken away but what may not be there at all.  A secret is never shown, but for a
reference to one.  Pure.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from pipeline.finding import Demand
from pipeline.settings import KafkaSecurity, SourceSettings, TableRule

HIDDEN = "(hidden)"
REFERENCE = re.compile(r"\$\{[^{}:]+:[^{}]+\}")  # what Connect resolves, such as ${env:NAME}
_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_LOGIN = re.compile(r"://[^\s/?#:]*:[^\s/?#]+@")  # an address with user and password
_LOGS_IN = re.compile(r"(?i)LoginModule\b")  # a JAAS line: names and values beside each other
_OPTION = re.compile(r"(?i)\b\w*(?:password|secret|token|key)\w*\s*=\s*\"?[^\"\s;]")
Settings = Mapping[str, str]


def is_secret(value: str, *, named: bool) -> bool:
    """Whether *value* is a secret in clear text; *named*: its setting is one that holds secrets.

    A private key, and a password in a URL, are secrets in every setting.  References are none, with
    ``:`` between them, but text beside one is; in a JAAS line that is so of each option.
    """
    clear = REFERENCE.sub("", value)
    if clear != value and not clear.strip(":"):
        return False
    if named and clear != value and _LOGS_IN.search(clear):
        return bool(_OPTION.search(clear))
    return named or bool(_KEY.search(clear) or _LOGIN.search(clear))


def left_out(groups: Iterable[frozenset[str]], present: Collection[str]) -> set[str]:
    """Settings of *groups* of which one is enough, and *present*: no other of these is added."""
    return {name for group in groups if not group.isdisjoint(present) for name in group}


@dataclass(frozen=True, slots=True)
class CollectionScope:
    """What a collector is to collect, and where to.

    ``brokers`` and ``security`` are those of the cluster that it writes to, which may not be ours;
    empty where nothing is written to Kafka.  ``rules`` say which tables are wanted.
    """

    source: SourceSettings
    brokers: str
    security: KafkaSecurity
    rules: tuple[TableRule, ...]


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """One setting that is to be another; None: it is not set, or is to be taken away."""

    name: str
    before: str | None
    after: str | None
    why: str = ""

    def __str__(self) -> str:
        """In the manner of a diff."""
        if self.before is None:
            return f"+ {self.name}={self.after}"
        if self.after is None:
            return f"- {self.name}={self.before}"
        return f"~ {self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Registration:
    """How one collector is set up.

    ``wanted`` is complete: all that it needs to be registered anew.  ``firm`` says which values
    will do where a person chose another.  ``together`` are groups of settings of which one is
    enough: where any is set, no other of its group is added.  ``now`` asks what it is set to, None
    if it is not registered; ``put`` registers it.  Both raise UnreachableError; ``put``
    ConfigError, where the settings are refused.  ``forbidden`` settings are taken away.
    """

    wanted: Settings
    firm: tuple[Demand, ...]
    together: tuple[frozenset[str], ...]
    secret: Callable[[str], bool]
    now: Callable[[], Settings | None]
    put: Callable[[Settings], None]
    forbidden: Callable[[str], bool] = lambda _: False

    def target(self, now: Settings | None) -> dict[str, str]:
        """What it is to be set to, where it is set to *now*."""
        if now is None:
            return dict(self.wanted)
        left = left_out(self.together, now)
        added = {name: value for name, value in self.wanted.items() if name not in left}
        firmly = {one.name: self._value(one, now) for one in self._unmet(now)}
        kept = {name: value for name, value in now.items() if not self.forbidden(name)}
        return {**added, **kept, **firmly}

    def differences(self, now: Settings | None) -> tuple[SettingDifference, ...]:
        """Each setting that ``target`` changes, adds or takes away, by name."""
        before, after = now or {}, self.target(now)
        whys = {one.name: one.why for one in self.firm}
        return tuple(
            SettingDifference(
                name,
                self.shown(name, before[name]) if name in before else None,
                self.shown(name, after[name]) if name in after else None,
                whys.get(name, ""),
            )
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        )

    def shown(self, name: str, value: str) -> str:
        """*value*, if people may read it: a reference to a secret is none."""
        return HIDDEN if is_secret(value, named=self.secret(name)) else value

    def _unmet(self, now: Settings) -> list[Demand]:
        return [one for one in self.firm if one.name in now and not one.met(now[one.name])]

    def _value(self, demand: Demand, now: Settings) -> str:
        """What is wanted, unless another setting of its group is there already."""
        group = {name for group in self.together if demand.name in group for name in group}
        beside = (group - {demand.name}) & now.keys()
        return ("" if beside else self.wanted.get(demand.name, "")) or demand.good[0]
