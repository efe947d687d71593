"""Defines the collector protocol, how a collector is registered, and the stream it sends.

Each kind of collector has its own module. Every method raises UnreachableError when the
collector does not answer.

Registration keeps each setting that a person chose, unless a demand forbids its value. It adds
missing settings, and removes only forbidden ones. A secret is never shown, but a reference to
one is.

`CollectedStream` serves collectors that cannot be queried. They are judged by their source and
by what arrived in their topics.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pipeline.errors import text_or_cause
from pipeline.finding import Demand, Finding
from pipeline.formats.format import Format
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.model import Acknowledged, CaptureScope, Missing
from pipeline.settings import KafkaSecurity, SourceSettings, TableRule
from pipeline.sources.source import Source
from pipeline.transports.transport import Transport

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
    """Settings to omit: the others of each of *groups* that has one of *present*."""
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

    ``wanted`` is complete: all that a new registration needs.  ``firm`` says which values are
    accepted where a person chose another.  ``together`` are groups of alternative settings: where
    one is set, no other of its group is added.  ``now`` returns the present settings, None if it
    is not registered; ``put`` registers it.  Both raise UnreachableError; ``put`` raises
    ConfigError if the settings are refused.  ``forbidden`` settings are removed.  ``join`` gets
    ``wanted`` and the present settings; it returns these with what has to fit both.
    """

    wanted: Settings
    firm: tuple[Demand, ...]
    together: tuple[frozenset[str], ...]
    secret: Callable[[str], bool]
    now: Callable[[], Settings | None]
    put: Callable[[Settings], None]
    forbidden: Callable[[str], bool] = lambda _: False
    join: Callable[[Settings, Settings], Settings] = lambda _, now: now

    def target(self, now: Settings | None) -> dict[str, str]:
        """What it is to be set to, where it is set to *now*."""
        if now is None:
            return dict(self.wanted)
        now = self.join(self.wanted, now)
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
        """*value*, if people may read it, as they may a reference to a secret."""
        return HIDDEN if is_secret(value, named=self.secret(name)) else value

    def _unmet(self, now: Settings) -> list[Demand]:
        return [one for one in self.firm if one.name in now and not one.met(now[one.name])]

    def _value(self, demand: Demand, now: Settings) -> str:
        """What is wanted, unless another setting of its group is there already."""
        group = {name for group in self.together if demand.name in group for name in group}
        beside = (group - {demand.name}) & now.keys()
        return ("" if beside else self.wanted.get(demand.name, "")) or demand.good[0]


USUAL = "connect"  # where a source names no kind of collector


@dataclass(frozen=True, slots=True)
class CollectorState:
    """The state of a collector, in its own word; only ``running`` is healthy.

    ``detail`` is the error, empty while nothing failed.
    """

    state: str
    detail: str = ""

    @property
    def running(self) -> bool:
        """Whether all of it runs."""
        return self.state == "running"

    @property
    def description(self) -> str:
        """The state, and what failed."""
        return f"{self.state}: {text_or_cause(self.detail, self.state)}"


@dataclass(frozen=True, slots=True)
class CollectorExamination:
    """Findings on a collector, and facts for the rest of the examination.

    ``kept_topic`` is a topic of its own that must be kept for ever; empty without one.
    ``own_keys``: it may send rows under other keys than those that their tables declare.
    ``largest`` is the size in bytes of the largest record that it hands over; None: no limit is
    known.
    """

    findings: tuple[Finding, ...] = ()
    kept_topic: str = ""
    own_keys: bool = False
    largest: int | None = None


class Collector(Protocol):
    """Reads one source's log; a module exports its class of this kind as ``COLLECTOR``.

    ``usual_kind`` and ``usual_format`` hold where a source's settings name none; empty: they must.
    A class has its settings' ``url`` and ``connector`` as fields if it names them so, the format's
    option ``unavailable``, all settings of its source as ``source``, and what came of the
    source's log, a `pipeline.collectors.collector.CollectedStream`, as ``stream``.
    One that says ``serverless = True`` reads no server: its sources need no host, port and user.
    """

    usual_kind: ClassVar[str]
    usual_format: ClassVar[str]

    @property
    def rests_on(self) -> str:
        """What its acknowledgement also depends on, for people; empty if on nothing."""
        ...

    def acknowledged(self) -> Acknowledged | Missing:
        """What it has durably handed over: Kafka has every change before it.

        Missing before there is such a position.  Never more than is true: readiness rests on it.
        """
        ...

    def address(self) -> tuple[str, int]:
        """Host and port of the server that it reads."""
        ...

    def captures(self) -> CaptureScope:
        """The tables whose rows it sends now; it describes others, too."""
        ...

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        """Return findings on its setup; *worker*: the settings of its process, if known."""
        ...

    def registration(self, scope: CollectionScope) -> Registration | None:
        """How it is to be set up to collect *scope*; None if that is not done from here.

        No server is asked yet.  ConfigError where what the config says of it cannot be set.
        """
        ...

    def state(self) -> CollectorState:
        """Whether it runs, and why not."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


@dataclass(frozen=True, slots=True)
class CollectedStream:
    """One source's log on its way; no server is asked yet.

    ``transport`` is that of the cluster which the collector writes to, which may not be ours.
    ``topics`` matches the whole names of its topics as they are called here: there they are
    without what stands ``before`` them.
    """

    source: SourceSettings
    server: Source
    format: Format
    registry: SchemaRegistry | None
    transport: Transport
    topics: str
    before: str = ""

    def named(self) -> tuple[str, ...]:
        """Its topics, as they are called where the collector writes; UnreachableError."""
        every = self.transport.topics(".*")
        return tuple(name for name in every if re.fullmatch(self.topics, self.before + name))
