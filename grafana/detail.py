"""The dashboard of one table that is not ready: its answers, hops, checks and counts over time."""

from grafana.overview import DETAIL
from grafana.panel import Dashboard, Panel, Query
from monitor.web import metrics as m

_OWN = '{table="$table"}'

PANELS = (
    Panel(
        "Complete up to",
        "Every change committed at the source before this moment is in the change log, the mirror.",
        "stat",
        "dateTimeAsIso",
        (Query(f"{m.WATERMARK.name}{_OWN} * 1000", "{{stage}}"),),
        width=12,
        height=5,
    ),
    Panel(
        "Changes that nothing explains",
        "Of the newest batch, neither applied nor accounted for: they hold the table. By hop: rows"
        " of the ledger that went in and did not come out.",
        "stat",
        "short",
        (
            Query(f"{m.RESIDUAL.name}{_OWN}", "changes"),
            Query(f"{m.LEDGER.name}{_OWN}", "hop {{hop}}"),
        ),
        width=6,
        height=5,
        red=1,
    ),
    Panel(
        "Failing checks",
        "Checks of this table whose newest verdict is FAIL.",
        "stat",
        "short",
        (Query(f'sum({m.OUTCOME.name}{{table="$table", outcome="fail"}}) or vector(0)', "checks"),),
        width=6,
        height=5,
        red=1,
    ),
    Panel(
        "Answer for the end of yesterday",
        "One line per stage and state; the line that is there is the state that answers.",
        "state-timeline",
        "short",
        (
            Query(f"{m.READINESS.name}{_OWN} == 1", "{{stage}} {{state}}"),
            Query(f"{m.WHY.name}{_OWN}", "{{stage}}: {{code}}"),
        ),
    ),
    Panel(
        "Verdicts",
        "One line per check and outcome. What UNKNOWN says: nothing, in either direction.",
        "state-timeline",
        "short",
        (Query(f"{m.OUTCOME.name}{_OWN} == 1", "{{check}} {{outcome}}"),),
    ),
    Panel(
        "Lag by hop",
        "Stacked, the hops add up to the whole lag. A hop that breaks off is unknown.",
        "timeseries",
        "s",
        (Query(f"{m.HOP_LAG.name}{_OWN}", "{{hop}}"),),
        stacked=True,
    ),
    Panel(
        "Lag by stage",
        "Now minus the watermark, of the change log (landed) and of the mirror.",
        "timeseries",
        "s",
        (Query(f"time() - {m.WATERMARK.name}{_OWN}", "{{stage}}"),),
    ),
    Panel(
        "Age of the samples",
        "How old the facts are that each hop's lag rests on.",
        "timeseries",
        "s",
        (Query(f"{m.HOP_AGE.name}{_OWN}", "{{hop}}"),),
    ),
    Panel(
        "What the checks measured",
        "The number of each check's newest verdict, in the check's own unit: ids, rows, changes.",
        "timeseries",
        "short",
        (Query(f"{m.VALUE.name}{_OWN}", "{{check}}"),),
    ),
    Panel(
        "Not compared with the source since",
        "How long ago the first of all rows was compared, and the first changed row that waits.",
        "timeseries",
        "s",
        (
            Query(f"{m.VERIFIED_AGE.name}{_OWN}", "all rows"),
            Query(f"time() - {m.VERIFIED_THROUGH.name}{_OWN}", "changed rows"),
        ),
    ),
    Panel(
        "Changes per second",
        "read is the sum of all other terms; what is not, shows as unexplained.",
        "timeseries",
        "cps",
        (Query(f"rate({m.CHANGES.name}{_OWN}[$__rate_interval])", "{{term}}"),),
        width=24,
    ),
)

TABLE = Dashboard(
    uid=DETAIL,
    title="Sluice: one table",
    description="Answers, lags, checks and counts of one table.",
    panels=PANELS,
    variable="table",
    label_of=m.READINESS.name,
    several=False,
    links=(("all tables", "/d/sluice-overview"),),
)
