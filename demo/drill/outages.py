"""Faults of the pipeline itself: a part of it is dead, silent or gone.

They lose no row that the service could compare. What counts is that the gate is never open for a
cut after the fault, and how soon an incident says why.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from demo.drill.faults import COLLECTED, PREFIX, Site
from demo.drill.tables import DATABASE, TEMPLATE
from demo.processes import wait_until

LOST = f"{DATABASE}.topic_00"
"""The table whose topic is deleted; no other fault is of it."""
HEARTBEATS = "sluice.heartbeat"


@dataclass(frozen=True, slots=True)
class OutageScore:
    """What became of an outage: ``seconds`` until the first incident; None: there was none.

    Of ``answers`` of the gate about a cut after the fault, ``open`` were READY while it lasted.
    """

    outage: str
    seconds: float | None
    incidents: tuple[str, ...]
    answers: int
    open: int


class Outage(Protocol):
    """A part of the pipeline that fails for a while; ``heals`` says that no repair is needed."""

    @property
    def name(self) -> str:
        """What it is called in the table of results."""
        ...

    @property
    def heals(self) -> bool:
        """Whether the tables are ready again once it is over."""
        ...

    def failing(self, site: Site) -> AbstractContextManager[None]:
        """The fault lasts for the block."""
        ...


@dataclass(frozen=True, slots=True)
class DeadCollector:
    """Connect is killed, and started again."""

    name: str = "dead collector"
    heals: bool = True

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Kill it, and start it at the end."""
        site.servers.connect.kill()
        try:
            yield
        finally:
            site.servers.connect.start()


@dataclass(frozen=True, slots=True)
class SkippedHeartbeats:
    """The service cannot write its heartbeats: another session has locked their table."""

    name: str = "skipped heartbeats"
    heals: bool = True

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Hold the lock."""
        with closing(site.mysql.connect()) as link, link.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {HEARTBEATS} WRITE")
            yield
            cursor.execute("UNLOCK TABLES")


@dataclass(frozen=True, slots=True)
class LostTopic:
    """The topic of a table is deleted, and created again without its records."""

    name: str = "lost topic"
    heals: bool = False

    @contextmanager
    def failing(self, site: Site) -> Iterator[None]:
        """Delete it; it stays empty but for one change."""
        topic = f"{PREFIX}.{LOST}"
        with closing(KafkaAdminClient(bootstrap_servers=site.servers.kafka.bootstrap)) as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), COLLECTED, f"end of {topic}")
            admin.create_topics([NewTopic(topic, 1, 1)])
        site.mysql.execute(f"UPDATE {LOST} SET quantity = quantity + 1 WHERE id = {TEMPLATE}")
        yield


OUTAGES: tuple[Outage, ...] = (DeadCollector(), SkippedHeartbeats(), LostTopic())
"""Those that need a repair come last."""
