"""Sends OpenLineage events of merges in order, in a separate job.

A merge is only queued, and waits for nothing. The next run of the job retries unsent events in
order. At most `MOST` merges are queued. Beyond that the oldest are dropped, and the drop is logged.
A receiver may get an event twice.

Each merge yields two events: START, and COMPLETE with the lineage. They follow OpenLineage
2-0-2 with the facets columnLineage 1-2-0, schema 1-2-0, outputStatistics 1-0-2 and version
1-0-1. A run is one merge of one mirror, or the making of one image. The inputs are the shards,
as tables of their servers, and the output is the mirror. An event has no row values.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from alerts.http import post_json
from alerts.outbox import RefusedError
from monitor.clients import Lineage
from monitor.config.model import Config, OpenLineageSettings
from pipeline.apply.lineage import ColumnLink
from pipeline.build import source_kind
from pipeline.errors import SluiceError, UnreachableError
from pipeline.model import Shard
from pipeline.reports import MergeReport
from pipeline.settings import SourceSettings

SPEC = "https://openlineage.io/spec"
PRODUCER = "urn:sluice"
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DatasetPlace:
    """A table's name in its namespace, which is a server or a file store."""

    namespace: str
    name: str

    @property
    def identifier(self) -> dict[str, str]:
        """The identifier of the dataset in events."""
        return {"namespace": self.namespace, "name": self.name}


@dataclass(frozen=True, slots=True)
class MergeLineage:
    """The datasets that a merge reads (``sources``, by shard) and writes, and the column links."""

    sources: Mapping[Shard, DatasetPlace]
    mirror: DatasetPlace
    links: Sequence[ColumnLink]


def lake_place(address: str) -> DatasetPlace:
    """Return the dataset of a folder, or of an address such as ``s3a://bucket/path``."""
    there = urlsplit(address)
    if not there.scheme:
        return DatasetPlace("file", address)
    scheme = {"s3a": "s3"}.get(there.scheme, there.scheme)
    return DatasetPlace(f"{scheme}://{there.netloc}", there.path.strip("/") or "/")


def merge_events(merge: MergeReport, known: MergeLineage, namespace: str) -> tuple[Event, Event]:
    """Return the START and COMPLETE events of *merge*; *namespace* is that of its job."""
    word = "merge" if merge.image is None else "image"
    identity = f"{namespace}/{known.mirror.name}/{word}/{merge.batch}/{merge.version}"
    began = {
        "eventType": "START",
        "eventTime": _instant(merge.started),
        "producer": PRODUCER,
        "schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": _run(identity)},
        "job": {"namespace": namespace, "name": f"{word} {merge.table}"},
        "inputs": [place.identifier for place in _inputs(known)],
        "outputs": [known.mirror.identifier],
    }
    ended = _instant(merge.started + merge.took)
    made = {
        **began,
        "eventType": "COMPLETE",
        "eventTime": ended,
        "outputs": [_output(merge, known)],
    }
    return began, made


def _run(identity: str) -> str:
    """Return a run id that is always the same for one merge: a version 8 UUID (RFC 9562)."""
    digest = blake2b(identity.encode(), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"


def _inputs(known: MergeLineage) -> list[DatasetPlace]:
    own = {known.sources[one.shard] for one in known.links if one.shard in known.sources}
    return sorted(own, key=lambda one: (one.namespace, one.name))


def _output(merge: MergeReport, known: MergeLineage) -> Event:
    types = {one.column: one.mirror_type for one in known.links}
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    facets = {
        "schema": _facet("1-2-0", "SchemaDatasetFacet", fields=fields),
        "columnLineage": _facet(
            "1-2-0", "ColumnLineageDatasetFacet", fields=_columns(known), dataset=[]
        ),
        "version": _facet("1-0-1", "DatasetVersionDatasetFacet", datasetVersion=str(merge.version)),
    }
    rows = _facet("1-0-2", "OutputStatisticsOutputDatasetFacet", rowCount=merge.account.applied)
    return {**known.mirror.identifier, "facets": facets, "outputFacets": {"outputStatistics": rows}}


def _columns(known: MergeLineage) -> Event:
    found: dict[str, list[Event]] = {}
    for link in known.links:
        if link.shard in known.sources:
            place = known.sources[link.shard].identifier
            input_field = {
                **place,
                "field": link.column,
                "transformations": [_transformation(link)],
            }
            found.setdefault(link.column, []).append(input_field)
    return {name: {"inputFields": fields} for name, fields in found.items()}


def _transformation(link: ColumnLink) -> Event:
    return {
        "type": "DIRECT",
        "subtype": "TRANSFORMATION" if link.standard else "IDENTITY",
        "description": f"by the standard {link.standard}" if link.standard else "",
        "masking": link.hides,
    }


def _facet(version: str, name: str, **more: Any) -> Event:
    address = f"{SPEC}/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": address, **more}


