"""A receiver gets each turn's events; one that hangs or refuses delays no merge and loses none."""

import json
import resource
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from monitor import openlineage
from monitor.config.file import load_config
from monitor.config.model import OpenLineageSettings
from monitor.openlineage import (
    DatasetPlace,
    LineageEvents,
    MergeLineage,
    lake_place,
    merge_events,
    server_place,
)
from pipeline.apply.lineage import ColumnLink
from pipeline.errors import ConfigError
from pipeline.image import Image
from pipeline.model import Account, Shard
from pipeline.reports import Hold, MergeReport
from pipeline.settings import CollectorSettings, SourceSettings
from tests.monitor.config.test_sections import LEAST
from tests.monitor.receiver import receiver

SOURCES = {"a": DatasetPlace("mysql://a:3306", ""), "b": DatasetPlace("postgres://b:5432", "shop.")}


def _events(settings: OpenLineageSettings) -> LineageEvents:
    return LineageEvents(
        settings, lambda names: dict.fromkeys(names, LINKS), lambda name: f"/lake/{name}", SOURCES
    )


def test_a_turn_is_posted_and_written_with_its_shards(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    with receiver() as (url, heard):
        told = _events(OpenLineageSettings(url, "secret-token", str(file)))
        told.note([TURN])

        assert told.tell() == 1
        assert told.tell() == 0

    kinds = [(who, one["eventType"]) for who, one in heard.heard]
    assert kinds == [("Bearer secret-token", "START"), ("Bearer secret-token", "COMPLETE")]
    assert [json.loads(one) for one in file.read_text().splitlines()] == [o for _, o in heard.heard]
    names = [one["name"] for one in heard.heard[1][1]["inputs"]]
    assert names == ["shop_1.orders", "shop.shop_2.orders"]


def test_the_lake_is_looked_at_once_for_all_that_waits(tmp_path: Path) -> None:
    """A look takes as long as there are tables: one for each turn would be their square."""
    looks: list[Collection[str]] = []

    def links(names: Collection[str]) -> Mapping[str, Sequence[ColumnLink]]:
        looks.append(names)
        return dict.fromkeys(names, LINKS)

    file = tmp_path / "events.jsonl"
    told = _events(OpenLineageSettings(file=str(file)))
    told.links = links
    told.note([TURN, replace(TURN, table="shop.users"), replace(TURN, batch=8, version=5)])

    assert (told.tell(), told.tell()) == (3, 0)
    assert looks == [{"shop.orders", "shop.users"}]


def test_a_table_of_which_nothing_has_landed_is_told_of_in_the_log_alone(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    told = _events(OpenLineageSettings(file=str(file)))
    told.links = lambda _: {}
    told.note([TURN])

    assert (told.tell(), told.tell()) == (1, 0)
    assert not file.exists()


def test_turns_that_did_nothing_and_held_tables_are_no_runs(tmp_path: Path) -> None:
    told = _events(OpenLineageSettings(file=str(tmp_path / "events.jsonl")))
    idle, held = replace(TURN, account=Account()), replace(TURN, hold=Hold("h", "t", "gap", "x"))

    told.note([idle, held])

    assert told.tell() == 0


def test_what_could_not_be_sent_is_sent_later_in_order() -> None:
    with receiver(503) as (url, heard):
        told = _events(OpenLineageSettings(url))
        told.note([TURN, replace(TURN, batch=8, version=5)])

        assert told.tell() == 0
        assert told.tell() == 2

    versions = [
        one["outputs"][0]["facets"]["version"]["datasetVersion"]
        for _, one in heard.heard
        if one["eventType"] == "COMPLETE"
    ]
    assert versions == ["4", "5"]


def test_a_file_has_each_event_once_however_often_the_receiver_is_asked(tmp_path: Path) -> None:
    """One that is down for a night would else fill the disk, a line every five seconds."""
    file = tmp_path / "events.jsonl"
    with receiver(503, 503, 201, 503, 400) as (url, _):
        told = _events(OpenLineageSettings(url, file=str(file)))
        told.note([TURN, replace(TURN, batch=8, version=5)])

        assert [told.tell() for _ in range(4)] == [0, 0, 0, 2]

    kinds = [json.loads(one)["eventType"] for one in file.read_text().splitlines()]
    assert kinds == ["START", "COMPLETE", "START", "COMPLETE"]


def test_on_a_full_disk_no_half_of_an_event_is_left(tmp_path: Path) -> None:
    """What was cut off could be read by nobody, nor what was written behind it."""
    file = tmp_path / "events.jsonl"
    told = _events(OpenLineageSettings(file=str(file)))
    told.note([TURN])
    assert told.tell() == 1
    whole = file.read_text()
    told.note([replace(TURN, batch=8, version=5)])

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, limits[1]))
    try:
        assert told.tell() == 0
        assert file.read_text() == whole
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert told.tell() == 1

    assert len([json.loads(one) for one in file.read_text().splitlines()]) == 4


