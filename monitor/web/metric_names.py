"""Every metric Sluice exposes: name, labels, kind, help.  Dashboards are generated from this."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One family; a ``counter`` is exposed under its name, which therefore ends in ``_total``."""

    name: str
    labels: tuple[str, ...]
    help: str
    kind: str = "gauge"


HOP_LAG = Metric(
    "sluice_hop_lag_seconds",
    ("table", "hop"),
    "How far the hop's exit is behind its entry; absent while it is unknown.",
)
HOP_AGE = Metric(
    "sluice_hop_sample_age_seconds",
    ("table", "hop"),
    "Age of the oldest sample that the hop's lag rests on.",
)
WATERMARK = Metric(
    "sluice_watermark_timestamp_seconds",
    ("table", "stage"),
    "Every change committed at the source up to this Unix time is in.",
)
READINESS = Metric(
    "sluice_readiness",
    ("table", "stage", "state"),
    "1 for the state that answers for the end of yesterday, 0 for the others.",
)
OUTCOME = Metric(
    "sluice_check_outcome",
    ("table", "check", "outcome"),
    "1 for the outcome of the check's newest verdict, 0 for the others.",
)
VALUE = Metric(
    "sluice_check_value",
    ("table", "check"),
    "The number that the check's newest verdict rests on, in the check's own unit.",
)
CHANGES = Metric(
    "sluice_changes_total",
    ("table", "term"),
    "Changes by the account's term: read = applied + noop + superseded + ...",
    "counter",
)
RESIDUAL = Metric(
    "sluice_account_residual",
    ("table",),
    "Changes read that no other term of the account explains; anything but 0 is wrong.",
)
HEADROOM = Metric(
    "sluice_loss_headroom_seconds",
    ("kind", "name"),
    "Time until what is not yet read would be deleted by its keeper.",
)
INCIDENTS = Metric(
    "sluice_incidents", ("severity", "state"), "Open incidents by severity and state."
)
LETTERS = Metric(
    "sluice_channel_letters",
    ("channel", "state"),
    "Letters that wait for the channel, and dead ones that nobody has waived.",
)
CHANNEL_FAILURES = Metric(
    "sluice_channel_failures",
    ("channel",),
    "Sendings that failed in a row; 0 after one that was taken.",
)
TICKS = Metric(
    "sluice_ticks_total",
    ("job", "result"),
    "Ticks of each scheduled job by how they ended; missed ones included.",
    "counter",
)
SUCCESS = Metric(
    "sluice_last_success_timestamp_seconds",
    ("job",),
    "Unix time when the job last ended well.",
)

METRICS = (
    HOP_LAG,
    HOP_AGE,
    WATERMARK,
    READINESS,
    OUTCOME,
    VALUE,
    CHANGES,
    RESIDUAL,
    HEADROOM,
    INCIDENTS,
    LETTERS,
    CHANNEL_FAILURES,
    TICKS,
    SUCCESS,
)
