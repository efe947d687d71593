"""Stores incidents, queued notifications, silences and waivers.

An acknowledgement is stored next to its incident, not in it. A round that began before the
acknowledgement must not overwrite it.

The queue of a channel is bounded. When it is full, the oldest notifications are dead-lettered.
While the store accepts nothing, notifications are queued and sent from memory. Their results
are written as soon as the store accepts them. Each is sent at least once, and exactly once
unless the process ends. A full memory queue drops the oldest notifications and logs it.

Silences include maintenance windows that lie ahead. A waiver closes a gap, hold, quarantined
change or key of a finding by its id.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from alerts.model import Acknowledgement, Incident, IncidentState, Message, Silence
from alerts.outbox import ChannelHealth, QueuedMessage
from monitor.store.database import Database
from monitor.store.history import HISTORY, delete_rows
from monitor.store.schema import (
    decode_value,
    encode_value,
    incidents,
    outbox,
    silences,
    standings,
    waivers,
)
from pipeline.errors import UnreachableError

_KEPT = timedelta(days=180)
_OPEN = [state.value for state in IncidentState if state is not IncidentState.RESOLVED]


@dataclass(eq=False)
class Incidents:
    """Open incidents, and those that ended in the last half year."""

    database: Database

    def open(self) -> tuple[Incident, ...]:
        """Return unresolved incidents, oldest first."""
        query = select(incidents).where(incidents.c.state.in_(_OPEN))  # `!=` would use no index
        return self._all(query.order_by(incidents.c.opened, incidents.c.id))

    def list(self, states: Sequence[IncidentState] = (), limit: int = 100) -> tuple[Incident, ...]:
        """Return at most *limit* incidents in any of *states* (empty: all states), newest first."""
        query = select(incidents).order_by(incidents.c.opened.desc(), incidents.c.id).limit(limit)
        if states:
            query = query.where(incidents.c.state.in_([state.value for state in states]))
        return self._all(query)

    def get(self, episode: str) -> Incident | None:
        """Return the incident with that id; None if it is unknown or was deleted."""
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
        """Record that *who* acknowledged it; False if no open incident has this id."""
        mine = (incidents.c.id == episode) & (incidents.c.state != IncidentState.RESOLVED.value)
        change = update(incidents).where(mine).values(ack_who=who, ack_at=at)
        with self.database.write() as connection:
            return connection.execute(change).rowcount > 0

    def prune(self, now: datetime) -> int:
        """Delete incidents that ended long ago; return their number."""
        over = (incidents.c.state == IncidentState.RESOLVED.value) & (
            incidents.c.turned < now - _KEPT
        )
        return delete_rows(self.database, incidents, over)

    def _all(self, query: Any) -> tuple[Incident, ...]:
        return tuple(self.database.decoded(query, incidents, _incident))


def _save(connection: Connection, incident: Incident) -> None:
    values = {
        "cause": incident.cause.fingerprint,
        "state": incident.state.value,
        "severity": incident.severity.value,
        "opened": incident.opened,
        "turned": incident.turned,
        "body": encode_value(Incident, incident),
    }
    same = incidents.c.id == incident.id
    if connection.execute(update(incidents).where(same).values(values)).rowcount == 0:
        connection.execute(insert(incidents).values(id=incident.id, **values))


def _incident(row: Row[Any]) -> Incident:
    incident = decode_value(Incident, row.body)
    if row.ack_who is None or (incident.worse is not None and row.ack_at <= incident.worse):
        return replace(incident, acknowledged=None)
    return replace(incident, acknowledged=Acknowledgement(row.ack_who, row.ack_at))


WAITING, DELIVERED, DEAD = "waiting", "delivered", "dead"
_KEPT_MESSAGES = timedelta(days=30)
_FULL = 10_000
_SPARE = 2**62  # numbers above are notifications that are not stored yet
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of one channel: queued notifications, the oldest one's time, and dead ones.

    ``last`` is the number of the newest dead-lettered notification, ``why`` its reason.
    """

    waiting: int = 0
    since: datetime | None = None
    dead: int = 0
    last: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Ending:
    """The outcome of a notification, to be written."""

    state: str
    why: str
    at: datetime


