"""What does a merge tell of lineage?  Two events of OpenLineage: it began; it made this of that.

By the specification 2-0-2 of OpenLineage and its facets (columnLineage 1-2-0, schema 1-2-0,
outputStatistics 1-0-2, version 1-0-1).  A run is one turn of one mirror: its inputs are the shards,
its output the mirror, or the image that the turn made of it.  No value of a row is in it.  Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from pipeline.apply.lineage import ColumnLink
from pipeline.model import Shard
from pipeline.reports import Applied

SPEC = "https://openlineage.io/spec"
PRODUCER = "urn:sluice"
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DatasetPlace:
    """A table's name in its namespace; a namespace is a server, or what holds files."""

    namespace: str
    name: str

    @property
    def told(self) -> dict[str, str]:
        """As a dataset is named."""
        return {"namespace": self.namespace, "name": self.name}


@dataclass(frozen=True, slots=True)
class TurnLineage:
    """Where a turn's rows come from and go to, column by column; ``sources`` are by shard."""

    sources: Mapping[Shard, DatasetPlace]
    mirror: DatasetPlace
    links: Sequence[ColumnLink]


def lake_place(address: str) -> DatasetPlace:
    """The dataset of a folder, or of an address such as ``s3a://bucket/path``."""
    there = urlsplit(address)
    if not there.scheme:
        return DatasetPlace("file", address)
    scheme = {"s3a": "s3"}.get(there.scheme, there.scheme)
    return DatasetPlace(f"{scheme}://{there.netloc}", there.path.strip("/") or "/")


def events(turn: Applied, known: TurnLineage, namespace: str) -> tuple[Event, Event]:
    """That *turn* began, and that it is complete; its job is one of *namespace*."""
    word = "merge" if turn.image is None else "image"
    identity = f"{namespace}/{known.mirror.name}/{word}/{turn.batch}/{turn.version}"
    began = {
        "eventType": "START",
        "eventTime": _instant(turn.started),
        "producer": PRODUCER,
        "schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": _run(identity)},
        "job": {"namespace": namespace, "name": f"{word} {turn.table}"},
        "inputs": [place.told for place in _inputs(known)],
        "outputs": [known.mirror.told],
    }
    ended = _instant(turn.started + turn.took)
    made = {**began, "eventType": "COMPLETE", "eventTime": ended, "outputs": [_output(turn, known)]}
    return began, made


def _run(identity: str) -> str:
    """One id for one turn, however often it is told: a UUID of version 8, as RFC 9562 has it."""
    told = blake2b(identity.encode(), digest_size=16).hexdigest()
    return f"{told[:8]}-{told[8:12]}-8{told[13:16]}-8{told[17:20]}-{told[20:]}"


def _inputs(known: TurnLineage) -> list[DatasetPlace]:
    own = {known.sources[one.shard] for one in known.links if one.shard in known.sources}
    return sorted(own, key=lambda one: (one.namespace, one.name))


def _output(turn: Applied, known: TurnLineage) -> Event:
    types = {one.column: one.mirror_type for one in known.links}
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    facets = {
        "schema": _facet("1-2-0", "SchemaDatasetFacet", fields=fields),
        "columnLineage": _facet(
            "1-2-0", "ColumnLineageDatasetFacet", fields=_columns(known), dataset=[]
        ),
        "version": _facet("1-0-1", "DatasetVersionDatasetFacet", datasetVersion=str(turn.version)),
    }
    rows = _facet("1-0-2", "OutputStatisticsOutputDatasetFacet", rowCount=turn.account.applied)
    return {**known.mirror.told, "facets": facets, "outputFacets": {"outputStatistics": rows}}


def _columns(known: TurnLineage) -> Event:
    found: dict[str, list[Event]] = {}
    for link in known.links:
        if link.shard in known.sources:
            place = known.sources[link.shard].told
            told = {**place, "field": link.column, "transformations": [_transformation(link)]}
            found.setdefault(link.column, []).append(told)
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
