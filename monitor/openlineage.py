"""Who is told of lineage, and when?  A job of its own; a merge only notes that it was.

What cannot be sent is tried again, in order, by the next run of the job; of more than `MOST` turns
that wait, the oldest are forgotten, and that is logged.  A receiver may get an event twice.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from alerts.outbox import BusyError, RefusedError
from alerts.post import post
from monitor.config.model import Config
from monitor.config.openlineage import OpenLineageSettings
from monitor.lineage import Lineage
from monitor.openlineage_events import DatasetPlace, TurnLineage, events, lake_place
from pipeline.apply.lineage import ColumnLink
from pipeline.build import source_kind
from pipeline.errors import SluiceError, UnreachableError
from pipeline.model import Shard
from pipeline.report import Applied
from pipeline.settings import SourceSettings

MOST = 10_000  # turns that wait
SOME = 200  # turns that one run of the job sends at most
LONGEST = 60.0  # seconds after which it begins no other: a slow receiver makes no job overdue
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LineageEvents:
    """Turns wait here until they are told; ``links`` tells a table's columns, ``mirror`` its place.

    ``sources`` are by name the server and the beginning of its tables' names.
    """

    settings: OpenLineageSettings
    links: Callable[[str], tuple[ColumnLink, ...]]
    mirror: Callable[[str], str]
    sources: Mapping[str, DatasetPlace]
    _waiting: deque[Applied] = field(default_factory=deque)
    _lost: int = 0
    _written: frozenset[str] = frozenset()  # lines of the turn that is sent: each stands once
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def note(self, turns: Iterable[Applied]) -> None:
        """Remember those that changed a mirror, or made an image; asks nobody, waits for nobody."""
        told = [one for one in turns if one.hold is None and (one.account.read or one.image)]
        with self._turn:
            self._waiting.extend(told)
            while len(self._waiting) > MOST:
                self._waiting.popleft()
                self._lost += 1

    def tell(self) -> int:
        """Send what waits, at most `SOME` turns; how many were sent."""
        sent, until = 0, time.monotonic() + LONGEST
        while (
            sent < SOME
            and (not sent or time.monotonic() < until)
            and (turn := self._first()) is not None
        ):
            try:
                self._send(turn)
            except (UnreachableError, BusyError, OSError) as error:
                log.warning("openlineage_waits", why=str(error), turns=len(self._waiting))
                break
            except (RefusedError, SluiceError) as error:
                log.warning("openlineage_refused", table=turn.table, why=str(error))
            with self._turn:
                if self._waiting and self._waiting[0] is turn:
                    self._waiting.popleft()
            sent += 1
        self._confess()
        return sent

    def _first(self) -> Applied | None:
        with self._turn:
            return self._waiting[0] if self._waiting else None

    def _confess(self) -> None:
        with self._turn:
            lost, self._lost = self._lost, 0
        if lost:
            log.warning("openlineage_lost", turns=lost)

    def _send(self, turn: Applied) -> None:
        told = events(turn, self._known(turn.table), self.settings.namespace)
        texts = [json.dumps(event, separators=(",", ":")) for event in told]
        self._written &= {*texts}
        for text in texts:
            if self.settings.file and text not in self._written:
                with Path(self.settings.file).open("a", encoding="utf-8") as lines:
                    lines.write(f"{text}\n")
                self._written |= {text}
            if self.settings.url:
                self._post(text.encode())

    def _post(self, body: bytes) -> None:
        token = self.settings.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        post(self.settings.url, body, headers, self.settings.timeout)

    def _known(self, table: str) -> TurnLineage:
        links = [one for one in self.links(table) if one.table == table]
        shards = {one.shard for one in links if one.shard.source in self.sources}
        places = {one: self._placed(one) for one in shards}
        return TurnLineage(places, lake_place(self.mirror(table)), links)

    def _placed(self, shard: Shard) -> DatasetPlace:
        server = self.sources[shard.source]
        return DatasetPlace(server.namespace, f"{server.name}{shard.name}")


def server_place(settings: SourceSettings, kind: str) -> DatasetPlace:
    """A source's namespace, and what stands before ``schema.table`` where it names a database."""
    database = settings.options.get("database")
    before = f"{database}." if database else ""
    return DatasetPlace(f"{kind}://{settings.host}:{settings.port}", before)


def lineage_events(config: Config, links: Lineage) -> LineageEvents | None:
    """Who tells of lineage; None if nobody is to be told."""
    if config.openlineage is None:
        return None
    sources = {one.name: server_place(one, source_kind(one)) for one in config.sources}
    return LineageEvents(config.openlineage, links.of, config.settings.mirror, sources)
