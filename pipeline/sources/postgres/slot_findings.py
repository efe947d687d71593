"""Does the slot keep the log for the connector, and for how much longer?  Pure."""

from collections.abc import Iterator

from pipeline.finding import NOTE, REFUSE, WARN, Finding, FindingSeverity
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.server_facts import PostgresFacts, SlotFacts

Told = tuple[FindingSeverity, str, str, str]  # severity, code, what, fix

UNLIMITED = "-1"
KEPT = "max_slot_wal_keep_size"
PLUGIN = "pgoutput"


def slot_findings(facts: PostgresFacts, where: str, names: Replication) -> list[Finding]:
    """Rule on the slot that the config names."""
    return [
        Finding(severity, code, where, what, fix)
        for severity, code, what, fix in _told(facts, names)
    ]


def _told(facts: PostgresFacts, names: Replication) -> Iterator[Told]:
    slot = facts.slot
    if slot is None:
        what = f"there is no slot {names.slot}: until the connector has made it, nothing is kept"
        yield NOTE, "slot", what, "register the connector (sluice connector)"
        return
    yield from _wrong(slot, names)
    yield from _losing(slot)
    if not slot.active:
        what = f"nobody reads slot {slot.name}, which keeps {size(slot.retained or 0)} of the log"
        yield WARN, "slot_idle", what, "start the connector; the disk fills until it reads on"
    if facts.settings.get(KEPT) == UNLIMITED:
        what = f"{KEPT}=-1: while the connector stands still, the log grows until the disk is full"
        fix = f"ALTER SYSTEM SET {KEPT} = '...GB', less than the disk has; SELECT pg_reload_conf()"
        yield NOTE, KEPT, what, fix


def _wrong(slot: SlotFacts, names: Replication) -> Iterator[Told]:
    drop = f"SELECT pg_drop_replication_slot('{slot.name}'), then a new base of all its tables"
    if slot.plugin != PLUGIN:
        what = f"slot {slot.name} is of plugin {slot.plugin or 'none'}, not {PLUGIN}"
        yield REFUSE, "slot", what, drop
    elif slot.database != names.database:
        what = f"slot {slot.name} is of database {slot.database}, not {names.database}"
        yield REFUSE, "slot", what, "name a slot of its own under sources: options"


def _losing(slot: SlotFacts) -> Iterator[Told]:
    if slot.status == "lost":
        what = f"slot {slot.name} is lost: the server has removed log that was not read"
        fix = f"SELECT pg_drop_replication_slot('{slot.name}'), then a new base of all its tables"
        yield REFUSE, "slot_lost", what, fix
    elif slot.status == "unreserved":
        what = f"slot {slot.name} keeps its log no more: the next checkpoint may remove it"
        fix = (
            f"ALTER SYSTEM SET {KEPT} = -1; SELECT pg_reload_conf(); and let the connector catch up"
        )
        yield REFUSE, "slot_lost", what, fix


def size(number: int) -> str:
    """Bytes for people."""
    for unit, step in (("GB", 2**30), ("MB", 2**20)):
        if number >= step:
            return f"{number / step:.1f} {unit}"
    return f"{number} bytes"
