"""Which column is which: asked by the name of either side."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, answer
from monitor.web.bounds import Text
from monitor.web.parts import Parts
from pipeline.apply.lineage import ColumnLink

LINEAGE_ROUTES = APIRouter(prefix="/v1")


@LINEAGE_ROUTES.get("/lineage", responses={200: answer(list[answers.ColumnLink]), **NOT_FOUND})
def lineage(parts: Parts, name: Text) -> JSONResponse:
    """Each source column with its mirror's; 404 if nothing that has landed is called so."""
    return render.Answer([_told(one) for one in parts.lineage().of(name)])


def _told(one: ColumnLink) -> answers.ColumnLink:
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
