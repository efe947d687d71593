"""What does `sluice.yaml` say?  Read once, checked whole, and never changed while running.

All faults are told at once.  Durations are ISO 8601, secrets are references, and an unknown key is
a fault: a setting that is spelled wrong must not silently be a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from alerts.round import AlertSettings
from checks import run as probes
from checks.readiness import CheckNeed, ReadinessPolicy, Rule
from monitor.config.copy_plan import CopyPlan
from monitor.config.openlineage import OpenLineageSettings
from monitor.config.plans import CheckPlan, Every
from monitor.config.rebootstrap import RebootstrapRule
from pipeline.archive import ArchiveRule
from pipeline.settings import (
    InvariantRule,
    KafkaSecurity,
    PipelineSettings,
    PublishRule,
    SourceSettings,
    StandardRule,
    TableRule,
    UpkeepSettings,
)

LOW = 2  # the first tier whose tables may wait for others
Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the lane works; each default is that of :class:`PipelineSettings`."""

    lane: str = "main"
    batch_rows: int = 2_000_000
    urgent_rows: int = 20_000
    small_batch_rows: int = 20_000
    landing_tasks: int = 4
    merge_workers: int = 2
    master: str = "local[2]"
    driver_memory: str = "1500m"
    spark: Mapping[str, str] = field(default_factory=dict)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)


@dataclass(frozen=True, slots=True)
class ReadinessSettings:
    """When a table may be called ready, and how old what is known about it may be.

    ``gating`` names the probes whose FAIL blocks a table, by default those that say so themselves.
    ``checks: required`` withholds READY from a table of which no gating check can find a loss.
    ``sample_age`` is how old a sample may be that a READY rests on, ``heartbeat_age`` how old the
    newest heartbeat.  ``clock_skew`` is how far a source's clock may be from Sluice's.
    ``lag_budget`` is per tier; a tier it does not name has that of the highest.
    """

    rule: Rule = Rule.BOTH
    margin: timedelta = timedelta(seconds=5)
    sample_age: Every = timedelta(seconds=60)
    heartbeat_age: Every = timedelta(seconds=15)
    clock_skew: Every = timedelta(seconds=2)
    disagreement: Every = timedelta(minutes=10)
    gating: tuple[str, ...] | None = None
    checks: CheckNeed = CheckNeed.OPTIONAL
    lag_budget: Mapping[str, Every] = field(
        default_factory=lambda: {"0": timedelta(minutes=5), "1": timedelta(minutes=15)}
    )

    def budget(self, tier: int) -> timedelta:
        """The longest lag that is not late for a table of *tier*."""
        known = _by_tier(self.lag_budget)
        return known.get(tier, known[max(known)] if known else timedelta())


@dataclass(frozen=True, slots=True)
class HttpAuth:
    """The bearer token that a request must bring: ``{env: NAME}`` or ``{file: PATH}``."""

    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where the API and the status page are served.

    ``names`` are the host names and addresses by which clients call the service, in addition to
    loopback, the address that it listens on and this machine's name.  A request under another
    ``Host`` is refused.  ``auth`` is the token that every POST and DELETE needs.  A ``host``
    that other machines reach is refused without it; reading needs the token there, too, except
    ``/livez``, ``/readyz`` and ``/metrics``.
    """

    host: str = "127.0.0.1"
    port: int = 8088
    names: tuple[str, ...] = ()
    auth: HttpAuth | None = None


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """How much space must be free on the disks of store, lake and log.

    The smaller of the two counts: ``free_share`` of the disk, or ``free_bytes``.
    """

    free_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    free_bytes: Annotated[int, Field(ge=0)] = 10 * 2**30

    def needed(self, size: int) -> int:
        """Bytes that must be free on a disk of *size* bytes."""
        return min(int(size * self.free_share), self.free_bytes)


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """How often each job of the service runs, and how long the Spark process may take.

    A job that takes longer than its pace goes on at the next tick after its end.  ``land`` commits
    to the change log each time: more often than every two seconds, and more than some 4,000 files
    lie there between two compactions.  ``cycles``: how long tables of a tier may wait for
    their turn, by tier; one that is not named waits as long as the highest named below it.  By
    default those of tier 2 and above wait for a third of their lag budget at most, no others.
    """

    land: Every = timedelta(seconds=2)
    merge: Every = timedelta(seconds=5)
    cycles: Mapping[str, Every] | None = None
    watch: Every = timedelta(seconds=5)
    probe: Every = timedelta(seconds=5)
    deliver: Every = timedelta(seconds=2)
    upkeep: Every = timedelta(minutes=1)
    prune: Every = timedelta(hours=1)
    land_deadline: Every = timedelta(minutes=15)
    merge_deadline: Every = timedelta(minutes=30)
    upkeep_deadline: Every = timedelta(hours=2)


class Config(BaseModel):
    """The whole file; sections that name plug-ins hold what those were built into."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    time_zone: ZoneInfo = ZoneInfo("UTC")
    lake: Text
    kafka: str = ""
    kafka_security: KafkaSecurity = KafkaSecurity()
    transport: Text = "kafka"
    transport_options: Mapping[str, Any] = {}
    table_format: Text = "delta"
    table_format_options: Mapping[str, Any] = {}
    sources: Annotated[tuple[SourceSettings, ...], Field(min_length=1)]
    tables: tuple[TableRule, ...] = ()
    publish: tuple[PublishRule, ...] = ()
    rebootstrap: tuple[RebootstrapRule, ...] = ()
    openlineage: OpenLineageSettings | None = None
    archive: tuple[ArchiveRule, ...] = ()
    pipeline: Tuning = Tuning()
    readiness: ReadinessSettings = ReadinessSettings()
    heartbeat: Every = timedelta(seconds=1)
    alerts: AlertSettings = AlertSettings()
    store: Text = "sluice.db"
    http: HttpSettings = HttpSettings()
    disks: DiskSettings = DiskSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    probes: SkipJsonSchema[tuple[Any, ...]] = ()
    channels: SkipJsonSchema[Mapping[str, Any]] = {}
    invariants: SkipJsonSchema[tuple[InvariantRule, ...]] = ()
    copies: SkipJsonSchema[tuple[Any, ...]] = ()
    standards: SkipJsonSchema[tuple[StandardRule, ...]] = ()

    @property
    def settings(self) -> PipelineSettings:
        """What the pipeline needs to know of all this."""
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
        """What readiness goes by; a probe that is switched off holds no gate."""
        own, running = self.readiness, {plan.name for plan in self.plans}
        named = probes.known() if own.gating is None else own.gating
        chosen = [n for n in named if own.gating is not None or probes.find(n).gating]
        gating = frozenset(chosen) & running
        return ReadinessPolicy(own.rule, own.margin, gating, own.disagreement, own.checks)

    @property
    def whole(self) -> frozenset[str]:
        """Probes that run of which a PASS has looked at all rows."""
        return frozenset(plan.name for plan in self.plans if probes.is_whole(plan.name))

    @property
    def copied(self) -> tuple[CopyPlan, ...]:
        """The copies that are kept."""
        return self.copies

    @property
    def plans(self) -> tuple[CheckPlan, ...]:
        """The probes that run."""
        return self.probes


def _by_tier(told: Mapping[str, timedelta]) -> dict[int, timedelta]:
    """Without names that are no tiers: those are refused, once the rest is judged, too."""
    return {int(name): length for name, length in told.items() if name.isdecimal()}
