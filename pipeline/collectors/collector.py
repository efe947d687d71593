"""Defines the collector protocol, how a collector is registered, and the stream it sends.

Each kind of collector has its own module. Every method raises UnreachableError when the
collector does not answer.

Registration keeps each setting that a person chose, unless a demand forbids its value. It adds
missing settings, and removes only forbidden ones. A secret is never shown, but a reference to
one is.

`CollectedStream` is for collectors that cannot be queried. Their state is derived from their
source and from the messages in their topics.
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
REFERENCE = re.compile(r"\$\{[^{}:]+:[^{}]+\}")  # Connect resolves it, such as ${env:NAME}
_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_LOGIN = re.compile(r"://[^\s/?#:]*:[^\s/?#]+@")  # an address with user and password
_LOGS_IN = re.compile(r"(?i)LoginModule\b")  # a JAAS line, which has options with values
_OPTION = re.compile(r"(?i)\b\w*(?:password|secret|token|key)\w*\s*=\s*\"?[^\"\s;]")
Settings = Mapping[str, str]


def is_secret(value: str, *, named: bool) -> bool:
    """Whether *value* has a secret in clear text; *named*: its setting is one that holds secrets.

    A private key, and a password in a URL, are secrets in every setting.  A *named* setting is not
    secret if it has only references, joined by ``:``.  A JAAS line with a reference is not secret
    unless an option such as ``password`` has a value in clear text.
    """
    clear = REFERENCE.sub("", value)
    if clear != value and not clear.strip(":"):
        return False
    if named and clear != value and _LOGS_IN.search(clear):
        return bool(_OPTION.search(clear))
    return named or bool(_KEY.search(clear) or _LOGIN.search(clear))


def left_out(groups: Iterable[frozenset[str]], present: Collection[str]) -> set[str]:
    """All settings of each of *groups* that has one of *present*; none of them must be added."""
    return {name for group in groups if not group.isdisjoint(present) for name in group}


@dataclass(frozen=True, slots=True)
class CollectionScope:
    """The source that a collector must read, its tables, and the cluster that it writes to.

    ``brokers`` and ``security`` are of that cluster, which may not be the one that Sluice reads;
    they are empty if nothing is written to Kafka.  ``rules`` select the tables.
    """

    source: SourceSettings
    brokers: str
    security: KafkaSecurity
    rules: tuple[TableRule, ...]


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that must change; ``before`` is None if unset, ``after`` if it must be removed."""

    name: str
    before: str | None
    after: str | None
    why: str = ""

    def __str__(self) -> str:
        """Format the change like a line of a diff."""
        if self.before is None:
            return f"+ {self.name}={self.after}"
        if self.after is None:
            return f"- {self.name}={self.before}"
        return f"~ {self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Registration:
    """How one collector is registered.

    ``wanted`` has all settings of a new registration.  ``firm`` are demands that a value chosen by
    a person must meet; otherwise it is replaced.  ``together`` are groups of alternative settings:
    if one is set, no other of its group is added.  ``secret`` returns whether a setting holds
    secrets.  ``now`` returns the present settings, None if the collector is not registered; ``put``
    registers it.  Both raise UnreachableError; ``put`` raises ConfigError if the collector rejects
    the settings.  ``forbidden`` settings are removed.  ``join`` takes ``wanted`` and the present
    settings, and returns the present settings with those that must combine both.
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
        """The settings to register, given the present settings *now* (None: not registered)."""
        if now is None:
            return dict(self.wanted)
        now = self.join(self.wanted, now)
        left = left_out(self.together, now)
        added = {name: value for name, value in self.wanted.items() if name not in left}
        firmly = {one.name: self._value(one, now) for one in self._unmet(now)}
        kept = {name: value for name, value in now.items() if not self.forbidden(name)}
        return {**added, **kept, **firmly}

    def differences(self, now: Settings | None) -> tuple[SettingDifference, ...]:
        """Each setting that ``target`` changes, adds or removes, sorted by name."""
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
        """*value*, or `HIDDEN` if it is a secret; references to secrets are shown."""
        return HIDDEN if is_secret(value, named=self.secret(name)) else value

    def _unmet(self, now: Settings) -> list[Demand]:
        return [one for one in self.firm if one.name in now and not one.met(now[one.name])]

    def _value(self, demand: Demand, now: Settings) -> str:
        """The wanted value, or if another setting of its group is set, the first accepted one."""
        group = {name for group in self.together if demand.name in group for name in group}
        beside = (group - {demand.name}) & now.keys()
        return ("" if beside else self.wanted.get(demand.name, "")) or demand.good[0]


USUAL = "connect"  # the kind of collector if a source names none


@dataclass(frozen=True, slots=True)
class CollectorState:
    """The state of a collector, as it reports it; only ``running`` is healthy.

    ``detail`` is the error, empty without one.
    """

    state: str
    detail: str = ""

    @property
    def running(self) -> bool:
        """Whether all its parts run."""
        return self.state == "running"

    @property
    def description(self) -> str:
        """The state and the error."""
        return f"{self.state}: {text_or_cause(self.detail, self.state)}"


@dataclass(frozen=True, slots=True)
class CollectorExamination:
    """Findings on a collector, and facts for other findings of `sluice doctor`.

    ``kept_topic`` is a topic of the collector that must be kept forever; empty without one.
    ``own_keys``: it may send rows with other keys than those that their tables declare.
    ``largest`` is the size in bytes of the largest record that it sends; None if no limit is
    known.
    """

    findings: tuple[Finding, ...] = ()
    kept_topic: str = ""
    own_keys: bool = False
    largest: int | None = None


class Collector(Protocol):
    """Collects one source's log; each module exports its class as ``COLLECTOR``.

    ``usual_kind`` and ``usual_format`` are the defaults of a source; if empty, the source must set
    its own.  A class that has one of these fields gets its value: ``url`` and ``connector`` of the
    settings, the format's option ``unavailable``, ``source`` (all settings of its source), and
    ``stream`` (a `pipeline.collectors.collector.CollectedStream`).
    A class with ``serverless = True`` reads no server: its sources need no host, port and user.
    """

    usual_kind: ClassVar[str]
    usual_format: ClassVar[str]

    @property
    def rests_on(self) -> str:
        """What else its acknowledgement depends on, as text for people; empty if nothing."""
        ...

    def acknowledged(self) -> Acknowledged | Missing:
        """The position before which Kafka has every change; Missing before the first one.

        It must never be too high, because readiness depends on it.
        """
        ...

    def address(self) -> tuple[str, int]:
        """Host and port of the server that it reads."""
        ...

    def captures(self) -> CaptureScope:
        """The tables whose rows it sends now; it may describe the schemas of other tables too."""
        ...

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        """Return findings on its setup; *worker*: the settings of its process, if known."""
        ...

    def registration(self, scope: CollectionScope) -> Registration | None:
        """How to register it for *scope*; None if Sluice does not register such collectors.

        This sends no request.

        Raises:
            ConfigError: settings of the config cannot be used for a registration.
        """
        ...

    def state(self) -> CollectorState:
        """Whether it runs, and the error if not."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


@dataclass(frozen=True, slots=True)
class CollectedStream:
    """The topics to which a collector writes one source's log; building it sends no request.

    ``transport`` reads the cluster that the collector writes to, which may not be the one that
    Sluice reads.  ``topics`` is a regular expression for the whole names of the topics in the
    cluster that Sluice reads.  In the collector's cluster they lack the prefix ``before``.
    """

    source: SourceSettings
    server: Source
    format: Format
    registry: SchemaRegistry | None
    transport: Transport
    topics: str
    before: str = ""

    def named(self) -> tuple[str, ...]:
        """Names of the topics in the collector's cluster.

        Raises:
            UnreachableError: the cluster does not answer.
        """
        every = self.transport.topics(".*")
        return tuple(name for name in every if re.fullmatch(self.topics, self.before + name))
