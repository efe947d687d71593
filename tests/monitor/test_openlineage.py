"""A receiver gets each turn's events; one that hangs or refuses delays no merge and loses none."""

import json
import resource
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from monitor import openlineage
from monitor.config.file import load_config
from monitor.config.model import OpenLineageSettings
from monitor.openlineage import DatasetPlace, LineageEvents, server_place
from pipeline.apply.lineage import ColumnLink
from pipeline.errors import ConfigError
from pipeline.model import Account
from pipeline.reports import Hold
from pipeline.settings import CollectorSettings, SourceSettings
from tests.monitor.config.test_sections import LEAST
from tests.monitor.receiver import receiver
from tests.monitor.test_openlineage_events import LINKS, TURN

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

    assert told.tell() == 0  # nobody answers there
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
        ("{url: marquez}", "url must be an http"),
        ("{file: events.jsonl}", "file must be an absolute path"),
        ("{file: /e, token: open}", "openlineage.token: a secret must not be written here"),
        ("{file: /e, uri: x}", "uri"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, section: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(_config(tmp_path, section))

    assert fault in str(refused.value)
