"""Which column is which: asked by the name of either side."""

from fastapi import APIRouter

from monitor.web import render
from monitor.web.bounds import Text
from monitor.web.parts import Parts
from pipeline.apply.lineage import ColumnLink

LINEAGE_ROUTES = APIRouter(prefix="/v1")


@LINEAGE_ROUTES.get("/lineage")
def lineage(parts: Parts, name: Text) -> list[render.Json]:
    """Each source column with its mirror's; 400 if nothing that has landed is called so."""
    return [_told(one) for one in parts.lineage().of(name)]


def _told(one: ColumnLink) -> render.Json:
    return {
        "source": one.shard.source,
        "shard": one.shard.name,
        "column": one.column,
        "type": one.type,
        "table": one.table,
        "mirror_column": one.column,
        "mirror_type": one.mirror_type,
        "standard": one.standard,
        "hidden": one.hides,
        "before": list(one.before),
    }
