"""An API with something of everything in its board, store and lake."""

import base64
import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from fastapi import FastAPI

from checks.model import Outcome, Ruling, Verdict
from monitor.clients import Lineage
from monitor.quarantine import ErrorTable, SourceFormat
from monitor.web.api import build_application
from pipeline.backfill_state import BackfillState, RepairPreview
from pipeline.build import open_table_format
from pipeline.formats.debezium.avro import AvroMessage
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.image import Image, LateChanges
from pipeline.settings import RegistrySettings
from pipeline.standards.table_standards import Standards
from pipeline.tables.lake import Lake
from tests.builders.harness import LandingHarness
from tests.builders.lake import LocalLake
from tests.monitor.rig import NOON, ORDERS, USERS, Client, Rig
from tests.monitor.traced import TracedLake
from tests.monitor.web.test_arrivals import Shelf
from tests.pipeline.formats.dbevents_writer import NUMBER, SCHEMA, Event
from tests.pipeline.landing.test_resubmitting import ODD, TOPIC, EventHarness
from tests.pipeline.reading import readings
from tests.pipeline.registry_server import Answers

ODD_CHANGE = f"{TOPIC}:0:1@0"
WHO = {"reason": "because", "who": "ann"}
CUT = NOON - timedelta(hours=14)


@dataclass(eq=False)
class Furnished:
    """``app`` answers ``client``; ``ids`` are what was made, by a word for each."""

    rig: Rig
    app: FastAPI
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        """Asks the application."""
        return Client(self.app)


def furnished(rig: Rig, folder: Path, registry: Answers) -> Furnished:
    """Two tables with a copy, images, verdicts and incidents, and all that people can ask for.

    USERS is READY with a certificate, and ORDERS is blocked by a FAIL.  Nobody waits at the gate.
    """
    rig.round()
    rig.gate.published = lambda table: table == USERS
    rig.cycle.image_due = lambda table: timedelta(minutes=30) if table == USERS else None
    rig.cycle.copies = lambda table: {"cache": None} if table == USERS else {}
    rig.watcher.sampler.copies = {"cache": dict}
    rig.gate.copies = lambda table: ("cache",) if table == USERS else ()
    rig.arrivals = {"logs": Shelf()}
    late = (LateChanges(7, 2, {"2026-03-27": 2}, NOON),)
    image = Image(CUT, 1, 1, (), {}, CUT, NOON + timedelta(days=7), "2026-03-28", late=late)
    rig.round()
    rig.lake.mirrors[USERS] = replace(rig.lake.mirrors[USERS], images=(image,))
    ruling = Ruling(Outcome.FAIL, "rows missing", "missing_rows", ("shop/shop.orders:17-29",))
    rig.recorder.tell([Verdict(ORDERS, "range_counts", ruling, rig.clock(), value=13.0)])
    rig.write_heartbeat()
    rig.cycle.watch()
    errors = _error_table(folder / "error", registry)
    links = _lineage(folder / "links")
    tracer = TracedLake(LocalLake(folder / "rows")).tracer()
    parts = replace(rig.api_parts(), errors=errors, links=links, rows=tracer, stopping=lambda: True)
    parts = replace(parts, waits=lambda _: {"day_counts": "no date column is chosen"})
    made = Furnished(rig, build_application(parts))
    _fill(made)
    return made


def _error_table(folder: Path, registry: Answers) -> ErrorTable:
    """With one message that could not be read."""
    registry.schemas = {NUMBER: json.dumps(SCHEMA)}
    harness = EventHarness(
        folder, registries={"b": SchemaRegistry("b", RegistrySettings(registry.url))}
    )
    harness.topics.held[TOPIC] = [(b"", Event("k0", 10, {"id": 0}).value), (b"key", ODD.value)]
    harness.send(Event("k2", 30, {"id": 2}))
    lake = Lake(harness.settings, open_table_format(harness.settings))
    formats = {"b": SourceFormat(harness.format("b"), harness.registries["b"], AvroMessage())}
    return ErrorTable(lake, formats, lambda: harness.topics)


def _lineage(folder: Path) -> Lineage:
    """Of a table ``db.t`` with two columns."""
    harness = LandingHarness(folder)
    harness.topics.alter("a", 100, "name", kind="CREATE")
    harness.topics.put("a", 101, "Ada")
    harness.land()
    lake = Lake(harness.settings, open_table_format(harness.settings))
    return Lineage(lake, readings("a", "b"), (), Standards(()))


def _fill(made: Furnished) -> None:
    """Make what has an id, over HTTP, and remember it."""
    client, ids, store = made.client, made.ids, made.rig.store
    asked = client.get("/v1/gate", params={"table": USERS, "cut": "2026-03-28"}).json()
    ids["certificate"] = asked["tables"][0]["certificate"]
    ids["incident"] = client.get("/v1/incidents").json()[0]["id"]
    window = {"table": USERS, "since": "2026-03-28T01:00:00Z", "until": "2026-03-28T04:00:00Z"}
    kept = client.post("/v1/archives", json={**window, **WHO}).json()
    ids["archive"] = kept["window"]["id"]
    client.post("/v1/pauses", json={"tables": [ORDERS], "until": "4h", **WHO})
    dry = {"table": USERS, "ranges": ["1..9"], "dry_run": True, "who": "ann"}
    (looked,) = client.post("/v1/repairs", json=dry).json()["rereads"]
    found = RepairPreview(1, 2, 3, ("shop/shop.users:7",))
    state = BackfillState(looked["id"], USERS, "shop/shop.users", 6, 4, preview=found)
    store.backfills.record_states([state], made.rig.now)
    client.post("/v1/bootstraps", json={"tables": [ORDERS], **WHO})
    value = base64.b64encode(replace(ODD, error=None).value).decode()
    sent = client.post("/v1/resubmissions", json={"id": ODD_CHANGE, "value": value, **WHO})
    ids["resubmission"] = sent.json()["id"]
    blocked = client.get("/v1/gate", params={"table": ORDERS, "cut": "2026-03-28"}).json()
    ids["waivable"] = next(one["id"] for one in blocked["tables"][0]["reasons"] if one["id"])