def test_a_file_that_cannot_be_written_stops_nobody() -> None:
    told = _events(OpenLineageSettings(file="/dev/full"))
    told.note([TURN])

    assert told.tell() == 0
    assert told.tell() == 0


def test_a_slow_receiver_gets_the_rest_in_later_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred turns at five seconds an event would be half an hour: an overdue job."""
    monkeypatch.setattr(openlineage, "LONGEST", 0.0)
    with receiver() as (url, heard):
        told = _events(OpenLineageSettings(url))
        told.note([TURN, replace(TURN, batch=8, version=5)])

        assert [told.tell() for _ in range(3)] == [1, 1, 0]

    assert len(heard.heard) == 4


def test_what_is_refused_for_good_does_not_stop_the_others() -> None:
    with receiver(400) as (url, heard):
        told = _events(OpenLineageSettings(url))
        told.note([TURN, replace(TURN, batch=8, version=5)])

        assert told.tell() == 2

    assert [one["eventType"] for _, one in heard.heard] == ["START", "COMPLETE"]


@pytest.mark.parametrize(
    ("status", "headers", "sent"),
    [
        (400, {"Content_Type": "text/plain; charset=idna"}, [2, 0]),
        (400, {"Content_Encoding": "gzip"}, [2, 0]),
        (503, {"Retry_After": "9" * 5000}, [0, 2]),
    ],
    ids=["a charset that is none", "no gzip", "a pause of 5,000 digits"],
)
def test_an_odd_answer_stops_no_later_event(
    status: int, headers: dict[str, str], sent: list[int]
) -> None:
    """It ended each run of the job at the same event."""
    with receiver(status, **headers) as (url, heard):
        told = _events(OpenLineageSettings(url))
        told.note([TURN, replace(TURN, batch=8, version=5)])

        assert [told.tell(), told.tell()] == sent

    assert len(heard.heard) == (2 if status == 400 else 4)


def test_a_receiver_that_hangs_delays_nobody_who_notes_a_turn() -> None:
    with receiver() as (url, heard):
        heard.go_on.clear()
        told = _events(OpenLineageSettings(url, timeout=timedelta(seconds=0.3)))
        told.note([TURN])
        sending = threading.Thread(target=told.tell)
        sending.start()

        noting = threading.Thread(target=told.note, args=([TURN],))
        noting.start()
        noting.join(0.2)
        done = not noting.is_alive()
        sending.join(5)

        assert done
        assert not sending.is_alive()
        heard.go_on.set()
        assert told.tell() == 2


def test_of_too_many_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openlineage, "MOST", 2)
    told = _events(OpenLineageSettings("http://127.0.0.1:9/"))

    told.note([replace(TURN, version=n) for n in range(5)])

    with capture_logs() as logs:
        assert told.tell() == 0  # nobody answers there
    assert [(one["event"], one["merges"]) for one in logs] == [
        ("openlineage_waits", 2),
        ("openlineage_lost", 3),
    ]
    with receiver() as (url, heard):
        told.settings = OpenLineageSettings(url)
        assert told.tell() == 2
    assert len(heard.heard) == 4


def test_a_server_is_named_with_its_kind_and_its_database() -> None:
    own = SourceSettings(
        "s", "h", 5432, "u", CollectorSettings("", ""), "p", options={"database": "shop"}
    )

    assert server_place(own, "postgres") == DatasetPlace("postgres://h:5432", "shop.")
    plain = replace(own, options={}, port=3306)
    assert server_place(plain, "mysql") == DatasetPlace("mysql://h:3306", "")


def _config(folder: Path, section: str) -> Path:
    path = folder / "sluice.yaml"
    path.write_text(f"{LEAST}\nopenlineage: {section}\n", encoding="utf-8")
    return path


def test_the_config_names_who_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret-token")
    section = "{url: 'https://marquez:5000/api/v1/lineage', token: {env: TOKEN}}"

    found = load_config(_config(tmp_path, section)).openlineage

    wanted = OpenLineageSettings("https://marquez:5000/api/v1/lineage", "secret-token")
    assert found == wanted
    assert "secret-token" not in repr(found)


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("{}", "url and file are both empty; set one"),
        ("{url: marquez}", "openlineage.url: 'marquez' is not an address"),
        ("{file: events.jsonl}", "openlineage.file: 'events.jsonl' is not an absolute path"),
        ("{file: /e, token: open}", "openlineage.token: a secret must not be written here"),
        ("{file: /e, uri: x}", "uri"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, section: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(_config(tmp_path, section))

    assert fault in str(refused.value)


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
KNOWN = MergeLineage(PLACES, lake_place("s3a://lake/main/mirrors/shop/orders"), LINKS)
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
