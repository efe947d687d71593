"""Which partitions got rows, window by window, and what came late?  Of sources that can tell."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from monitor.nearest import alike
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, answer
from monitor.web.parts import ApiParts, Parts
from pipeline.errors import UnknownNameError
from pipeline.model import Shard
from pipeline.sources.source import PartitionArrivals

ARRIVAL_ROUTES = APIRouter(prefix="/v1")
Offset = Annotated[int, Query(ge=0)]


@ARRIVAL_ROUTES.get("/arrivals", responses={200: answer(answers.Arrivals), **NOT_FOUND})
def arrivals(
    parts: Parts, source: str, after: Offset = 0, until: Offset | None = None
) -> JSONResponse:
    """Of each partition what the source's rows with offsets ``[after, until)`` brought it.

    Who goes on at ``until`` of the last answer is told of each file once.
    """
    asked = parts.arrivals.get(source)
    if asked is None:
        known = alike(source, sorted(parts.arrivals))
        raise UnknownNameError(f"no source {source!r} tells of partitions; known: {known}")
    end = asked.end()
    until = end if until is None else min(until, end)
    found = asked.between(after, until)
    told: list[answers.Partition] = [
        {**_told(parts, source, one), "late": one.late} for one in found
    ]
    made: answers.Arrivals = {
        "source": source,
        "after": after,
        "until": max(after, until),
        "partitions": told,
    }
    return render.Answer(made)


def late_arrivals(parts: ApiParts, since: datetime | None) -> list[answers.LatePartition]:
    """By partition, what came late for it, *since* then; no image is spoken of."""
    return [
        _told(parts, source, one)
        for source, asked in parts.arrivals.items()
        for one in asked.late(since)
    ]


def _told(parts: ApiParts, source: str, one: PartitionArrivals) -> answers.LatePartition:
    return {
        "table": _table(parts, Shard(source, one.shard)),
        "shard": one.shard,
        "partition": one.partition,
        "files": one.files,
        "rows": one.rows,
        "first": render.instant(one.first),
        "landed": render.instant(one.last),
    }


def _table(parts: ApiParts, shard: Shard) -> str | None:
    """Where its rows are mirrored; None before any has landed."""
    tables = (view.table for view in parts.current.board.tables)
    return next((one.name for one in tables if shard in one.shards), None)
