"""Defines the settings of `sluice.yaml` with their types and defaults.

The config is read once, validated as a whole, and never changes while the service runs. All
faults are reported together. Durations are texts such as `5m`, or ISO 8601. Secrets are
references. An unknown key is a fault, because a misspelled setting must not silently keep its
default.

`RebootstrapRule` says which tables the service may bootstrap automatically, and how often.
`RepairRule` does so for the repair of single rows.
`OpenLineageSettings` says where lineage events go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from alerts.round import AlertSettings
from checks import run as probes
from checks.readiness import CheckNeed, ReadinessPolicy, Rule
from monitor.config.plans import CheckPlan, CopyPlan, Every
from pipeline.archive import ArchiveRule
from pipeline.settings import (
    InvariantRule,
    KafkaSecurity,
    MaintenanceSettings,
    PipelineSettings,
    PublishRule,
    SourceSettings,
    StandardRule,
    TableRule,
    TlsSettings,
    without_login,
)


@dataclass(frozen=True, slots=True)
class OpenLineageSettings(TlsSettings):
    """Where lineage events are sent: posted to ``url``, and appended to ``file``.

    ``namespace`` is the namespace of Sluice's jobs.
    """

    url: str = ""
    """Address that events are posted to."""
    token: str = field(default="", repr=False)
    """Bearer token, if the address asks for one."""
    file: str = ""
    """Absolute path of a file that events are appended to."""
    namespace: str = "sluice"
    timeout: timedelta = timedelta(seconds=5)
    """How long one event may take to send."""

    def __post_init__(self) -> None:
        """Refuse settings with which no event could be sent.

        Raises:
            ValueError: a setting is missing or invalid.
        """
        if self.timeout <= timedelta():
            msg = "timeout: must be longer than 0s"
            raise ValueError(msg)
        there = urlsplit(self.url)
        if not self.url and not self.file:
            msg = "url and file are both empty; set one"
            raise ValueError(msg)
        if self.url and (there.scheme not in ("http", "https") or not there.netloc):
            msg = f"url: {without_login(self.url)!r} is not an address; write http://host:port/path"
            raise ValueError(msg)
        if self.file and not Path(self.file).is_absolute():
            msg = f"file: {self.file!r} is not an absolute path; write one"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class RebootstrapRule:
    """Whether tables that need a new base are bootstrapped automatically; the first match decides.

    ``tables`` is a glob of table names. With ``auto``, a bootstrap starts once it has been needed
    for ``after``, and not within ``again`` of the last one; at most ``at_once`` run at a time. With
    ``ask``, and without a rule, `sluice explain` shows the command.
    """

    tables: str
    how: Literal["ask", "auto"] = "ask"
    """`auto` starts a bootstrap; `ask` only shows the command."""
    after: Every = timedelta(minutes=5)
    """How long a table must need a new base before its bootstrap starts."""
    again: Every = timedelta(hours=6)
    """The shortest time between two bootstraps of one table."""
    at_once: int = 1
    """How many tables are bootstrapped at the same time."""


@dataclass(frozen=True, slots=True)
class RepairRule:
    """Whether rows that a check proved wrong are repaired automatically; the first match decides.

    ``tables`` is a glob of table names. With ``auto``, the rows that an incident names are read
    again once it has been open for ``after``. A limit that is reached, or an incident that does not
    name all of its rows, leaves the repair to a person, as ``ask`` does. The limits of a day are
    those of the tables of this rule together, within 24 hours.
    """

    tables: str
    how: Literal["ask", "auto"] = "ask"
    """`auto` starts a repair; `ask` only shows the command."""
    after: Every = timedelta(minutes=1)
    """How long an incident must be open before its rows are repaired."""
    rows: int = 100
    """The most rows of one repair."""
    rows_a_day: int = 1_000
    """The most rows of all automatic repairs within 24 hours."""
    tables_a_day: int = 5
    """The most tables with automatic repairs within 24 hours."""
    tries: int = 2
    """The most automatic repairs of one incident, and of one table within 24 hours."""


LOW = 2  # the first tier whose tables may wait for others
Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Tuning:
    """How landing and merging work; each default is that of :class:`PipelineSettings`."""

    lane: str = "main"
    """The name of this service's lane in the lake; each lane belongs to one service."""
    batch_rows: int = 2_000_000
    """The most rows of one landing batch."""
    urgent_rows: int = 20_000
    """The most rows of one landing batch while a table of tier 0 is live."""
    small_batch_rows: int = 20_000
    """A batch of up to this many rows lands without a Spark job."""
    landing_tasks: int = 4
    """The most Spark tasks of one landing batch."""
    merge_workers: int = 2
    """How many tables are merged at the same time."""
    master: str = "local[2]"
    """Spark's master, such as `local[4]`, `yarn` or `spark://host:port`."""
    driver_memory: str = "1500m"
    """Memory of Spark's driver."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Further Spark settings, by their full names."""
    upkeep: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    """How long old versions and old changes are kept."""


