"""Faults of the pipeline itself: a part of it is dead, silent or gone, or a clock or disk is wrong.

They lose no row that the service could compare. What counts is that the gate is never open for a
cut whose rows are not all there, and how soon an incident says why.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from demo.clocks import set_service_clock
from demo.connect import Connect
from demo.disks import SmallDisk
from demo.drill.faults import COLLECTED, Site
from demo.processes import wait_until
from pipeline.errors import ConfigError

NOT_OURS = "these servers are not the drill's own, and it stops none and sets no clock of theirs"
HOUR = 3600.0
SHRUNK = timedelta(minutes=2)
ROOM = "8g"
"""Of the disks of the lake and of the store, in memory as far as it is used."""


@dataclass(frozen=True, slots=True)
class OutageScore:
    """What became of an outage: ``seconds`` until the first incident; None: there was none.

    Of ``answers`` of the gate about cuts after the fault, ``open`` were READY while it lasted, and
    ``untrue`` of these although a change of before the cut was not in the mirror.
    ``again`` is how many seconds after its end all tables were READY; None: it needs a repair.
    ``wrong`` rows of the table that was asked about are then not in its mirror what they are at the
    source. ``left_out`` says why the outage was not made; empty if it was.
    ``closes`` and ``reports`` say what is expected: a gate that stays closed, and an incident.
    """

    outage: str
    seconds: float | None = None
    incidents: tuple[str, ...] = ()
    answers: int = 0
    open: int = 0
    untrue: int = 0
    again: float | None = None
    wrong: int = 0
    left_out: str = ""
    closes: bool = True
    reports: bool = True

    def shortfalls(self) -> Iterator[str]:
        """What falls short of what is expected; nothing is of an outage that was left out."""
        if self.left_out:
            return
        if self.closes and self.open:
            yield f"{self.outage}: gate READY in {self.open} of {self.answers} answers"
        if self.untrue:
            yield f"{self.outage}: {self.untrue} READY answers without all rows"
        if self.reports and self.seconds is None:
            yield f"{self.outage}: no incident"
        if self.wrong:
            yield f"{self.outage}: {self.wrong} rows are wrong after it"


class Outage(Protocol):
    """A part of the pipeline that fails for a while.

    ``heals``: no repair is needed. ``closes``: the gate is not to be open for any cut meanwhile.
    Else it may be, once all rows of the cut are there. ``reports``: an incident is expected.
    """

    @property
    def name(self) -> str:
        """What it is called in the table of results."""
        ...

    @property
    def heals(self) -> bool:
        """Whether the tables are ready again once it is over."""
        ...

    @property
    def closes(self) -> bool:
        """Whether the gate is to stay closed."""
        ...

    @property
    def reports(self) -> bool:
        """Whether an incident is expected."""
        ...

    def session(self, site: Site) -> Sequence[str]:
        """Statements before each change that is made meanwhile, in its session."""
        ...

    def is_named_by(self, text: str) -> bool:
        """Whether *text*, of an incident, is about it."""
        ...

    def trouble(self, site: Site) -> str:
        """Why it cannot be made here; empty if it can."""
        ...

    def failing(self, site: Site) -> AbstractContextManager[None]:
        """The fault lasts for the block."""
        ...


@dataclass(frozen=True, slots=True)
class _Outage:
    """What most outages have in common."""

    name: str
    heals: bool = True
    closes: bool = True
    reports: bool = True
    words: tuple[str, ...] = ()

    def session(self, site: Site) -> Sequence[str]:
        """None."""
        return ()

    def is_named_by(self, text: str) -> bool:
        """Whether one of the words is in it, or there are none."""
        return not self.words or any(word in text for word in self.words)

    def trouble(self, site: Site) -> str:
        """None."""
        return ""


@dataclass(frozen=True, slots=True)
class DeadCollector(_Outage):
    """Connect is killed, and started again."""

    name: str = "dead collector"

    def trouble(self, site: Site) -> str:
        """It is not the drill's own."""
        return "" if isinstance(site.servers.connect, Connect) else NOT_OURS

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Kill it, and start it at the end."""
        connect = site.servers.connect
        if not isinstance(connect, Connect):
            raise ConfigError(NOT_OURS)
        connect.kill()
        try:
            yield
        finally:
            connect.start()


@dataclass(frozen=True, slots=True)
class SkippedHeartbeats(_Outage):
    """The service cannot write its heartbeats: another session has locked their table."""

    name: str = "skipped heartbeats"

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Hold the lock."""
        with site.source.lock_heartbeats():
            yield


