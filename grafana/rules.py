"""Prometheus alerts that page a person even when Sluice itself is silent.

They cover the same checks as Sluice's own channels. The alert of a check is read from
`alerts.causes`, so both channels agree. Each alert is a value and a test on it. The value must
exist also if all is well, because an alert without it could never fire.
"""

from collections.abc import Iterator

from alerts.causes import KINDS, OF_PROBES
from alerts.model import AlertKind, Severity
from checks.run import find_probe, kind_of, probe_names
from grafana.rule import Alert, Recording
from monitor.web import metrics as im
from monitor.web import metrics as m

_QUOTED = "'{{ $labels.table | reReplaceAll \"'\" \"'\\\\''\" }}'"  # quoted as one word of a shell
LAG = "sluice:lag_seconds"
TABLES = "sluice:tables:count"
CHANGES = "sluice:changes:rate5m"
FAILED = "sluice:ticks_failed:ratio1h"


_BAD = f'sum by (instance, task) (increase({m.TICKS.name}{{result=~"failed|late"}}[1h]))'
_BEGUN = f'sum by (instance, task) (increase({m.TICKS.name}{{result!="missed"}}[1h]))'

RECORDINGS = (
    Recording(LAG, f"time() - {m.WATERMARK.name}"),
    Recording(TABLES, f"sum by (stage, state) ({m.READINESS.name})"),
    Recording(CHANGES, f"sum by (table, term) (rate({m.CHANGES.name}[5m]))"),
    Recording(FAILED, f"({_BAD} or 0 * {_BEGUN}) / {_BEGUN}"),  # missed: busy, not broken
)

SERVICE = (
    Alert(
        "SluiceSilent",
        m.SUCCESS.name,
        "absent(%s)",
        "2m",
        Severity.CRITICAL,
        "service.md#silent",
        "Sluice is not there",
        "It could not be scraped for 2 minutes. Its own alerts are not sent either.",
    ),
    Alert(
        "SluiceInstanceSilent",
        f"max by (instance) (max_over_time({m.SUCCESS.name}[1d]))",
        f"unless on (instance) max by (instance) ({m.SUCCESS.name})"
        f" and on () count({m.SUCCESS.name})",  # without any instance, the alert above fires
        "2m",
        Severity.CRITICAL,
        "service.md#silent",
        "Sluice at {{ $labels.instance }} is not there",
        "It was there within the last day. If it was taken away on purpose, silence this.",
    ),
    Alert(
        "SluiceRoundStalled",
        f'time() - max by (instance) ({m.SUCCESS.name}{{task="watch"}})',
        "> 60",
        "1m",
        Severity.CRITICAL,
        "service.md#stalled",
        "Sluice has not looked at anything for {{ $value | humanizeDuration }}",
        "The process answers but its monitoring round is stalled: the gate says UNKNOWN.",
    ),
    Alert(
        "SluicePipelineStalled",
        f'time() - max by (instance, task) ({m.SUCCESS.name}{{task=~"land|merge"}})',
        "> 900",
        "1m",
        Severity.CRITICAL,
        "service.md#worker",
        "Job {{ $labels.task }} has not ended well for {{ $value | humanizeDuration }}",
        "Nothing is landed, or nothing is merged: Spark, Kafka or the lake does not work.",
    ),
    Alert(
        "SluiceJobFails",
        FAILED,
        "> 0.5",
        "10m",
        Severity.WARNING,
        "service.md#job",
        "Job {{ $labels.task }} fails {{ $value | humanizePercentage }} of the time",
        "Of the ticks begun in the last hour. The log and the status page say why.",
    ),
    Alert(
        "SluiceAlertsDoNotArrive",
        f"max by (instance, channel) ({m.CHANNEL_FAILURES.name})",
        "> 0",
        "10m",
        Severity.CRITICAL,
        "service.md#channel",
        "Channel {{ $labels.channel }} takes no alerts",
        "Its last {{ $value }} deliveries failed in a row. Its notifications are queued.",
    ),
    Alert(
        "SluiceAlertsGivenUp",
        f'{m.QUEUED_NOTIFICATIONS.name}{{state="dead"}}',
        "> 0",
        "1m",
        Severity.WARNING,
        "service.md#channel",
        "{{ $value }} alerts for {{ $labels.channel }} were given up",
        "The receiver rejected them, or too many were queued: they were not delivered.",
    ),
    Alert(
        "SluiceHeadroomSmall",
        f"min by (kind, name) ({m.HEADROOM.name})",
        f"< on (kind, name) max by (kind, name) ({m.HEADROOM_NEEDED.name})",
        "5m",
        Severity.CRITICAL,
        "service.md#headroom",
        "{{ $labels.kind }} {{ $labels.name }}: {{ $value | humanizeDuration }} until loss",
        "So little is left until changes that were not landed are gone for good.",
    ),
)

