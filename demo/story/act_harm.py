"""Harms data behind the service's back; the service names each harm, and the gate closes (409)."""

from collections.abc import Collection

from demo.oracle.compare import mirror_path
from demo.story.harm import ForeignDelete, Harm, UnloggedChange, UnloggedRows
from demo.story.progress import Progress
from demo.story.service import Json
from demo.story.stage import Stage

TITLE = "do harm behind its back: rows and a value without a log, a foreign hand in a mirror"
SHARD, CHANGED, FOLDED, MIRROR = (
    "shop_01.orders_00",
    "shop_00.orders_01",
    "shop.orders",
    "shop.users",
)
OF_ROWS = ("range_counts", "values")
"""Rows that both checks find are one incident, of the check that was first."""


def play(stage: Stage) -> str:
    """Do the harm; wait for the incidents that name it and for the gate to close."""
    stage.harm = harm = _do(stage)
    stage.ask_gate("after the harm", closed=(FOLDED, MIRROR))
    lost = _incident(stage, OF_ROWS, harm.rows.span, FOLDED)
    changed = _incident(stage, OF_ROWS, f"{CHANGED}:{harm.value.id}", FOLDED)
    foreign = _incident(stage, ("foreign_write",), f"version {harm.row.version} ", MIRROR)
    incidents = {one["id"]: one for one in (lost, changed, foreign)}
    for one in incidents.values():
        told = f"  incident: {one['check']} of {one['about']}: {one['reason']}"
        stage.screen.say(told, "red")
    harm.incidents = tuple(incidents)
    stage.summary.incidents = stage.service.incidents("firing")
    reasons = "; ".join(one["reason"] for one in incidents.values())
    return f"{reasons}; gate from 200 to 409"


def _do(stage: Stage) -> Harm:
    path = mirror_path(stage.service.lake, MIRROR)
    mysql = stage.servers.mysql
    harm = Harm(UnloggedRows(mysql, SHARD), UnloggedChange(mysql, CHANGED), ForeignDelete(path))
    harm.rows.do()
    harm.value.do()
    stage.screen.say(f"  changed at the source, without a log: total of {CHANGED}:{harm.value.id}")
    stage.screen.say(f"  inserted at the source, without a log: {harm.rows.span}")
    harm.row.do()
    stage.screen.say(
        f"  deleted from the mirror of {MIRROR}: id {harm.row.id}, as version {harm.row.version}"
    )
    return harm


def _incident(stage: Stage, checks: Collection[str], naming: str, table: str) -> Json:
    """Wait for a firing incident of *checks* about *table* that names the harm."""
    found: list[Json] = []

    def fires(_: Progress) -> bool:
        found[:] = [
            each
            for each in stage.service.incidents("firing")
            if each["check"] in checks
            and table in each["tables"]
            and naming in " ".join([each["reason"], *each["keys"]])
        ]
        return bool(found)

    wanted = " or ".join(checks)
    stage.wait(fires, f"incident of {wanted} that names {naming.strip()} of {table}")
    return found[0]