@dataclass(frozen=True, slots=True)
class WrongSourceClock(_Outage):
    """The source's clock is wrong by ``seconds``: its own time, and that of every change."""

    closes: bool = False
    words: tuple[str, ...] = ("clock",)
    by: float = HOUR

    def trouble(self, site: Site) -> str:
        """It cannot be set."""
        return "" if site.source_clock else site.clock_trouble

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Set it wrong, and right again."""
        if (clock := site.source_clock) is None:
            raise ConfigError(self.trouble(site))
        clock.set_wrong(self.by)
        try:
            yield
        finally:
            clock.set_wrong(0)


@dataclass(frozen=True, slots=True)
class WrongServiceClock(_Outage):
    """The service's clock steps by ``seconds``, and later back."""

    closes: bool = False
    words: tuple[str, ...] = ("clock",)
    by: float = HOUR

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Set it wrong, and right again."""
        set_service_clock(site.home, self.by)
        try:
            yield
        finally:
            set_service_clock(site.home, 0)


@dataclass(frozen=True, slots=True)
class MisdatedChanges(_Outage):
    """Changes are dated wrong, as those of a replayed log; all clocks are right.

    Sluice need not report it: the order of changes is that of the log, and no date is compared.
    """

    closes: bool = False
    reports: bool = False
    by: float = HOUR

    def session(self, site: Site) -> Sequence[str]:
        """The session has another time."""
        return site.source.date_changes(self.by)

    def trouble(self, site: Site) -> str:
        """No session can."""
        return "" if self.session(site) else "a session of this server cannot date its changes"

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Nothing but the changes' own sessions."""
        yield


@dataclass(frozen=True, slots=True)
class FullDisk(_Outage):
    """The disk of the lake, or of the store, has no space left."""

    words: tuple[str, ...] = ("disk", "space")
    disk: str = "lake"

    def trouble(self, site: Site) -> str:
        """It has no disk of its own."""
        return site.disk_trouble

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Take all space, and free it."""
        disk = SmallDisk(site.home, self.disk, ROOM)
        disk.take_room(SHRUNK)
        try:
            yield
        finally:
            disk.give_room()


@dataclass(frozen=True, slots=True)
class LostTopic(_Outage):
    """The topic of a table is deleted, and created again without its records."""

    name: str = "lost topic"
    heals: bool = False

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Delete it; it has no records but those of changes from now on."""
        topic = site.source.names.topic(site.source.names.lost)
        with closing(KafkaAdminClient(bootstrap_servers=site.servers.kafka.bootstrap)) as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), COLLECTED, f"end of {topic}")
            admin.create_topics([NewTopic(topic, 1, -1)])
        yield


OUTAGES: tuple[Outage, ...] = (
    DeadCollector(),
    SkippedHeartbeats(),
    WrongSourceClock("source's clock an hour ahead"),
    WrongSourceClock("source's clock an hour behind", by=-HOUR),
    WrongServiceClock("service's clock an hour ahead"),
    WrongServiceClock("service's clock an hour behind", by=-HOUR),
    MisdatedChanges("changes dated an hour ahead"),
    MisdatedChanges("changes dated an hour behind", by=-HOUR),
    FullDisk("full disk of the lake"),
    FullDisk("full disk of the store", closes=False, disk="store"),  # READY is true if it is kept
    LostTopic(),
)
"""Those that need a repair come last."""