@dataclass(frozen=True, slots=True)
class ReadinessSettings:
    """When a table is ready, and how old samples and heartbeats may be.

    ``gating`` lists the probes whose FAIL blocks a table; by default each probe decides. With
    ``checks: required``, a table is READY only if a gating check covers it. ``sample_age`` and
    ``heartbeat_age`` bound the age of samples and of the newest heartbeat. ``clock_skew`` bounds
    the difference between a source's clock and Sluice's. ``lag_budget`` is per tier; a missing tier
    has the budget of the highest one.
    """

    rule: Rule = Rule.BOTH
    """Which rule must hold: the sum of the lags, the proof by positions, or both."""
    margin: timedelta = timedelta(seconds=5)
    """Time that must have passed since the cut, in addition to the sum of the lags."""
    sample_age: Every = timedelta(seconds=60)
    heartbeat_age: Every = timedelta(seconds=15)
    clock_skew: Every = timedelta(seconds=2)
    disagreement: Every = timedelta(minutes=10)
    """How long the two rules may disagree before an incident opens."""
    gating: tuple[str, ...] | None = None
    checks: CheckNeed = CheckNeed.OPTIONAL
    """`required`: a table that no gating check covers is never READY."""
    lag_budget: Mapping[str, Every] = field(
        default_factory=lambda: {"0": timedelta(minutes=5), "1": timedelta(minutes=15)}
    )

    def budget(self, tier: int) -> timedelta:
        """Return the longest lag that is not late for a table of *tier*."""
        known = _by_tier(self.lag_budget)
        return known.get(tier, known[max(known)] if known else timedelta())


@dataclass(frozen=True, slots=True)
class HttpAuth:
    """The bearer token that a request must bring: ``{env: NAME}`` or ``{file: PATH}``."""

    token: str = field(default="", repr=False)
    """At least 16 ASCII characters without spaces."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where the API and the status page are served.

    ``names`` lists further host names and addresses of the service. Loopback, the bound address and
    this machine's name are always known. A request with another ``Host`` is refused. ``auth`` is
    the token that every POST and DELETE needs. If other machines can reach ``host``, a token is
    required, and reading needs it, too, except ``/livez``, ``/readyz`` and ``/metrics``.
    """

    host: str = "127.0.0.1"
    """Address that the service listens on."""
    port: int = 8088
    """Port that the service listens on."""
    names: tuple[str, ...] = ()
    auth: HttpAuth | None = None


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """How much space must be free on the disks of store, lake and log.

    The smaller of ``free_share`` of the disk and ``free_bytes`` counts.
    """

    free_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    free_bytes: Annotated[int, Field(ge=0)] = 10 * 2**30

    def needed(self, size: int) -> int:
        """Return how many bytes must be free on a disk of *size* bytes."""
        return min(int(size * self.free_share), self.free_bytes)


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """How many certificates the store keeps.

    A certificate takes 0.6 kB, with eight sources 2.3 kB. Above ``most``, the oldest valid ones are
    removed: first those of cuts that are not at a full quarter of an hour, then others. ``keep`` is
    the age below which no certificate is removed for this. Revoked ones and all others of their
    cuts stay. A removed certificate is unknown by its id, and its cut is decided again when it is
    asked for.
    """

    most: Annotated[int, Field(ge=1000)] = 2_000_000
    keep: Every = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """How often each job of the service runs, and how long the Spark process may take.

    A job that takes longer than its interval runs again at the next tick after its end. Each
    ``land`` commits to the change log: below two seconds, more than 4,000 files lie there between
    two compactions. ``cycles`` is the longest time between two merges of a table, by tier; a
    missing tier has the value of the highest tier below it. By default, tables of tier 2 and above
    wait for at most a third of their lag budget, and others do not wait.
    """

    land: Every = timedelta(seconds=2)
    merge: Every = timedelta(seconds=5)
    """How often landed changes are merged into the mirrors."""
    cycles: Mapping[str, Every] | None = None
    watch: Every = timedelta(seconds=5)
    """A monitoring round: samples, lags, readiness, incidents."""
    probe: Every = timedelta(seconds=5)
    """Checks that are due."""
    deliver: Every = timedelta(seconds=2)
    """Sending of queued notifications."""
    upkeep: Every = timedelta(minutes=1)
    """Compaction and removal of old files."""
    prune: Every = timedelta(hours=1)
    """Removal of old history from the store."""
    land_deadline: Every = timedelta(minutes=15)
    """How long one landing batch may take before its Spark process is restarted."""
    merge_deadline: Every = timedelta(minutes=30)
    """How long one merge run may take before its Spark process is restarted; after each run that
    took longer, the next may take twice as long, up to ``upkeep_deadline``."""
    upkeep_deadline: Every = timedelta(hours=2)
    """How long maintenance of one table may take."""


