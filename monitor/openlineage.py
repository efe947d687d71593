"""Who is told of lineage, and when?  A job of its own; a merge only notes that it was.

What cannot be sent is tried again, in order, by the next run of the job; of more than `MOST` turns
that wait, the oldest are forgotten, and that is logged.  A receiver may get an event twice.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import structlog

from alerts.http import post
from alerts.outbox import RefusedError
from monitor.config.model import Config
from monitor.config.openlineage import OpenLineageSettings
from monitor.lineage import Lineage
from monitor.openlineage_events import DatasetPlace, TurnLineage, events, lake_place
from pipeline.apply.lineage import ColumnLink
from pipeline.build import source_kind
from pipeline.errors import SluiceError, UnreachableError
from pipeline.model import Shard
from pipeline.reports import Applied
from pipeline.settings import SourceSettings

MOST = 10_000  # turns that wait
SOME = 200  # turns that one run of the job sends at most
LONGEST = 60.0  # seconds after which it begins no other: a slow receiver makes no job overdue
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LineageEvents:
    """Turns wait here until they are told; ``links`` tells tables' columns, ``mirror`` its place.

    ``sources`` are by name the server and the beginning of its tables' names.
    """

    settings: OpenLineageSettings
    links: Callable[[Collection[str]], Mapping[str, Sequence[ColumnLink]]]
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
        try:
            for turn, known in self._next():
                if sent and time.monotonic() >= until:
                    break
                self._send_or_refuse(turn, known)
                with self._turn:
                    if self._waiting and self._waiting[0] is turn:
                        self._waiting.popleft()
                sent += 1
        except (SluiceError, OSError) as error:
            log.warning("openlineage_waits", why=str(error), turns=len(self._waiting))
        self._confess()
        return sent

    def _next(self) -> Iterator[tuple[Applied, Sequence[ColumnLink]]]:
        """Turns that wait, each with its table's columns: one look at the lake for all of them."""
        with self._turn:
            turns = [*islice(self._waiting, SOME)]
        known = self.links({turn.table for turn in turns}) if turns else {}
        yield from ((turn, known.get(turn.table, ())) for turn in turns)

    def _send_or_refuse(self, turn: Applied, links: Sequence[ColumnLink]) -> None:
        try:
            self._send(turn, links)
        except UnreachableError:
            raise
        except SluiceError as error:
            log.warning("openlineage_refused", table=turn.table, why=str(error))

    def _confess(self) -> None:
        with self._turn:
            lost, self._lost = self._lost, 0
        if lost:
            log.warning("openlineage_lost", turns=lost)

    def _send(self, turn: Applied, links: Sequence[ColumnLink]) -> None:
        if not links:
            raise RefusedError("no column of it has landed")
        told = events(turn, self._known(turn.table, links), self.settings.namespace)
        texts = [json.dumps(event, separators=(",", ":")) for event in told]
        self._written &= {*texts}
        for text in texts:
            if self.settings.file and text not in self._written:
                _append(Path(self.settings.file), f"{text}\n".encode())
                self._written |= {text}
            if self.settings.url:
                self._post(text.encode())

    def _post(self, body: bytes) -> None:
        token = self.settings.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        post(self.settings.url, body, headers, self.settings.timeout, self.settings)

    def _known(self, table: str, links: Sequence[ColumnLink]) -> TurnLineage:
        shards = {one.shard for one in links if one.shard.source in self.sources}
        places = {one: self._placed(one) for one in shards}
        return TurnLineage(places, lake_place(self.mirror(table)), links)

    def _placed(self, shard: Shard) -> DatasetPlace:
        server = self.sources[shard.source]
        return DatasetPlace(server.namespace, f"{server.name}{shard.name}")


def _append(path: Path, line: bytes) -> None:
    """Write *line* at the end of the file, or nothing of it: on a full disk a part would stay.

    Raises:
        OSError: why it cannot be written.
    """
    with path.open("ab", buffering=0) as lines:
        size = lines.tell()
        try:
            while line:
                line = line[lines.write(line) :]
        except OSError:
            with suppress(OSError):
                lines.truncate(size)
            raise


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
    return LineageEvents(config.openlineage, links.of_tables, config.settings.mirror, sources)
