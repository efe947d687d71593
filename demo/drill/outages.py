"""Defines faults of the pipeline itself: a part of it is dead or silent, or a clock or disk wrong.

They lose no row that the service could compare. The score has two parts: the gate is never open for
a cut with missing rows, and an incident explains the outage soon.
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
"""Size of the disks of the lake and of the store, in memory as far as used."""


@dataclass(frozen=True, slots=True)
class OutageScore:
    """The result of an outage: ``seconds`` until the first incident; None: there was none.

    ``answers`` counts answers of the gate about cuts after the fault. ``open`` of them were READY
    while the fault lasted. ``untrue`` of these were READY although the mirror lacked a change
    before the cut. ``again`` is the number of seconds after its end until all tables were READY;
    None: a repair is needed. ``wrong`` rows of the asked table then differ between mirror and
    source. ``left_out`` says why the outage was not made; empty if it was. ``closes`` and
    ``reports`` are the expectation: a gate that stays closed, and an incident.
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
        """Yield unmet expectations; none for an outage that was left out."""
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
    """A component of the pipeline that fails for a while.

    ``heals``: no repair is needed. ``closes``: the gate must be closed for every cut meanwhile;
    else it may open for a cut whose rows are complete. ``reports``: an incident is expected.
    """

    @property
    def name(self) -> str:
        """Return its name in the table of results."""
        ...

    @property
    def heals(self) -> bool:
        """Tell whether the tables are ready again after it, without a repair."""
        ...

    @property
    def closes(self) -> bool:
        """Tell whether the gate must stay closed."""
        ...

    @property
    def reports(self) -> bool:
        """Tell whether an incident is expected."""
        ...

    def session(self, site: Site) -> Sequence[str]:
        """Return the statements to run before each change during the outage, in its session."""
        ...

    def is_named_by(self, text: str) -> bool:
        """Tell whether *text*, of an incident, is about this outage."""
        ...

    def trouble(self, site: Site) -> str:
        """Return why it cannot be made here; empty if it can."""
        ...

    def failing(self, site: Site) -> AbstractContextManager[None]:
        """Make the fault during the block."""
        ...


@dataclass(frozen=True, slots=True)
class _Outage:
    """The common part of most outages."""

    name: str
    heals: bool = True
    closes: bool = True
    reports: bool = True
    words: tuple[str, ...] = ()

    def session(self, site: Site) -> Sequence[str]:
        """Return no statements."""
        return ()

    def is_named_by(self, text: str) -> bool:
        """Tell whether *text* contains one of the words; True without any words."""
        return not self.words or any(word in text for word in self.words)

    def trouble(self, site: Site) -> str:
        """Return "": it can be made anywhere."""
        return ""


@dataclass(frozen=True, slots=True)
class DeadCollector(_Outage):
    """Connect is killed, and started again."""

    name: str = "dead collector"

    def trouble(self, site: Site) -> str:
        """Return the reason if Connect is not the drill's own."""
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
    """The service cannot write its heartbeats, because another session has locked their table."""

    name: str = "skipped heartbeats"

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Hold the lock during the block."""
        with site.source.lock_heartbeats():
            yield


@dataclass(frozen=True, slots=True)
class WrongSourceClock(_Outage):
    """The source's clock is wrong by ``by`` seconds, and so is the time of every change."""

    closes: bool = False
    words: tuple[str, ...] = ("clock",)
    by: float = HOUR

    def trouble(self, site: Site) -> str:
        """Return why the clock cannot be set."""
        return "" if site.source_clock else site.clock_trouble

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Make the clock wrong, and right again."""
        if (clock := site.source_clock) is None:
            raise ConfigError(self.trouble(site))
        clock.set_wrong(self.by)
        try:
            yield
        finally:
            clock.set_wrong(0)


@dataclass(frozen=True, slots=True)
class WrongServiceClock(_Outage):
    """The service's clock steps by ``by`` seconds, and later back."""

    closes: bool = False
    words: tuple[str, ...] = ("clock",)
    by: float = HOUR

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Make the clock wrong, and right again."""
        set_service_clock(site.home, self.by)
        try:
            yield
        finally:
            set_service_clock(site.home, 0)


@dataclass(frozen=True, slots=True)
class MisdatedChanges(_Outage):
    """The times of changes are wrong by ``by`` seconds, as in a replayed log; all clocks are right.

    Sluice need not report it: changes are ordered by the log, and no time is compared.
    """

    closes: bool = False
    reports: bool = False
    by: float = HOUR

    def session(self, site: Site) -> Sequence[str]:
        """Return statements that set another time in the session."""
        return site.source.date_changes(self.by)

    def trouble(self, site: Site) -> str:
        """Return the reason if no session can set its time."""
        return "" if self.session(site) else "a session of this server cannot date its changes"

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Do nothing: only the sessions of the changes are affected."""
        yield


@dataclass(frozen=True, slots=True)
class FullDisk(_Outage):
    """The disk of the lake, or of the store, has no space left."""

    words: tuple[str, ...] = ("disk", "space")
    disk: str = "lake"

    def trouble(self, site: Site) -> str:
        """Return why there is no separate disk."""
        return site.disk_trouble

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Take all free space, and give it back."""
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
        """Delete and create it; it gets only records of changes from now on."""
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
    FullDisk("full disk of the store", closes=False, disk="store"),  # READY is right if stored
    LostTopic(),
)
"""All outages; those that need a repair come last."""
