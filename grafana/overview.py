"""The dashboard for a screen on the wall: which tables can be read, and what blocks the others."""

from grafana.panel import Dashboard, Panel, Query
from monitor.web import metrics as cm
from monitor.web import metrics as im
from monitor.web import metrics as m

DETAIL = "sluice-table"
_OWN = '{table=~"$tables"}'
_MIRROR = '{stage="mirror", table=~"$tables"}'

ANSWERS = (
    Panel(
        "Tables by answer",
        "How many tables may be read up to the end of yesterday, and how many not, and why.",
        "stat",
        "short",
        (Query(f"sum by (state) ({m.READINESS.name}{_MIRROR})", "{{state}}"),),
        width=10,
        height=5,
    ),
    Panel(
        "Incidents that fire",
        "Open incidents that were notified, by severity.",
        "stat",
        "short",
        (Query(f'sum by (severity) ({m.INCIDENTS.name}{{state="firing"}})', "{{severity}}"),),
        width=8,
        height=5,
    ),
    Panel(
        "Last monitoring round",
        "Age of everything on this page. Above a minute nothing here can be believed any more.",
        "stat",
        "s",
        (Query(f'time() - max({m.SUCCESS.name}{{task="watch"}})', "ago"),),
        width=6,
        height=5,
        red=60,
    ),
    Panel(
        "Answer of each table",
        "The state for the end of yesterday. A click opens the table in detail.",
        "table",
        "short",
        (
            Query(
                f"sum by (table, state) ({m.READINESS.name}{_MIRROR} == 1)", "{{table}} {{state}}"
            ),
        ),
        link=f"/d/{DETAIL}?var-table=${{__data.fields.table}}&${{__url_time_range}}",
    ),
    Panel(
        "Failing checks",
        "Checks whose newest verdict is FAIL, by table; 0 is what everybody wants.",
        "table",
        "short",
        (Query(f'sum by (table) ({m.OUTCOME.name}{{outcome="fail", table=~"$tables"}})', "fail"),),
        red=1,
        link=f"/d/{DETAIL}?var-table=${{__data.fields.table}}&${{__url_time_range}}",
    ),
)

LAGS = (
    Panel(
        "How far the mirrors are behind",
        "Now minus the mirror's watermark: a change committed earlier than that is in.",
        "timeseries",
        "s",
        (Query(f"time() - {m.WATERMARK.name}{_MIRROR}", "{{table}}"),),
    ),
    Panel(
        "Lag of each hop, worst table",
        "Which leg of the way is slow. A break in a line is a lag that was unknown, not zero.",
        "timeseries",
        "s",
        (Query(f"max by (hop) ({m.HOP_LAG.name}{_OWN})", "{{hop}}"),),
        stacked=True,
    ),
    Panel(
        "Age of the samples, oldest table",
        "How old the facts are that a hop's lag rests on. Past its budget the lag is unknown.",
        "timeseries",
        "s",
        (Query(f"max by (hop) ({m.HOP_AGE.name}{_OWN})", "{{hop}}"),),
    ),
    Panel(
        "Checks by outcome",
        "All checks of all tables. UNKNOWN is neither good nor bad: it is not known.",
        "timeseries",
        "short",
        (Query(f"sum by (outcome) ({m.CHECKED.name})", "{{outcome}}"),),
        stacked=True,
    ),
)

