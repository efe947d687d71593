"""What a finished run left behind: everything that could be wrong with it, looked for and named."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import yaml
from deltalake import DeltaTable, QueryBuilder
from sqlalchemy import select

from alerts.model import IncidentState
from demo.oracle.compare import compared
from demo.shop.schema import MIRRORS
from monitor.app import CENSUS, CHECK, PUBLISH, RETENTION
from monitor.config.file import load_config
from monitor.store.schema import accounts
from monitor.store.store import ServiceStore
from tests.proof.judging import Tribunal, forgotten
from tests.proof.stand import Stand
from tests.proof.tally import SERVERS, judged
from tests.proof.timetable import unrecorded

ALL = 1_000_000
ALARMS = ("lost", "blocked", "suspect")
SHOWN = 5
LANDED = """
    SELECT "table" AS name, count(*) AS n FROM log
    WHERE op IN ('c', 'u', 'd', 'r', 'truncate', 'settle', 'tombstone', 'error')
    AND "table" IS NOT NULL GROUP BY "table"
"""


@dataclass(eq=False)
class Findings:
    """What is wrong, by what was looked for; empty if all is well."""

    wrong: dict[str, list[str]] = field(default_factory=dict)

    def add(self, what: str, found: Iterable[str]) -> None:
        """Note findings, if there are any."""
        if listed := list(found):
            self.wrong[what] = listed

    def excuse(self, what: str, telling: str) -> None:
        """Take back findings of a kind that say *telling*: a test saw to it that they are true."""
        self.add(what, [one for one in self.wrong.pop(what, []) if telling not in one])

    def __str__(self) -> str:
        """Count each kind, and show its first few."""
        lines = [
            line
            for what, found in self.wrong.items()
            for line in (f"{len(found)} {what}:", *(f"  {each}" for each in found[:SHOWN]))
        ]
        return "\n".join(lines)


def examine(stand: Stand, findings: Findings) -> None:
    """Look for everything; the servers still run, nothing else does."""
    findings.add("wrong in mirrors", unequal(stand))
    store = ServiceStore.open(stand.home / "sluice.db")
    try:
        tribunal = Tribunal(
            stand.service.lake,
            stand.ledger.entries(),
            {one.id: one for one in store.certificates.list(limit=ALL)},
            stand.bases,
        )
        decisions = stand.asker.decisions
        false = judged(SERVERS, len(decisions), tribunal.false(decisions))
        findings.add("false READY", false)
        findings.add("judges asleep", tribunal.asleep(stand.asker.decisions))
        findings.add("forgotten READY", forgotten(stand.asker.decisions))
        findings.add("accounts off balance", _unbalanced(store))
        findings.add("ticks unrecorded", _untimed(stand, store))
        findings.add("false alarms", _alarms(store))
        findings.add("landed and in no account, or in two", _unaccounted(stand, store))
    finally:
        store.close()


def unequal(stand: Stand) -> Iterator[str]:
    """Mirrors that are not their source, with the writers gone and all caught up."""
    entries = stand.ledger.entries()
    diffs = compared(stand.system.sources(), stand.service.lake, ledger=entries)
    yield from (f"{name}: {diff}" for name, diff in diffs.items() if not diff.clean)
    yield from (f"{name}: no rows at all" for name, diff in diffs.items() if not diff.rows)


def _unbalanced(store: ServiceStore) -> Iterator[str]:
    """Accounts with a residual; each turn's, and their sums, added up here once more."""
    with store.database.read() as connection:
        rows = connection.execute(select(accounts).where(accounts.c.residual != 0)).all()
    yield from (f"batch {row.batch} of {row.table}: {row.terms}" for row in rows)
    totals = store.accounts.totals()
    residuals = Counter[str]()
    for (table, term), changes in totals.items():
        residuals[table] += changes if term == "read" else -changes
    yield from (f"{table}: sums leave {left}" for table, left in residuals.items() if left)
    if not totals:
        yield "none was kept"


def _unaccounted(stand: Stand, store: ServiceStore) -> Iterator[str]:
    """Tables of which not as many changes were landed as all accounts together have read."""
    log = DeltaTable(f"{stand.service.lake}/changes")
    rows = pa.table(QueryBuilder().register("log", log).execute(LANDED).read_all()).to_pylist()
    totals = store.accounts.totals()
    landed = {row["name"]: row["n"] for row in rows if row["name"] in MIRRORS}
    read = {name: totals.get((name, "read"), 0) for name in landed}
    yield from (f"{n}: {landed[n]} landed, {read[n]} read" for n in landed if landed[n] != read[n])


def _untimed(stand: Stand, store: ServiceStore) -> Iterator[str]:
    paces = _paces(stand)
    listed = store.ticks.list(limit=ALL)
    ticks = {job: [tick for tick in listed if tick.job == job] for job in {t.job for t in listed}}
    return unrecorded(ticks, paces)


def _paces(stand: Stand) -> dict[str, timedelta]:
    """How often each job is planned, by the config alone."""
    with stand.environment():
        config = load_config(stand.service.config)
    schedule = config.schedule
    return {
        **{f"heartbeat:{source.name}": config.heartbeat for source in config.sources},
        "land": schedule.land,
        "merge": schedule.merge,
        "watch": schedule.watch,
        "probe": schedule.probe,
        "deliver": schedule.deliver,
        "upkeep": schedule.upkeep,
        "reread": schedule.land,
        "prune": schedule.prune,
        "census": CENSUS,
        "retention": RETENTION,
        **({"publish": PUBLISH} if config.publish else {}),
        **({"check": CHECK} if _has_suites(stand.service.config) else {}),
        **({"merge_urgent": schedule.merge} if config.settings.divided else {}),
    }


def _has_suites(config: Path) -> bool:
    """Whether *config* names suites of expectations, which have a job of their own."""
    probes = yaml.safe_load(config.read_text(encoding="utf-8")).get("probes", {})
    return bool((probes.get("expectations") or {}).get("suites"))


def _alarms(store: ServiceStore) -> Iterator[str]:
    """Incidents that somebody was told about, of kinds that no kill explains."""
    told = (IncidentState.FIRING, IncidentState.RECOVERING, IncidentState.RESOLVED)
    for one in store.incidents.list(told, limit=ALL):
        if one.cause.kind in ALARMS:
            yield f"{one.cause.check} of {one.cause.subject}: {one.ruling.reason}"
