"""Letters that wait, that were delivered, and that never will be.

Bounded: when too many wait for one channel, the oldest are kept as dead letters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from alerts.model import Message
from alerts.outbox import ChannelHealth, Letter
from monitor.store.codec import dumps, loads
from monitor.store.database import Database
from monitor.store.schema import outbox, standings
from monitor.store.thin import forget

WAITING, DELIVERED, DEAD = "waiting", "delivered", "dead"
_KEPT = timedelta(days=30)
_FULL = 10_000


@dataclass(frozen=True, slots=True)
class Pile:
    """What lies at one channel: letters that wait, the oldest since when; those given up.

    ``last`` is the number of the newest that was given up, ``why`` its reason.
    """

    waiting: int = 0
    since: datetime | None = None
    dead: int = 0
    last: int = 0
    why: str = ""


@dataclass(eq=False)
class StoredOutbox:
    """What :class:`alerts.outbox.Outbox` asks for; *room* is how many may wait per channel."""

    database: Database
    room: int = _FULL

    def put(self, letters: Iterable[tuple[str, Message]], at: datetime) -> int:
        """Queue each message for its channel; one it had before is not taken again."""
        letters = tuple(letters)
        if not letters:
            return 0
        with self.database.write() as connection:
            new = sum(_put(connection, channel, message, at) for channel, message in letters)
            for channel in {channel for channel, _ in letters}:
                self._make_room(connection, channel, at)
        return new

    def channels(self) -> tuple[str, ...]:
        """Names of the channels that letters wait for, sorted."""
        query = select(outbox.c.channel).where(outbox.c.state == WAITING).distinct()
        with self.database.read() as connection:
            return tuple(sorted(connection.scalars(query)))

    def waiting(self, channel: str, limit: int) -> tuple[Letter, ...]:
        """The oldest *limit* letters that wait for *channel*."""
        query = select(outbox).where(outbox.c.state == WAITING, outbox.c.channel == channel)
        with self.database.read() as connection:
            rows = connection.execute(query.order_by(outbox.c.number).limit(limit)).all()
        return tuple(_letter(row) for row in rows)

    def standing(self, channel: str) -> ChannelHealth:
        """How *channel* fares."""
        query = select(standings.c.body).where(standings.c.channel == channel)
        with self.database.read() as connection:
            body = connection.scalar(query)
        return ChannelHealth() if body is None else loads(ChannelHealth, body)

    def delivered(self, letters: Sequence[Letter], standing: ChannelHealth, at: datetime) -> None:
        """Take *letters* of one channel off the queue, and keep its *standing*."""
        with self.database.write() as connection:
            _close(connection, letters, DELIVERED, "", at)
            for channel in {letter.channel for letter in letters}:
                self.fare(channel, standing)

    def bury(self, letters: Sequence[Letter], why: str, at: datetime) -> None:
        """Keep *letters* as dead ones."""
        with self.database.write() as connection:
            _close(connection, letters, DEAD, why, at)

    def fare(self, channel: str, standing: ChannelHealth) -> None:
        """Keep the *standing* of *channel*."""
        body = dumps(ChannelHealth, standing)
        with self.database.write() as connection:
            connection.execute(delete(standings).where(standings.c.channel == channel))
            connection.execute(insert(standings).values(channel=channel, body=body))

    def pile(self, channel: str, seen: int = 0) -> Pile:
        """What lies at *channel*; letters given up count if their number is above *seen*."""
        mine = outbox.c.channel == channel
        given_up = mine & (outbox.c.state == DEAD) & (outbox.c.number > seen)
        waits = select(func.count(), func.min(outbox.c.put)).where(mine, outbox.c.state == WAITING)
        dead = select(func.count(), func.max(outbox.c.number)).where(given_up)
        with self.database.read() as connection:
            waiting, since = connection.execute(waits).one()
            count, last = connection.execute(dead).one()
            why = connection.scalar(select(outbox.c.why).where(outbox.c.number == last))
        return Pile(waiting, since, count, last or 0, why or "")

    def counts(self) -> Mapping[tuple[str, str], int]:
        """(Channel, waiting | delivered | dead) -> letters kept."""
        query = select(outbox.c.channel, outbox.c.state, func.count().label("letters"))
        with self.database.read() as connection:
            rows = connection.execute(query.group_by(outbox.c.channel, outbox.c.state)).all()
        return {(row.channel, row.state): row.letters for row in rows}

    def prune(self, now: datetime) -> int:
        """Forget letters that were delivered or buried long ago; return how many went."""
        over = (outbox.c.state != WAITING) & (outbox.c.done < now - _KEPT)
        return forget(self.database, outbox, over)

    def _make_room(self, connection: Connection, channel: str, at: datetime) -> None:
        waits = (outbox.c.channel == channel) & (outbox.c.state == WAITING)
        newest = select(outbox.c.number).where(waits).order_by(outbox.c.number.desc())
        last = connection.scalar(newest.offset(self.room).limit(1))
        if last is not None:
            over = update(outbox).where(waits, outbox.c.number <= last)
            connection.execute(over.values(state=DEAD, done=at, why="the outbox was full"))


def _put(connection: Connection, channel: str, message: Message, at: datetime) -> int:
    same = (outbox.c.channel == channel) & (outbox.c.fingerprint == message.id)
    if connection.scalar(select(outbox.c.number).where(same)) is not None:
        return 0
    row = {"channel": channel, "fingerprint": message.id, "put": at, "state": WAITING, "why": ""}
    connection.execute(insert(outbox).values(message=dumps(Message, message), **row))
    return 1


def _close(
    connection: Connection, letters: Sequence[Letter], state: str, why: str, at: datetime
) -> None:
    numbers = [letter.number for letter in letters]
    mine = outbox.c.number.in_(numbers) & (outbox.c.state == WAITING)
    connection.execute(update(outbox).where(mine).values(state=state, done=at, why=why))


def _letter(row: Row[Any]) -> Letter:
    return Letter(row.number, row.channel, loads(Message, row.message), row.put)