FLOW = (
    Panel(
        "Changes per second",
        "Changes read for the mirrors, by what became of them.",
        "timeseries",
        "cps",
        (Query(f"sum by (term) (rate({m.CHANGES.name}{_OWN}[$__rate_interval]))", "{{term}}"),),
    ),
    Panel(
        "Changes that nothing explains",
        "Read, but neither applied nor accounted for. Anything but 0 is wrong.",
        "timeseries",
        "short",
        (Query(f"{m.RESIDUAL.name}{_OWN}", "{{table}}"),),
        red=1,
    ),
    Panel(
        "Time until unread changes are deleted",
        "At 0 the retention of the topic deletes unread data: a permanent loss.",
        "timeseries",
        "s",
        (
            Query(f"min by (kind, name) ({m.HEADROOM.name})", "{{kind}} {{name}}"),
            Query(f"min ({m.HEADROOM_NEEDED.name})", "act below"),
        ),
        red=21600,
        below=True,
    ),
    Panel(
        "Log kept for the collector",
        "Of sources that keep it by size: what is held for a collector that has not read it, and"
        " what may still be written until some of that is lost.",
        "timeseries",
        "bytes",
        (Query(f"max by (source, state) ({m.BACKLOG.name})", "{{source}} {{state}}"),),
    ),
    Panel(
        "Rows that checks read of sources",
        "Per second, of each source. The budget of a source is limits.rows_per_second.",
        "timeseries",
        "cps",
        (
            Query(
                f"sum by (source, check) (rate({m.SOURCE_ROWS.name}[$__rate_interval]))",
                "{{source}} {{check}}",
            ),
        ),
    ),
    Panel(
        "Time that checks take of sources",
        "Seconds of queries in a second, and of waiting for the budget, over all connections.",
        "timeseries",
        "s",
        (
            Query(
                f"sum by (source, check) (rate({m.SOURCE_SECONDS.name}[$__rate_interval]))",
                "{{source}} {{check}}",
            ),
            Query(
                f"sum by (source) (rate({m.SOURCE_WAITS.name}[$__rate_interval]))",
                "{{source}} waiting",
            ),
        ),
    ),
    Panel(
        "Free disk",
        "Of the store, a local lake and a log file, as a multiple of what must be free. Below 1 it"
        " is an incident.",
        "timeseries",
        "short",
        (Query(f"min by (disk) ({m.DISK_FREE.name} / {m.DISK_NEEDED.name})", "{{disk}}"),),
        red=1,
        below=True,
    ),
    Panel(
        "Store",
        "Its size, how many certificates it has, and how many of its rows could not be read.",
        "timeseries",
        "bytes",
        (
            Query(f"max ({m.STORE_SIZE.name})", "bytes"),
            Query(f"max ({m.CERTIFICATES.name})", "certificates"),
            Query(f"max ({m.UNREADABLE.name})", "unreadable rows"),
        ),
    ),
    Panel(
        "Lag as a share of its budget",
        "The worst ten tables. Above 1 a table is late.",
        "timeseries",
        "short",
        (
            Query(
                f'topk(10, (time() - max by (table) ({m.WATERMARK.name}{{stage="mirror"}}))'
                f" / on (table) max by (table) ({m.BUDGET.name}))",
                "{{table}}",
            ),
        ),
        red=1,
    ),
    Panel(
        "Since each job last ended well",
        "A line that climbs is a job that fails, hangs, or is not started any more.",
        "timeseries",
        "s",
        (Query(f"time() - {m.SUCCESS.name}", "{{task}}"),),
    ),
    Panel(
        "Tables that are not just merged",
        "How many are new, read for a base, held, paused or retired. All others are merged.",
        "timeseries",
        "short",
        (Query(f"sum by (state) ({m.TABLE_STATE.name}{_OWN})", "{{state}}"),),
        stacked=True,
    ),
    Panel(
        "Rows read again from their source",
        "Landed of each table that gets a new base now. A line that stands still waits.",
        "timeseries",
        "short",
        (Query(f"{m.BACKFILL_ROWS.name}{_OWN}", "{{table}}"),),
    ),
    Panel(
        "Time left of what is read again",
        "At the pace so far, by the source's own estimate of rows.",
        "timeseries",
        "s",
        (Query(f"{m.BACKFILL_LEFT.name}{_OWN}", "{{table}}"),),
    ),
    Panel(
        "What slows a re-reading",
        "rate: held to its rate. time: fewer rows are asked for at once. running: its server is"
        " busy. lag: the replica that is read is behind.",
        "timeseries",
        "short",
        (Query(f"{m.BACKFILL_BRAKE.name}{_OWN}", "{{table}} {{brake}}"),),
    ),
    Panel(
        "Copies behind their mirrors",
        "How far each copy is behind its mirror. Absent while that is not known: its store does not"
        " answer, or it is being loaded.",
        "timeseries",
        "s",
        (Query(f"{cm.COPY_LAG.name}{_OWN}", "{{copy}}: {{table}}"),),
    ),
    Panel(
        "Copies without yesterday",
        "Tables per copy that are not proven to have everything up to the end of yesterday.",
        "timeseries",
        "short",
        (Query(f"count by (copy) ({cm.COPY_READY.name}{_OWN} == 0)", "{{copy}}"),),
    ),
    Panel(
        "Age of the newest image",
        "Time since the cut of the newest image that can be read. More than a day and the time that"
        " images are due after midnight: one is missing.",
        "timeseries",
        "s",
        (Query(f"time() - {im.IMAGE_CUT.name}{_OWN}", "{{table}}"),),
    ),
    Panel(
        "Images that are missing",
        "Tables whose image of yesterday is not ready though it was due.",
        "timeseries",
        "short",
        (Query(f"sum ({im.IMAGE_MISSING.name}{_OWN})", "tables"),),
        red=1,
    ),
    Panel(
        "Rows of the newest image",
        "A table's rows as of its last midnight; a step is a day that is unlike the others.",
        "timeseries",
        "short",
        (Query(f"{im.IMAGE_ROWS.name}{_OWN}", "{{table}}"),),
    ),
    Panel(
        "Spark jobs and their tasks",
        "Per second. A small batch or merge needs none: it is done in the service's own process.",
        "timeseries",
        "cps",
        (
            Query(f"sum by (work) (rate({m.SPARK_JOBS.name}[$__rate_interval]))", "{{work}} jobs"),
            Query(
                f"sum by (work) (rate({m.SPARK_TASKS.name}[$__rate_interval]))", "{{work}} tasks"
            ),
        ),
    ),
    Panel(
        "Rows of a second in a Spark job",
        "How fast Spark jobs land and merge. A fall is a machine that others keep busy.",
        "timeseries",
        "cps",
        (
            Query(
                f"sum by (work) (rate({m.SPARK_ROWS.name}[$__rate_interval]))"
                f" / sum by (work) (rate({m.SPARK_SECONDS.name}[$__rate_interval]))",
                "{{work}}",
            ),
        ),
    ),
    Panel(
        "Alerts that did not arrive",
        "Queued and dead-lettered notifications. Dead-lettered ones were not delivered.",
        "timeseries",
        "short",
        (Query(m.QUEUED_NOTIFICATIONS.name, "{{channel}} {{state}}"),),
        red=1,
    ),
    Panel(
        "Sendings that failed in a row",
        "By channel. Any other number than 0 means that it takes no alerts now.",
        "timeseries",
        "short",
        (Query(m.CHANNEL_FAILURES.name, "{{channel}}"),),
        red=1,
    ),
    Panel(
        "Ticks by how they ended",
        "Scheduled moments of all jobs. Missed ones are counted, never left out.",
        "timeseries",
        "short",
        (Query(f"sum by (result) (increase({m.TICKS.name}[$__rate_interval]))", "{{result}}"),),
        stacked=True,
    ),
)

OVERVIEW = Dashboard(
    uid="sluice-overview",
    title="Sluice: all tables",
    description="Which tables are complete, which not, and at which hop the rest stands.",
    panels=ANSWERS + LAGS + FLOW,
    variable="tables",
    label_of=m.READINESS.name,
    several=True,
)
