"""What the doctor asks is ruled, what it cannot ask is told, and the exit status says which."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result

from demo.debezium import MYSQL_LOSSLESS
from monitor import doctor as examination
from monitor.commands.doctor import COMMAND
from monitor.config.file import load_config
from monitor.config.model import Config
from monitor.config.sections import PLACEHOLDER_ADDRESS
from monitor.doctor import Clients, Examination, brokers_part, collector_part, server_part
from pipeline.collectors.collector import (
    CollectionScope,
    Collector,
    CollectorExamination,
    CollectorState,
    Registration,
)
from pipeline.collectors.connect.collector import examine_connector as connector_examination
from pipeline.collectors.connect.table_filter import read_capture
from pipeline.delta.store import Store
from pipeline.errors import ConfigError, SluiceError, UnreachableError
from pipeline.finding import NOTE, REFUSE, WARN, Demand, Finding, FindingSeverity
from pipeline.model import CaptureScope, Head, PartitionEnd, Shard, ShardId, TopicPartition
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings
from pipeline.sources.mysql.doctor import collect_findings
from pipeline.sources.mysql.facts import Cascade, ServerFacts, ShardFacts
from pipeline.sources.mysql.position import POSITIONS, binlog_position
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.source import ExaminationScope, Source, SourceDescription
from pipeline.transports.topics import TopicFacts
from pipeline.transports.transport import Transport

CONFIG = """\
lake: lake
kafka: 127.0.0.1:9
sources:
  - name: shop
    host: 127.0.0.1
    port: 3306
    user: sluice
    prefix: shop
    collector: {url: "http://127.0.0.1:9", connector: shop}
    follow_hosts: [db]
tables:
  - {shards: 'tmp\\..*', table: tmp, ignore: true}