class Config(BaseModel):
    """The whole file; sections of plug-ins contain the built objects."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    time_zone: ZoneInfo = ZoneInfo("UTC")
    """Time zone of business days; a cut that is a date means the end of that day in this zone."""
    lake: Text
    """A local folder, or a bucket such as `s3a://bucket/lake`."""
    kafka: str = ""
    """Brokers as `host:port`, with commas between several; required by the transport `kafka`."""
    kafka_security: KafkaSecurity = KafkaSecurity()
    """TLS and login of these brokers."""
    transport: Text = "kafka"
    """Transport of the topics, unless a source sets its own."""
    transport_options: Mapping[str, Any] = {}
    """Settings of that transport."""
    table_format: Text = "delta"
    """The format of the mirrors."""
    table_format_options: Mapping[str, Any] = {}
    """Settings of that format."""
    sources: Annotated[tuple[SourceSettings, ...], Field(min_length=1)]
    """Database servers, each with its collector and its topics."""
    tables: tuple[TableRule, ...] = ()
    """Which shards fold into which table; the first rule that matches a shard decides."""
    publish: tuple[PublishRule, ...] = ()
    """Tables that get an image at the end of each business day."""
    rebootstrap: tuple[RebootstrapRule, ...] = ()
    """Tables that are bootstrapped automatically when they need a new base."""
    repair: tuple[RepairRule, ...] = ()
    """Tables whose rows are repaired automatically when a check has proved them wrong."""
    openlineage: OpenLineageSettings | None = None
    """Where OpenLineage events are sent."""
    archive: tuple[ArchiveRule, ...] = ()
    """Deletes that archive rows at the source, so the lake keeps these rows."""
    pipeline: Tuning = Tuning()
    """How landing and merging work."""
    readiness: ReadinessSettings = ReadinessSettings()
    """When a table is ready."""
    heartbeat: Every = timedelta(seconds=1)
    """How often a heartbeat is written to each source."""
    alerts: AlertSettings = AlertSettings()
    """Who is notified of an incident, and how."""
    store: Text = "sluice.db"
    """The SQLite file of history, incidents and certificates."""
    certificates: CertificateSettings = CertificateSettings()
    """How many certificates that file keeps."""
    http: HttpSettings = HttpSettings()
    """Where the API and the status page are served."""
    disks: DiskSettings = DiskSettings()
    """How much disk space must be free."""
    schedule: ScheduleSettings = ScheduleSettings()
    """How often each job of the service runs."""
    probes: SkipJsonSchema[tuple[Any, ...]] = ()
    """Settings of checks."""
    channels: SkipJsonSchema[Mapping[str, Any]] = {}
    """Ways to notify people."""
    invariants: SkipJsonSchema[tuple[InvariantRule, ...]] = ()
    """What must hold of rows before they reach a mirror."""
    copies: SkipJsonSchema[tuple[Any, ...]] = ()
    """Tables that are copied row by row to other stores."""
    standards: SkipJsonSchema[tuple[StandardRule, ...]] = ()
    """Columns that are hashed, masked, mapped or encrypted before they land."""

    @property
    def settings(self) -> PipelineSettings:
        """Return the settings of the pipeline."""
        tuning = {f.name: getattr(self.pipeline, f.name) for f in fields(Tuning)}
        return PipelineSettings(
            lake=self.lake,
            kafka=self.kafka,
            kafka_security=self.kafka_security,
            transport=self.transport,
            transport_options=self.transport_options,
            table_format=self.table_format,
            table_format_options=self.table_format_options,
            sources=self.sources,
            rules=self.tables,
            publish=self.publish,
            invariants=self.invariants,
            archive=self.archive,
            standards=self.standards,
            time_zone=self.time_zone.key,
            cycles=self._cycles,
            **tuning,
        )

    @property
    def _cycles(self) -> Mapping[int, timedelta]:
        if self.schedule.cycles is None:
            return {LOW: self.readiness.budget(LOW) / 3}
        return _by_tier(self.schedule.cycles)

    @property
    def policy(self) -> ReadinessPolicy:
        """Return the settings of readiness; a probe that is switched off gates no table."""
        own, running = self.readiness, {plan.name for plan in self.plans}
        named = probes.probe_names() if own.gating is None else own.gating
        chosen = [n for n in named if own.gating is not None or probes.find_probe(n).gating]
        gating = frozenset(chosen) & running
        return ReadinessPolicy(own.rule, own.margin, own.disagreement, own.checks, gating=gating)

    @property
    def whole(self) -> frozenset[str]:
        """Return the running probes whose PASS covers all rows."""
        return frozenset(plan.name for plan in self.plans if probes.is_whole(plan.name))

    @property
    def copied(self) -> tuple[CopyPlan, ...]:
        """Return the configured copies."""
        return self.copies

    @property
    def plans(self) -> tuple[CheckPlan, ...]:
        """Return the probes that run."""
        return self.probes


def _by_tier(durations: Mapping[str, timedelta]) -> dict[int, timedelta]:
    """Return durations by tier; skip invalid tier names, which are reported elsewhere."""
    return {int(name): length for name, length in durations.items() if name.isdecimal()}
