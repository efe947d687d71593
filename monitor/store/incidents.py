"""Incidents, open and over.

Who acknowledged stands beside the incident, not in it: a round that began before the
acknowledgement must not write it away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from alerts.model import Acknowledgement, Incident, IncidentState
from monitor.store.codec import dumps, loads
from monitor.store.database import Database
from monitor.store.schema import incidents
from monitor.store.thin import forget

_KEPT = timedelta(days=180)
_OPEN = [state.value for state in IncidentState if state is not IncidentState.RESOLVED]


@dataclass(eq=False)
class Incidents:
    """Every open incident, and those that ended in the last half year."""

    database: Database

    def open(self) -> tuple[Incident, ...]:
        """All that are not resolved, oldest first."""
        query = select(incidents).where(incidents.c.state.in_(_OPEN))  # `!=` goes by no index
        return self._all(query.order_by(incidents.c.opened, incidents.c.id))

    def list(self, states: Sequence[IncidentState] = (), limit: int = 100) -> tuple[Incident, ...]:
        """At most *limit* in any of *states* (empty: in all), newest first."""
        query = select(incidents).order_by(incidents.c.opened.desc(), incidents.c.id).limit(limit)
        if states:
            query = query.where(incidents.c.state.in_([state.value for state in states]))
        return self._all(query)

    def get(self, episode: str) -> Incident | None:
        """The incident of that id; None if there is none (any more)."""
        found = self._all(select(incidents).where(incidents.c.id == episode))
        return found[0] if found else None

    def keep(self, changed: Sequence[Incident], dropped: Sequence[str] = ()) -> None:
        """Write *changed*, and delete the incidents with the ids *dropped*, in one transaction."""
        if not changed and not dropped:
            return
        with self.database.write() as connection:
            for incident in changed:
                _save(connection, incident)
            for id_ in dropped:
                connection.execute(delete(incidents).where(incidents.c.id == id_))

    def acknowledge(self, episode: str, who: str, at: datetime) -> bool:
        """Note that *who* has it in hand; False if there is no such open incident."""
        mine = (incidents.c.id == episode) & (incidents.c.state != IncidentState.RESOLVED.value)
        change = update(incidents).where(mine).values(ack_who=who, ack_at=at)
        with self.database.write() as connection:
            return connection.execute(change).rowcount > 0

    def prune(self, now: datetime) -> int:
        """Forget what ended long ago; return how many went."""
        over = (incidents.c.state == IncidentState.RESOLVED.value) & (
            incidents.c.turned < now - _KEPT
        )
        return forget(self.database, incidents, over)

    def _all(self, query: Any) -> tuple[Incident, ...]:
        return tuple(self.database.decoded(query, incidents, _incident))


def _save(connection: Connection, incident: Incident) -> None:
    values = {
        "cause": incident.cause.fingerprint,
        "state": incident.state.value,
        "severity": incident.severity.value,
        "opened": incident.opened,
        "turned": incident.turned,
        "body": dumps(Incident, incident),
    }
    same = incidents.c.id == incident.id
    if connection.execute(update(incidents).where(same).values(values)).rowcount == 0:
        connection.execute(insert(incidents).values(id=incident.id, **values))


def _incident(row: Row[Any]) -> Incident:
    incident = loads(Incident, row.body)
    if row.ack_who is None:
        return incident
    return replace(incident, acknowledged=Acknowledgement(row.ack_who, row.ack_at))