@dataclass(eq=False)
class StoredOutbox:
    """Implements :class:`alerts.outbox.Outbox`; *room* is how many may wait per channel."""

    database: Database
    room: int = _FULL
    _spare: list[QueuedMessage] = field(default_factory=list, init=False)
    _done: dict[int, _Ending] = field(default_factory=dict, init=False)
    _health: dict[str, ChannelHealth] = field(default_factory=dict, init=False)
    _next: int = field(default=_SPARE, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def put(self, messages: Iterable[tuple[str, Message]], at: datetime) -> int:
        """Queue each message for its channel; skip a message that the channel already had."""
        messages = tuple(messages)
        if not messages:
            return 0
        with self.database.write() as connection:
            new = sum(_put(connection, channel, message, at) for channel, message in messages)
            for channel in {channel for channel, _ in messages}:
                self._make_room(connection, channel, at)
        return new

    def hold(self, messages: Iterable[tuple[str, Message]], at: datetime) -> None:
        """Queue in memory what the store does not accept, after all queued notifications.

        Per channel, the newest *room* waiting notifications are kept, and as many sent ones.
        """
        messages = tuple(messages)
        with self._lock:
            for channel, message in messages:
                self._spare.append(QueuedMessage(self._next, channel, message, at))
                self._next += 1
            over = self._over({channel for channel, _ in messages})
            lost = len(over - self._done.keys())
            self._spare = [one for one in self._spare if one.number not in over]
            self._done = {number: end for number, end in self._done.items() if number not in over}
        if lost:
            _log.error("notifications dropped, because store and memory are full", count=lost)

    def _over(self, channels: Set[str]) -> set[int]:
        """Return numbers in memory above *room*, per channel, for waiting and ended ones apart."""
        piles: dict[tuple[str, bool], list[int]] = {}
        for one in self._spare:
            if one.channel in channels:
                piles.setdefault((one.channel, one.number in self._done), []).append(one.number)
        return {number for numbers in piles.values() for number in numbers[: -self.room]}

    def catch_up(self, at: datetime, along: Callable[[], object] | None = None) -> None:
        """Write what is only in memory, in the same transaction as the writes of *along*.

        The lock is free during the write, so no writer of the store waits for it.

        Raises:
            UnreachableError: the store accepts no write; everything stays in memory.
        """
        with self._lock:
            spare, done, health_by_channel = tuple(self._spare), {**self._done}, {**self._health}
        if along is None and not (spare or done or health_by_channel):
            return
        with self.database.write() as connection:
            if along is not None:
                along()
            for notification in spare:
                _put(connection, notification.channel, notification.message, notification.put)
                if notification.number in done:
                    _end_spare(connection, notification, done[notification.number])
            for number, end in done.items():
                if number < _SPARE:
                    _end(connection, outbox.c.number == number, end)
            for channel in {notification.channel for notification in spare}:
                self._make_room(connection, channel, at)
            for channel, health in health_by_channel.items():
                _store_health(connection, channel, health)
        with self._lock:
            ended = {*self._done} - {*done}  # sent during the write; the next call writes them
            written = {one.number for one in spare} - ended
            self._spare = [one for one in self._spare if one.number not in written]
            left = {one.number for one in self._spare}
            self._done = {n: e for n, e in self._done.items() if n not in done or n in left}
            self._health = {c: h for c, h in self._health.items() if health_by_channel.get(c) != h}

    def channels(self) -> tuple[str, ...]:
        """Return the names of channels with queued notifications, sorted."""
        query = select(outbox.c.channel).where(outbox.c.state == WAITING).distinct()
        found = {one.channel for one in self._spare_waiting()}
        try:
            with self.database.read() as connection:
                found.update(connection.scalars(query))
        except UnreachableError as error:
            _log.warning(
                "the store cannot be read; notifications are sent from memory", why=str(error)
            )
        return tuple(sorted(found))

    def waiting(self, channel: str, limit: int) -> tuple[QueuedMessage, ...]:
        """Return the oldest *limit* notifications of *channel*; dead-letter unreadable ones."""
        query = select(outbox).where(outbox.c.state == WAITING, outbox.c.channel == channel)
        done, spare = {*self._done}, self._spare_waiting(channel)
        query = query.order_by(outbox.c.number).limit(limit + len(done))
        stored, broken = list[QueuedMessage](), list[int]()
        try:
            stored = self.database.decoded(
                query, outbox, _message, lambda row: broken.append(int(row["number"] or b"0"))
            )
        except UnreachableError as error:
            _log.warning(
                "the store cannot be read; notifications are sent from memory", why=str(error)
            )
        self._give_up([number for number in broken if number not in done])
        stored = [one for one in stored if one.number not in done]
        known = {one.message.id for one in stored}  # already written, but still in memory
        return (*stored, *(one for one in spare if one.message.id not in known))[:limit]

    def health(self, channel: str) -> ChannelHealth:
        """Return the health of *channel*."""
        known = self._health.get(channel)
        if known is not None:
            return known
        query = select(standings).where(standings.c.channel == channel)
        try:
            found = self.database.decoded(
                query, standings, lambda row: decode_value(ChannelHealth, row.body)
            )
        except UnreachableError:
            return ChannelHealth()
        return found[0] if found else ChannelHealth()

    def delivered(
        self, notifications: Sequence[QueuedMessage], standing: ChannelHealth, at: datetime
    ) -> None:
        """Mark notifications of one channel as delivered, and store its health *standing*."""
        self._ended(notifications, _Ending(DELIVERED, "", at), standing)

    def dead_letter(self, notifications: Sequence[QueuedMessage], why: str, at: datetime) -> None:
        """Dead-letter notifications, with the reason."""
        self._ended(notifications, _Ending(DEAD, why, at))

    def set_health(self, channel: str, standing: ChannelHealth) -> None:
        """Store the health *standing* of *channel*."""
        with self._lock:
            self._health[channel] = standing
        self._try_to_catch_up(None)

    def backlog(self, channel: str, seen: int = 0) -> Backlog:
        """Return the backlog of *channel*; dead-lettered ones count if numbered above *seen*."""
        mine = outbox.c.channel == channel
        given_up = mine & (outbox.c.state == DEAD) & (outbox.c.number > seen)
        legible = func.typeof(outbox.c.put) == "integer"
        waits = select(func.count(), func.min(outbox.c.put).filter(legible))
        waits = waits.where(mine, outbox.c.state == WAITING)
        dead = select(func.count(), func.max(outbox.c.number)).where(given_up)
        with self.database.read() as connection:
            waiting, since = connection.execute(waits).one()
            count, last = connection.execute(dead).one()
            why = connection.scalar(select(outbox.c.why).where(outbox.c.number == last))
        spare = self._spare_waiting(channel)
        first = min((one.put for one in spare), default=None)
        since = min(filter(None, (since, first)), default=None)
        return Backlog(waiting + len(spare), since, count, last or 0, why or "")

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return (channel, waiting | delivered | dead) -> stored notifications."""
        query = select(outbox.c.channel, outbox.c.state, func.count().label("letters"))
        with self.database.read() as connection:
            rows = connection.execute(query.group_by(outbox.c.channel, outbox.c.state)).all()
        return {(row.channel, row.state): row.letters for row in rows}

    def prune(self, now: datetime) -> int:
        """Delete notifications delivered or dead-lettered long ago; return their number."""
        over = (outbox.c.state != WAITING) & (outbox.c.done < now - _KEPT_MESSAGES)
        return delete_rows(self.database, outbox, over)

    def _ended(
        self,
        notifications: Sequence[QueuedMessage],
        end: _Ending,
        standing: ChannelHealth | None = None,
    ) -> None:
        with self._lock:
            self._done.update((notification.number, end) for notification in notifications)
            if standing is not None:
                self._health.update(
                    (notification.channel, standing) for notification in notifications
                )
        self._try_to_catch_up(end.at)

    def _give_up(self, numbers: Sequence[int]) -> None:
        """Dead-letter unreadable rows, so that they do not block the queue."""
        if numbers:
            end = _Ending(DEAD, "its row in the store is unreadable", datetime.now(UTC))
            with self._lock:
                self._done.update(dict.fromkeys(numbers, end))
            self._try_to_catch_up(end.at)

    def _try_to_catch_up(self, at: datetime | None) -> None:
        try:
            self.catch_up(at or datetime.now(UTC))
        except UnreachableError as error:
            _log.warning("results of notifications are kept in memory", why=str(error))

    def _spare_waiting(self, channel: str = "") -> tuple[QueuedMessage, ...]:
        with self._lock:
            left = [one for one in self._spare if one.number not in self._done]
        return tuple(one for one in left if channel in ("", one.channel))

    def _make_room(self, connection: Connection, channel: str, at: datetime) -> None:
        waits = (outbox.c.channel == channel) & (outbox.c.state == WAITING)
        newest = select(outbox.c.number).where(waits).order_by(outbox.c.number.desc())
        last = connection.scalar(newest.offset(self.room).limit(1))
        if last is not None:
            over = update(outbox).where(waits, outbox.c.number <= last)
            connection.execute(
                over.values(state=DEAD, done=at, why=("the queue of the channel was full"))
            )


def _put(connection: Connection, channel: str, message: Message, at: datetime) -> int:
    same = (outbox.c.channel == channel) & (outbox.c.fingerprint == message.id)
    if connection.scalar(select(outbox.c.number).where(same)) is not None:
        return 0
    row = {"channel": channel, "fingerprint": message.id, "put": at, "state": WAITING, "why": ""}
    connection.execute(insert(outbox).values(message=encode_value(Message, message), **row))
    return 1


def _end_spare(connection: Connection, notification: QueuedMessage, end: _Ending) -> None:
    same = (outbox.c.channel == notification.channel) & (
        outbox.c.fingerprint == notification.message.id
    )
    _end(connection, same, end)


def _end(connection: Connection, which: ColumnElement[bool], end: _Ending) -> None:
    change = update(outbox).where(which, outbox.c.state == WAITING)
    connection.execute(change.values(state=end.state, done=end.at, why=end.why))


def _store_health(connection: Connection, channel: str, standing: ChannelHealth) -> None:
    body = encode_value(ChannelHealth, standing)
    connection.execute(delete(standings).where(standings.c.channel == channel))
    connection.execute(insert(standings).values(channel=channel, body=body))


def _message(row: Row[Any]) -> QueuedMessage:
    return QueuedMessage(row.number, row.channel, decode_value(Message, row.message), row.put)


@dataclass(eq=False)
class Silences:
    """Silences that have not ended long ago."""

    database: Database

    def add(self, silence: Silence) -> None:
        """Store *silence*; it replaces one with the same id, which is how one is ended early."""
        with self.database.write() as connection:
            connection.execute(delete(silences).where(silences.c.id == silence.id))
            row = {"id": silence.id, "end": silence.end, "body": encode_value(Silence, silence)}
            connection.execute(insert(silences).values(row))

    def list(self, now: datetime) -> tuple[Silence, ...]:
        """Return silences that are active at *now*, by their ends."""
        query = (
            select(silences.c.id, silences.c.body)
            .where(silences.c.end > now)
            .order_by(silences.c.end)
        )
        return tuple(self.database.decoded(query, silences, _silence))

    def prune(self, now: datetime) -> int:
        """Delete silences that ended long ago; return their number."""
        return delete_rows(self.database, silences, silences.c.end < now - HISTORY)


def _silence(row: Row[Any]) -> Silence:
    return decode_value(Silence, row.body)


SERVICE = "sluice"  # withdraws a waiver when its check has passed again, or its commit is gone


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Waiver:
    """Who waived *id*, when, why, and until when at most; also its withdrawal."""

    id: str
    reason: str
    who: str
    at: datetime
    until: datetime | None = None
    withdrawn: datetime | None = None
    withdrawn_by: str = ""
    withdrawn_why: str = ""

    def is_open(self, now: datetime) -> bool:
        """Tell whether the waiver applies at *now*."""
        return self.withdrawn is None and (self.until is None or now < self.until)

    def lasts(self, other: "Waiver") -> bool:
        """Tell whether it lasts at least as long as *other*."""
        return self.until is None or (other.until is not None and other.until <= self.until)


@dataclass(eq=False)
class Waivers:
    """Waivers of every lane, until each is withdrawn or expires.

    Only this object writes waivers, so they are read back once. The end of a waiver that the store
    does not take applies at once, and the next transaction stores it.
    """

    database: Database
    clock: Callable[[], datetime] = _now
    _known: tuple[Waiver, ...] | None = None
    _ids: tuple[frozenset[str], datetime | None] | None = None  # valid until then
    _ended: dict[tuple[str, datetime], datetime] = field(default_factory=dict)  # not stored yet
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Register this object, so that the next transaction stores the ends that wait."""
        self.database.first.append(self)

    def add(self, waiver: Waiver) -> bool:
        """Record *waiver*; False if an open waiver of the same id lasts as long, which then stays.

        A waiver that was withdrawn, has expired or expires sooner is replaced.
        """
        with self.database.write() as connection:
            if any(one.is_open(waiver.at) and one.lasts(waiver) for one in self._read(waiver.id)):
                return False
            connection.execute(delete(waivers).where(waivers.c.id == waiver.id))
            row = {"id": waiver.id, "reason": waiver.reason, "who": waiver.who, "at": waiver.at}
            connection.execute(insert(waivers).values({**row, "until": waiver.until}))
        self._forget()
        return True

    def withdraw(self, id_: str, *, who: str, why: str, at: datetime) -> bool:
        """End the waiver of *id_*; False if none is open."""
        ended = {"withdrawn": at, "withdrawn_by": who, "withdrawn_why": why}
        with self.database.write() as connection:
            if not any(one.is_open(at) for one in self._read(id_)):
                return False
            connection.execute(update(waivers).where(waivers.c.id == id_).values(ended))
        self._forget()
        return True

    def end_of_commits(self, ids: Collection[str], at: datetime) -> None:
        """End the open waivers of *ids*: foreign commits that their mirrors no longer have."""
        given = {(one.id, one.at): at for one in self.known() if one.id in ids and one.is_open(at)}
        if not given:
            return
        with self._lock:
            self._ended |= given
            self._known = self._ids = None
        with suppress(UnreachableError), self.database.write():
            pass  # each transaction first writes what waits

    @property
    def waits(self) -> bool:
        return bool(self._ended)

    def write(self, connection: Connection) -> Callable[[], None]:
        ended = dict(self._ended)
        for (id_, given), at in ended.items():
            own = (waivers.c.id == id_) & (waivers.c.at == given) & waivers.c.withdrawn.is_(None)
            connection.execute(update(waivers).where(own).values(_end_of_commit(at)))
        return lambda: self._stored(ended)

    def _stored(self, ended: Iterable[tuple[str, datetime]]) -> None:
        with self._lock:
            self._ended = {one: at for one, at in self._ended.items() if one not in ended}
            self._known = self._ids = None

    def end(
        self, prefix: str, *, why: str, at: datetime, but: Collection[str] = frozenset()
    ) -> int:
        """End waivers given at *at* or before, of ids that start with *prefix*; return how many.

        Waivers of ids in *but* stay. Do not call it inside another write: readers must not cache
        what is not committed.
        """
        if not any(id_.startswith(prefix) and id_ not in but for id_ in self.waived()):
            return 0
        own = [one.id for one in self.list() if one.id.startswith(prefix) and one.at <= at]
        ended = (self.withdraw(id_, who=SERVICE, why=why, at=at) for id_ in own if id_ not in but)
        return sum(ended)

    def waived(self) -> frozenset[str]:
        """Return every id whose waiver is open now."""
        with self._lock:
            now = self.clock()
            if self._ids is None or (self._ids[1] is not None and now >= self._ids[1]):
                active = [one for one in self._read_known() if one.is_open(now)]
                ends = [one.until for one in active if one.until is not None]
                self._ids = frozenset(one.id for one in active), min(ends, default=None)
            return self._ids[0]

    def ever_waived(self) -> frozenset[str]:
        """Return every id that was ever waived, also if that has ended."""
        return frozenset(one.id for one in self.known())

    def known(self) -> tuple[Waiver, ...]:
        """Return what `list` returns, read once."""
        with self._lock:
            return self._read_known()

    def _read_known(self) -> tuple[Waiver, ...]:
        if self._known is None:
            self._known = self._read()
        return self._known

    def list(self) -> tuple[Waiver, ...]:
        """Return all waivers, newest first, including expired ones."""
        return self._read()

    def _read(self, id_: str | None = None) -> tuple[Waiver, ...]:
        """Return waivers, newest first: all, or those of *id_*; an unreadable one is no waiver."""
        query = select(waivers).order_by(waivers.c.at.desc())
        query = query if id_ is None else query.where(waivers.c.id == id_)
        ended, found = self._ended, self.database.decoded(query, waivers, _waiver)
        ends = ((one, ended.get((one.id, one.at))) for one in found)
        return tuple(one if at is None else replace(one, **_end_of_commit(at)) for one, at in ends)

    def _forget(self) -> None:
        with self._lock:
            self._known = self._ids = None


def _end_of_commit(at: datetime) -> dict[str, Any]:
    why = "the mirror was rebuilt or put back, and no longer has that version"
    return {"withdrawn": at, "withdrawn_by": SERVICE, "withdrawn_why": why}


def _waiver(row: Row[tuple[object, ...]]) -> Waiver:
    return Waiver(
        id=row.id,
        reason=row.reason,
        who=row.who,
        at=row.at,
        until=row.until,
        withdrawn=row.withdrawn,
        withdrawn_by=row.withdrawn_by or "",
        withdrawn_why=row.withdrawn_why or "",
    )
