"""Reports what the service wrote last, for verbs that reach no running service.

The report never says READY. Since then a check may have failed, and another writer may have
changed a mirror.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from monitor.config.location import read_location
from monitor.store.last_known import LastKnown
from pipeline.errors import UnreachableError

Json = dict[str, Any]


def read_last_status(config: Path, stage: str, tables: Collection[str] = ()) -> Json:
    """Return the newest proof of each of *tables* (empty: all), and the open incidents.

    ``why`` is the reason if nothing is known.
    """
    where = read_location(config)
    known = LastKnown(where.store)
    try:
        at, found, incidents = known.at(), known.proofs(stage), known.incidents()
    except UnreachableError as error:
        return {"why": str(error), "at": None, "proofs": [], "incidents": []}
    proofs: list[Json] = [
        {
            "table": one.table,
            "stage": stage,
            "cut": one.cut.astimezone(where.zone).isoformat(),
            "certificate": one.certificate,
        }
        for one in found
        if not tables or one.table in tables
    ]
    proven = {one["table"] for one in proofs}
    proofs += [
        {"table": name, "stage": stage, "cut": None, "certificate": None}
        for name in tables
        if name not in proven
    ]
    written = at.astimezone(where.zone).isoformat(timespec="seconds") if at else None
    return {"why": "", "at": written, "proofs": proofs, "incidents": list(incidents)}


def format_status(words: Json) -> list[str]:
    """Format for a person; each proof says up to when it was complete, and since when."""
    if words["why"]:
        return [words["why"]]
    when = (
        (f"the service stored its last state at {words['at']}")
        if words["at"]
        else "no service has ever run here"
    )
    return [f"{when}; state at that time:", *map(_proof, words["proofs"])]


def _proof(one: Json) -> str:
    if one["cut"] is None:
        return f"  {one['table']} {one['stage']}: never proven complete"
    shown = f"complete up to {one['cut']}, certificate {one['certificate']}"
    return f"  {one['table']} {one['stage']}: {shown}"