def _instant(at: datetime) -> str:
    return at.isoformat()


MOST = 10_000  # most queued merges
SOME = 200  # most merges that one run of the job sends
LONGEST = 60.0  # seconds after which a run sends no further merge, so that it is not overdue
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LineageEvents:
    """Queues merges until they are sent.

    ``links`` returns the column links of tables, and ``mirror`` the place of a table's mirror.
    ``sources`` has, by source name, the server and the prefix of its table names.
    """

    settings: OpenLineageSettings
    links: Callable[[Collection[str]], Mapping[str, Sequence[ColumnLink]]]
    mirror: Callable[[str], str]
    sources: Mapping[str, DatasetPlace]
    _waiting: deque[MergeReport] = field(default_factory=deque)
    _lost: int = 0
    _written: frozenset[str] = frozenset()  # lines of the current merge that are in the file
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, merges: Iterable[MergeReport]) -> None:
        """Queue the merges that changed a mirror or made an image; does not wait."""
        relevant = [one for one in merges if one.hold is None and (one.account.read or one.image)]
        with self._lock:
            self._waiting.extend(relevant)
            while len(self._waiting) > MOST:
                self._waiting.popleft()
                self._lost += 1

    def tell(self) -> int:
        """Send queued merges, at most `SOME`; return how many were sent."""
        sent, until = 0, time.monotonic() + LONGEST
        try:
            for merge, known in self._next():
                if sent and time.monotonic() >= until:
                    break
                self._send_or_refuse(merge, known)
                with self._lock:
                    if self._waiting and self._waiting[0] is merge:
                        self._waiting.popleft()
                sent += 1
        except (SluiceError, OSError) as error:
            log.warning("openlineage_waits", why=str(error), merges=len(self._waiting))
        self._confess()
        return sent

    def _next(self) -> Iterator[tuple[MergeReport, Sequence[ColumnLink]]]:
        """Yield queued merges, each with the links of its table; reads the lake once for all."""
        with self._lock:
            merges = [*islice(self._waiting, SOME)]
        known = self.links({merge.table for merge in merges}) if merges else {}
        yield from ((merge, known.get(merge.table, ())) for merge in merges)

    def _send_or_refuse(self, merge: MergeReport, links: Sequence[ColumnLink]) -> None:
        try:
            self._send(merge, links)
        except UnreachableError:
            raise
        except SluiceError as error:
            log.warning("openlineage_refused", table=merge.table, why=str(error))

    def _confess(self) -> None:
        with self._lock:
            lost, self._lost = self._lost, 0
        if lost:
            log.warning("openlineage_lost", merges=lost)

    def _send(self, merge: MergeReport, links: Sequence[ColumnLink]) -> None:
        if not links:
            raise RefusedError(f"no column of {merge.table} has landed")
        events = merge_events(merge, self._known(merge.table, links), self.settings.namespace)
        texts = [json.dumps(event, separators=(",", ":")) for event in events]
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
        post_json(self.settings.url, body, headers, self.settings.timeout, self.settings)

    def _known(self, table: str, links: Sequence[ColumnLink]) -> MergeLineage:
        shards = {one.shard for one in links if one.shard.source in self.sources}
        places = {one: self._placed(one) for one in shards}
        return MergeLineage(places, lake_place(self.mirror(table)), links)

    def _placed(self, shard: Shard) -> DatasetPlace:
        server = self.sources[shard.source]
        return DatasetPlace(server.namespace, f"{server.name}{shard.name}")


def _append(path: Path, line: bytes) -> None:
    """Append *line* to the file completely or not at all, also on a full disk.

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
    """Return a source's namespace, and ``database.`` as prefix of its table names, if any."""
    database = settings.options.get("database")
    before = f"{database}." if database else ""
    return DatasetPlace(f"{kind}://{settings.host}:{settings.port}", before)


def open_lineage_events(config: Config, links: Lineage) -> LineageEvents | None:
    """Return the sender of lineage events; None if none is configured."""
    if config.openlineage is None:
        return None
    sources = {one.name: server_place(one, source_kind(one)) for one in config.sources}
    return LineageEvents(config.openlineage, links.of_tables, config.settings.mirror, sources)