TABLE_ALERTS = (
    Alert(
        "SluiceLate",
        f'max by (table) ({LAG}{{stage="mirror"}})',
        f"> on (table) max by (table) ({m.BUDGET.name})",
        "5m",
        Severity.WARNING,
        "late.md#lag",
        "{{ $labels.table }} is {{ $value | humanizeDuration }} behind its source",
        "More than its lag budget. Nothing is known to be missing. Budgets: readiness.lag_budget.",
    ),
    Alert(
        "SluiceYesterdayNotReady",
        f'{m.READINESS.name}{{stage="mirror", state="ready"}}',
        "== 0",
        "1h",
        Severity.WARNING,
        "late.md#readiness",
        "{{ $labels.table }} is not ready for yesterday",
        "An hour after the cut its gate is still closed; every job that waits for it waits.",
    ),
    Alert(
        "SluiceUnknown",
        f'{m.READINESS.name}{{stage="mirror", state="unknown"}}',
        "== 1",
        "15m",
        Severity.WARNING,
        "unknown.md#readiness",
        "It is unknown whether {{ $labels.table }} is complete",
        "A fact that the answer needs has been missing for 15 minutes; the gate stays closed.",
    ),
    Alert(
        "SluiceImageMissing",
        im.IMAGE_MISSING.name,
        "== 1",
        "10m",
        Severity.WARNING,
        "late.md#image",
        "The image of yesterday of {{ $labels.table }} is not there",
        "It was due. Jobs that read the table as of midnight wait for it.",
    ),
    Alert(
        "SluiceAccountOpen",
        m.RESIDUAL.name,
        "!= 0",
        "1m",
        Severity.CRITICAL,
        "blocked.md#account",
        "{{ $value }} changes of {{ $labels.table }} are not accounted for",
        "They were read, and neither applied nor explained. The table is held.",
    ),
)


def _of_kind(kind: AlertKind, severity: Severity, hold: str, summary: str) -> Alert:
    """Return one alert for all failing checks of a kind; a custom probe counts as a suspicion.

    Sluice's own channels use the kind that a custom probe declares.
    """
    kinds = {**{name: OF_PROBES[kind_of(find_probe(name))] for name in probe_names()}, **KINDS}
    named = "|".join(sorted(name for name, one in kinds.items() if one is kind))
    others = "|".join(sorted(name for name, one in kinds.items() if one is not kind))
    which = f'check!~"{others}"' if kind is AlertKind.SUSPECT else f'check=~"{named}"'
    return Alert(
        f"Sluice{kind.capitalize()}Check",
        f'{m.OUTCOME.name}{{outcome="fail", {which}}}',
        "== 1",
        hold,
        severity,
        f"{kind}.md#{{{{ $labels.check }}}}",
        f"{{{{ $labels.table }}}} {{{{ $labels.check }}}}: {summary}",
        f"The keys, ranges or positions are in `sluice explain {_QUOTED}`.",
    )


CHECK_ALERTS = (
    _of_kind(AlertKind.LOST, Severity.CRITICAL, "0m", "rows are missing or wrong"),
    _of_kind(AlertKind.BLOCKED, Severity.CRITICAL, "1m", "the table stands still"),
    _of_kind(AlertKind.SUSPECT, Severity.WARNING, "10m", "the table looks unlike itself"),
)

GROUPS: tuple[tuple[str, tuple[Recording | Alert, ...]], ...] = (
    ("sluice-recordings", RECORDINGS),
    ("sluice-service", SERVICE),
    ("sluice-tables", TABLE_ALERTS + CHECK_ALERTS),
)


def alerts() -> Iterator[Alert]:
    """Yield all alerts, in the file's order."""
    yield from (*SERVICE, *TABLE_ALERTS, *CHECK_ALERTS)
