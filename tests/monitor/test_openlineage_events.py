"""Each turn is a run with its inputs, its output and which column is made of which.

What the specification requires of an event is written down here, by name.
"""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monitor.openlineage import DatasetPlace, TurnLineage, lake_place, merge_events
from pipeline.apply.lineage import ColumnLink
from pipeline.image import Image
from pipeline.model import Account, Shard
from pipeline.reports import MergeReport

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ONE, OTHER = Shard("a", "shop_1.orders"), Shard("b", "shop_2.orders")
LINKS = [
    ColumnLink(shard, name, "BIGINT", "shop.orders", kind, standard, hides=bool(standard))
    for shard in (ONE, OTHER)
    for name, kind, standard in (("id", "bigint", ""), ("phone", "string", "hash"))
]
PLACES = {
    ONE: DatasetPlace("mysql://a:3306", "shop_1.orders"),
    OTHER: DatasetPlace("postgres://b:5432", "shop.shop_2.orders"),
}
KNOWN = TurnLineage(PLACES, lake_place("s3a://lake/main/mirrors/shop/orders"), LINKS)
TURN = MergeReport("shop.orders", 7, 4, Account(9, 8, 1), NOON, timedelta(seconds=2))


def required(event: dict[str, Any]) -> None:
    """RunEvent, Run, Job, Dataset and BaseFacet of OpenLineage 2-0-2: what each must have."""
    assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys()
    assert event["eventType"] in {"START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"}
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    uuid.UUID(event["run"]["runId"])
    assert {"namespace", "name"} <= event["job"].keys()
    for dataset in (*event["inputs"], *event["outputs"]):
        assert {"namespace", "name"} <= dataset.keys()
        facets = [*dataset.get("facets", {}).values(), *dataset.get("outputFacets", {}).values()]
        for facet in facets:
            assert {"_producer", "_schemaURL"} <= facet.keys()


def test_events_have_what_the_specification_requires() -> None:
    for event in merge_events(TURN, KNOWN, "sluice"):
        required(json.loads(json.dumps(event)))


def test_a_run_begins_and_is_complete_and_has_one_id_however_often_it_is_told() -> None:
    began, made = merge_events(TURN, KNOWN, "sluice")
    again, _ = merge_events(TURN, KNOWN, "sluice")
    next_, _ = merge_events(replace(TURN, batch=8, version=5), KNOWN, "sluice")

    assert (began["eventType"], made["eventType"]) == ("START", "COMPLETE")
    assert began["run"] == made["run"] == again["run"] != next_["run"]
    assert made["job"] == {"namespace": "sluice", "name": "merge shop.orders"}
    assert made["eventTime"] == "2026-01-02T12:00:02+00:00"


def test_shards_are_inputs_and_the_mirror_is_the_output() -> None:
    _, made = merge_events(TURN, KNOWN, "sluice")

    assert made["inputs"] == [
        {"namespace": "mysql://a:3306", "name": "shop_1.orders"},
        {"namespace": "postgres://b:5432", "name": "shop.shop_2.orders"},
    ]
    (output,) = made["outputs"]
    there = (output["namespace"], output["name"])
    assert there == ("s3://lake", "main/mirrors/shop/orders")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 8
    assert output["facets"]["version"]["datasetVersion"] == "4"
    assert output["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "bigint"},
        {"name": "phone", "type": "string"},
    ]


def test_each_column_tells_all_it_is_made_of_and_whether_it_is_masked() -> None:
    _, made = merge_events(TURN, KNOWN, "sluice")
    columns = made["outputs"][0]["facets"]["columnLineage"]["fields"]

    assert [one["name"] for one in columns["id"]["inputFields"]] == [
        "shop_1.orders",
        "shop.shop_2.orders",
    ]
    (told,) = columns["phone"]["inputFields"][0]["transformations"]
    assert (told["type"], told["subtype"], told["masking"]) == ("DIRECT", "TRANSFORMATION", True)
    (plain,) = columns["id"]["inputFields"][0]["transformations"]
    assert (plain["subtype"], plain["masking"]) == ("IDENTITY", False)


def test_an_image_is_a_job_of_its_own() -> None:
    image = Image(NOON, 7, 4, (), {}, NOON, NOON, "2026-01-02")
    _, made = merge_events(replace(TURN, image=image), KNOWN, "sluice")

    assert made["job"]["name"] == "image shop.orders"


@pytest.mark.parametrize(
    ("address", "namespace", "name"),
    [
        ("/var/lake/mirrors/db/t", "file", "/var/lake/mirrors/db/t"),
        ("s3a://bucket/lake/t", "s3://bucket", "lake/t"),
        ("hdfs://name:8020/lake/t", "hdfs://name:8020", "lake/t"),
    ],
)
def test_a_lakes_address_is_a_place(address: str, namespace: str, name: str) -> None:
    assert lake_place(address) == DatasetPlace(namespace, name)