"""
ALL = "GRANT ALL PRIVILEGES ON *.* TO `sluice`@`%`"
CONNECTOR = {
    **MYSQL_LOSSLESS,
    "topic.prefix": "shop",
    "database.hostname": "db",
    "database.ssl.mode": "verify_identity",
}
WORKER = {"offset.flush.interval.ms": "1000"}
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
STRICT = {"sql_mode": "STRICT_TRANS_TABLES,NO_ZERO_DATE"}


@dataclass(eq=False)
class Connector:
    """A connector that answers, or says why not."""

    config: Mapping[str, str]
    condition: CollectorState
    registered: Registration | None = None
    reads: tuple[str, int] = ("127.0.0.1", 3306)

    def registration(self, scope: CollectionScope) -> Registration | None:
        assert scope.brokers == "127.0.0.1:9"
        return self.registered

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        return connector_examination(settings, self.condition, self.config, worker)

    def captures(self) -> CaptureScope:
        return read_capture(self.config)

    def address(self) -> tuple[str, int]:
        return self.reads

    def close(self) -> None: ...


@dataclass(eq=False)
class Server:
    """A MySQL with these tables."""

    settings: SourceSettings
    names: tuple[str, ...]
    kind: str = "INT"
    dated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    name: str = "shop"

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        assert pattern == ".*"
        return tuple(Shard("shop", name) for name in self.dated)

    def describe(self, shards: Collection[str]) -> SourceDescription:
        return SourceDescription(None, dated={name: self.dated[name] for name in shards})

    def head(self) -> Head | None:
        return None

    def examine(self, scope: ExaminationScope) -> tuple[Finding, ...]:
        users = tuple(
            ShardFacts(
                Shard("shop", name),
                columns=(Column("id", "INT"), Column("text", self.kind)),
                unique=(("id",),),
                cascades=(Cascade("fk", "shop.teams", "ON DELETE CASCADE"),),
            )
            for name in self.names
            if scope.captured(ShardId.parse(name))
        )
        server = ServerFacts((8, 0), mariadb=False, variables=STRICT, grants=(ALL,), replica=False)
        return collect_findings(self.settings, server, users, scope, heartbeat=True)

    def close(self) -> None: ...


@dataclass(eq=False)
class Site:
    """A whole site as the doctor meets it; ``dialled`` is the server that was asked."""

    connector: Mapping[str, str]
    condition: CollectorState
    fault: Callable[[str], None]
    shards: tuple[str, ...] = ("shop.users",)
    dialled: tuple[str, int] = ("", 0)
    registered: Registration | None = None
    reads: tuple[str, int] = ("127.0.0.1", 3306)
    kind: str = "INT"
    topic: Mapping[str, str] = field(default_factory=dict)
    untold: tuple[str, ...] = ()
    dated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def doors(self) -> Clients:
        return Clients(self.collector, self.source, self.transport)

    def collector(self, _: SourceSettings, __: PipelineSettings) -> Collector:
        self.fault("collector")
        return cast(
            Collector, Connector(self.connector, self.condition, self.registered, self.reads)
        )

    def source(self, settings: SourceSettings) -> Source:
        self.fault("source")
        self.dialled = settings.host, settings.port
        return cast(Source, Server(settings, self.shards, self.kind, self.dated))

    def transport(self, _: PipelineSettings) -> Transport:
        return cast(Transport, self)

    def close(self) -> None: ...

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {TopicPartition(name, at): PartitionEnd(9) for name in topics for at in range(2)}

    def settings(self, pattern: str) -> tuple[TopicFacts, ...]:
        self.fault("kafka")
        assert "shop" in pattern
        told = TopicFacts("shop.shop.users", 3, self.topic)
        return (told, *(TopicFacts(name, 1, is_described=False) for name in self.untold))


def quiet(_: str) -> None:
    """All answer."""


def silent(which: str, error: SluiceError) -> Callable[[str], None]:
    def fault(asked: str) -> None:
        if asked == which:
            raise error

    return fault


def site(fault: Callable[[str], None] = quiet, **settings: str) -> Site:
    changed = {name.replace("_", "."): value for name, value in settings.items()}
    return Site({**CONNECTOR, **changed}, CollectorState("running"), fault)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sluice.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def examined(path: Path, site: Site) -> Examination:
    done = Examination(load_config(path), WORKER, timedelta(days=3), site.doors())
    done.run()
    return done


@dataclass(eq=False)
class Bucket:
    """A store that lets one writer win, or says why it does not."""

    error: SluiceError | None
    proved: list[str] = field(default_factory=list)

    def prove(self, folder: str) -> None:
        self.proved.append(folder)
        if self.error is not None:
            raise self.error


def examined_beside(path: Path, bucket: Bucket) -> tuple[Examination, list[str]]:
    asked: list[str] = []

    def store(uri: str) -> Store:
        asked.append(uri)
        return cast("Store", bucket)

    doors = replace(site().doors(), lake=store)
    done = Examination(load_config(path), WORKER, timedelta(days=3), doors)
    done.run()
    return done, asked


def test_the_bucket_is_tried_where_the_change_log_will_be(path: Path) -> None:
    path.write_text(CONFIG.replace("lake: lake", "lake: s3a://data/lake"), encoding="utf-8")
    bucket = Bucket(None)

    done, asked = examined_beside(path, bucket)

    assert asked == ["s3a://data/lake/changes"]
    assert bucket.proved == ["_delta_log"]
    assert [one.where for one in done.unasked] == []
    assert not done.refused


def test_a_bucket_that_lets_two_writers_win_is_refused_and_the_rest_is_asked(path: Path) -> None:
    done, _ = examined_beside(path, Bucket(ConfigError("two writers could both win")))

    assert [(one.where, one.what) for one in done.findings if one.severity is REFUSE] == [
        ("lake", "two writers could both win")
    ]
    assert [one.code for one in done.findings] == ["not_allowed", "unproven"]


def test_a_bucket_that_does_not_answer_is_told_with_what_to_look_at(path: Path) -> None:
    done, _ = examined_beside(path, Bucket(UnreachableError("lake: no such bucket")))

    assert [(one.where, one.why) for one in done.unasked] == [("lake", "no such bucket")]
    assert "AWS_" in done.unasked[0].then
    assert [one.code for one in done.findings] == ["unproven"]


def test_f180_what_spark_lacks_on_this_machine_is_refused_with_its_fix(path: Path) -> None:
    doors = replace(site().doors(), machine=lambda: ["11 jars are not there; run `sluice jars`"])

    done = Examination(load_config(path), WORKER, timedelta(days=3), doors)
    done.run()

    refused = [(one.where, one.what, one.fix) for one in done.findings if one.severity is REFUSE]
    assert refused == [("this machine", "11 jars are not there", "run `sluice jars`")]


def found(path: Path, site: Site) -> dict[str, FindingSeverity]:
    return {finding.code: finding.severity for finding in examined(path, site).findings}


def test_only_a_cascade_is_found_on_a_site_that_is_set_up_well(path: Path) -> None:
    assert found(path, site()) == {"unproven": WARN}


def test_changes_that_go_by_offsets_of_two_partitions_are_refused(path: Path) -> None:
    weak = "    format: canal_json\n    format_options: {zone: UTC}\n"
    path.write_text(CONFIG.replace("tables:", f"{weak}tables:"), encoding="utf-8")

    told = found(path, site())

    assert told == {"unproven": WARN, "weak_order": REFUSE, "many_partitions": REFUSE}


def test_the_server_that_the_connector_reads_is_asked(path: Path) -> None:
    shop = site()
    shop.reads = "db", 3307

    examined(path, shop)

    assert shop.dialled == ("db", 3307)


def test_f188_a_server_that_the_collector_does_not_read_is_named_and_asked(path: Path) -> None:
    def fault(which: str) -> None:
        if which == "source" and shop.dialled == ("", 0):
            shop.dialled = "first", 0
            raise UnreachableError("no such host")

    shop = site(fault)
    shop.reads = "db", 3307

    done = examined(path, shop)

    assert [one.what for one in done.findings if one.code == "address"] == [
        "the collector reads db:3307, the config names 127.0.0.1:3306; db:3307 is examined"
    ]
    assert [(one.where, one.why) for one in done.unasked] == [("source:shop", "no such host")]
    assert "unproven" in {one.code for one in done.findings}, "the other one is examined"


@pytest.mark.parametrize(
    ("kind", "limit", "topic", "size"),
    [
        pytest.param("LONGTEXT", "", "", "1048576", id="the producer's own"),
        pytest.param("JSON", "70000000", "2000000", "2000000", id="the topic's"),
        pytest.param("MEDIUMTEXT", "20000000", "20000000", "", id="it fits"),
        pytest.param("VARCHAR", "", "", "", id="short"),
    ],
)
def test_f140_columns_that_a_record_has_no_room_for_are_named(
    path: Path, kind: str, limit: str, topic: str, size: str
) -> None:
    producer = "producer.override.max.request.size", "producer.override.buffer.memory"
    shop = site(quiet, **(dict.fromkeys(producer, limit) if limit else {}))
    shop.kind, shop.topic = kind, {"max.message.bytes": topic}

    told = [one.what for one in examined(path, shop).findings if one.code == "too_large"]

    expected = f"text may hold more than the {size} bytes of a record"
    assert [one.partition(":")[0] for one in told] == ([expected] if size else [])


def test_tables_that_are_not_captured_or_ignored_are_not_ruled(path: Path) -> None:
    shop = site(database_include_list="crm,tmp,sluice")
    shop.shards = ("shop.users", "tmp.users", "sluice.heartbeat")

    assert found(path, shop) == {}


@pytest.mark.parametrize(
    ("fault", "unasked", "others"),
    [
        ("collector", "collector:shop", {"unproven": WARN}),
        ("source", "source:shop", {}),
        ("kafka", "kafka:shop", {"unproven": WARN}),
    ],
)
def test_what_does_not_answer_is_told_and_the_rest_is_ruled(
    path: Path, fault: str, unasked: str, others: Mapping[str, FindingSeverity]
) -> None:
    done = examined(path, site(silent(fault, UnreachableError("down"))))

    assert [(one.where, one.why) for one in done.unasked] == [(unasked, "down")]
    assert {finding.code: finding.severity for finding in done.findings} == others
    assert not done.refused


def test_f102_topics_that_are_not_told_are_named_and_the_others_are_ruled(path: Path) -> None:
    shop = replace(site(), topic={"cleanup.policy": "compact"}, untold=("shop.shop.orders",))

    done = examined(path, shop)

    why = "settings of shop.shop.orders are unknown; grant DescribeConfigs"
    assert ("kafka:shop", why) in [(one.where, one.why) for one in done.unasked]
    (compacted,) = [one for one in done.findings if one.where == "kafka:shop"]
    assert (compacted.code, compacted.severity) == ("compacted", REFUSE)
    assert compacted.what.startswith("shop.shop.users: ")


@dataclass(eq=False)
class Replicated(Server):
    """A MySQL, or its replica, that has executed so many transactions."""

    done: int = 5
    positions = POSITIONS

    def head(self) -> Head:
        return Head(self.settings.host, binlog_position(1, 1, f"{UUID}:1-{self.done}"))

    def newest_heartbeat(self) -> int:
        return 7


def examined_with_replica(path: Path, there: Callable[[SourceSettings], Server]) -> Examination:
    """What is found of a source whose replica is *there*."""
    options = "    options: {read_from: 'b:3307', limits: {statement: 100ms}}\n"
    path.write_text(CONFIG.replace("tables:", f"{options}tables:"), encoding="utf-8")

    def source(settings: SourceSettings) -> Source:
        if (settings.host, settings.port) == ("b", 3307):
            return cast(Source, there(settings))
        return cast(Source, Replicated(settings, ("shop.users",)))

    doors = replace(site().doors(), source=source)
    done = Examination(load_config(path), WORKER, timedelta(days=3), doors)
    done.run()
    return done


@pytest.mark.parametrize(("done", "codes"), [(5, set()), (4, {"replica_behind"})])
def test_the_replica_that_read_from_names_is_compared_with_its_source(
    path: Path, done: int, codes: set[str]
) -> None:
    examination = examined_with_replica(path, lambda own: Replicated(own, (), done=done))

    found = [one for one in examination.findings if one.code != "unproven"]
    assert {one.code for one in found} == codes
    assert all(one.where == "source:shop" and "b:3307 is behind" in one.what for one in found)
    assert examination.unasked == []


def test_a_replica_that_does_not_answer_is_told_with_what_to_look_at(path: Path) -> None:
    def down(_: SourceSettings) -> Server:
        raise UnreachableError("source:shop: down: no route to host")

    done = examined_with_replica(path, down)

    assert [(one.where, one.why) for one in done.unasked] == [
        ("source:shop", "down: no route to host")
    ]
    assert "the replica b:3307 run, is the address in options.read_from of" in (
        done.unasked[0].then
    )
    assert [one.code for one in done.findings] == ["unproven"], "the source itself is examined"


def test_a_login_that_is_denied_is_refused(path: Path) -> None:
    denied = ConfigError("Access denied for user 'sluice'")

    assert found(path, site(silent("source", denied))) == {"not_allowed": REFUSE}


def test_f194_a_refusal_names_its_part_once_and_what_to_look_at(path: Path) -> None:
    denied = ConfigError("source:shop: Access denied for user 'sluice'")

    done = examined(path, site(silent("source", denied)))

    (one,) = [finding for finding in done.findings if finding.code == "not_allowed"]
    assert (one.where, one.what) == ("source:shop", "Access denied for user 'sluice'")
    assert "does its user get in with that password? then ask again: sluice doctor" in one.fix


def test_a_connector_that_failed_is_told_with_its_error(path: Path) -> None:
    shop = site()
    shop.condition = CollectorState("failed", "no such table")

    told = examined(path, shop).findings[0]

    assert (told.code, told.severity) == ("state", WARN)
    assert told.what == "connector shop is failed: no such table"


def registered(now: Mapping[str, str] | None) -> Registration:
    demand = Demand("skipped.operations", "TRUNCATE leaves no trace", good=("none",))
    wanted = {"skipped.operations": "none", "pace": "1"}
    return Registration(wanted, (demand,), (), lambda _: False, lambda: now, lambda _: None)


def test_f52_each_difference_from_what_is_wanted_is_named_once_with_its_fix(path: Path) -> None:
    shop = site(skipped_operations="t")
    shop.registered = registered(shop.connector)

    told = [one for one in examined(path, shop).findings if one.where == "collector:shop"]

    assert [(one.code, one.severity) for one in told] == [
        ("skipped.operations", REFUSE),
        ("pace", NOTE),
    ]
    assert told[1].what == "pace is not set"
    assert told[1].fix == "pace=1, or sluice connector shop --apply"


def test_f52_a_collector_that_is_not_registered_is_refused_with_the_verb_that_does_it(
    path: Path,
) -> None:
    shop = site()
    shop.registered = registered(None)

    told = examined(path, shop).findings[0]

    assert (told.code, told.severity) == ("unregistered", REFUSE)
    assert told.fix == "sluice connector shop --apply"


@pytest.fixture
def doctor(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    (path.parent / "worker.properties").write_text(
        "\n# for all\noffset.flush.interval.ms = 1000\n", encoding="utf-8"
    )

    def run(site: Site, *words: str) -> Result:
        def at(config: Config, worker: Mapping[str, str] | None, outage: timedelta) -> Examination:
            return Examination(config, worker, outage, site.doors())

        monkeypatch.setattr(examination, "Examination", at)
        worker = str(path.parent / "worker.properties")
        return CliRunner().invoke(COMMAND, ["--config", str(path), "--worker", worker, *words])

    return run


@pytest.mark.parametrize(
    ("shop", "status", "said"),
    [
        pytest.param(site(), 0, "nothing is refused", id="nothing refused"),
        pytest.param(
            site(skipped_operations="t"),
            1,
            "REFUSED: until this is fixed, nothing runs or changes are lost (1)",
            id="no",
        ),
        pytest.param(
            site(silent("kafka", UnreachableError("down"))), 3, "NOT EXAMINED (1)", id="not asked"
        ),
        pytest.param(
            site(silent("kafka", UnreachableError("down")), skipped_operations="t"),
            1,
            "NOT EXAMINED (1)",
            id="what is refused stays so",
        ),
    ],
)
def test_doctor_answers_by_its_exit_status(
    *, doctor: Callable[..., Result], shop: Site, status: int, said: str
) -> None:
    result = doctor(shop)

    assert result.exit_code == status, result.output
    assert said in result.output


def test_each_finding_is_shown_with_its_fix(doctor: Callable[..., Result]) -> None:
    result = doctor(site(skipped_operations="t"))

    assert "  collector:shop  skipped.operations=t: " in result.output
    assert "      fix: skipped.operations=none in the connector's config\n" in result.output


@pytest.mark.parametrize(
    ("part", "word"),
    [
        pytest.param("source", "password", id="the source"),
        pytest.param(
            "source", "(127.0.0.1:3306; with follow_collector", id="where a collector reads"
        ),
        pytest.param("collector", "Connect worker", id="the collector"),
        pytest.param("kafka", "advertise", id="Kafka"),
    ],
)
def test_what_was_not_asked_says_what_to_look_at(
    *, doctor: Callable[..., Result], part: str, word: str
) -> None:
    told = doctor(site(silent(part, UnreachableError("down")))).output.splitlines()

    at = next(n for n, line in enumerate(told) if line.startswith(f"  {part}:shop  down"))
    assert told[at + 1].startswith("      then: do")
    assert word in told[at + 1]
    assert told[at + 1].endswith("; then run: sluice doctor")


def notes_of_days(path: Path, dated: Mapping[str, tuple[str, ...]], more: str = "") -> list[str]:
    path.write_text(CONFIG + more)
    shop = replace(site(), dated=dated)
    return [one.what for one in examined(path, shop).findings if one.code == "date_column"]


def test_the_date_column_of_each_table_is_named_or_why_there_is_none(path: Path) -> None:
    dated = {"shop.users": ("at", "created_at"), "shop.teams": ("at",), "shop.none": ()}

    assert notes_of_days(path, dated) == [
        "day_counts counts days of created_at in 1 table: shop.users",
        "day_counts counts no days in 2 tables:"
        " shop.none (no index begins with a NOT NULL column of dates or times),"
        " shop.teams (no index begins with a column of a usual name of a creation time: at)",
    ]


@pytest.mark.parametrize(
    "section",
    ["{enabled: false}", "{choose_column: false}", "{columns: [at]}", "{tables: 'other.*'}"],
)
def test_no_date_column_is_named_where_none_is_chosen(path: Path, section: str) -> None:
    dated = {"shop.users": ("created_at",)}

    assert notes_of_days(path, dated, f"probes: {{day_counts: {section}}}\n") == []


def test_doctor_prints_json_for_programs(doctor: Callable[..., Result]) -> None:
    result = doctor(site(silent("kafka", UnreachableError("down"))), "--json")

    told = json.loads(result.output)
    assert [(one["where"], one["why"]) for one in told["unasked"]] == [("kafka:shop", "down")]
    assert "brokers" in told["unasked"][0]["then"]
    assert [(f["severity"], f["code"], f["where"]) for f in told["findings"]] == [
        ("warn", "unproven", "table shop.users")
    ]


def test_a_copy_that_does_not_answer_or_is_anothers_is_told(path: Path) -> None:
    away = path.parent / "away" / "copy.json"
    section = f"copies: {{diary: {{kind: tests.toy.copy, tables: '*', path: {away}}}}}\n"
    path.write_text(CONFIG + section)
    lacks = [one.where for one in examined(path, site()).unasked]
    away.parent.mkdir()
    away.write_text('{"shop.users": {"owner": "another lake", "at": null, "rows": {}}}')
    (refused,) = [one for one in examined(path, site()).findings if one.severity is REFUSE]

    assert lacks == ["copy:diary"]
    assert (refused.where, refused.code) == ("copy:diary", "not_allowed")
    assert "another lake" in refused.what


def test_a_worker_file_that_is_not_there_is_told(path: Path) -> None:
    result = CliRunner().invoke(COMMAND, ["--config", str(path), "--worker", "/no/such"])

    assert isinstance(result.exception, ConfigError)


USUAL = SourceSettings("shop", "db", 3306, "u", CollectorSettings("http://c", "shop"), "shop")
LOGS = replace(USUAL, collector=CollectorSettings("/data/logs", "logs", "files"), transport="files")


@pytest.mark.parametrize(
    ("source", "asks", "reads"),
    [
        pytest.param(USUAL, "does a Connect worker run", "do brokers run", id="the usual ones"),
        pytest.param(
            replace(USUAL, collector=CollectorSettings(kind="heartbeats")),
            "see `collector` and `kind` of shop",
            "do brokers run",
            id="whom nobody can ask",
        ),
        pytest.param(
            LOGS, "see `collector` and `kind` of shop", "see `transport` of shop", id="files"
        ),
    ],
)
def test_nobody_is_sent_to_what_the_source_has_not(
    source: SourceSettings, asks: str, reads: str
) -> None:
    assert asks in collector_part(source).then
    assert reads in brokers_part(source).then


def test_a_source_without_a_server_is_not_looked_for_at_an_address() -> None:
    assert "does the server run" in server_part(USUAL).then
    assert (
        "do all paths under `collector` of shop exist"
        in server_part(replace(LOGS, **PLACEHOLDER_ADDRESS)).then
    )
