"""A connector for Postgres is registered, ruled and believed by what is its own."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest

from demo.debezium import POSTGRES_LOSSLESS
from pipeline.build import open_collector
from pipeline.collectors.collector import CollectionScope, CollectorState
from pipeline.collectors.connect.collector import ConnectCollector, examine_connector
from pipeline.collectors.connect.config import firm_demands, required_config
from pipeline.collectors.connect.database import (
    database_of_connector,
    database_of_kind,
    every_database,
)
from pipeline.collectors.connect.findings import find_config_hazards
from pipeline.collectors.connect.postgres import end_markers
from pipeline.collectors.connect.table_filter import read_capture
from pipeline.errors import ConfigError, UnreachableError
from pipeline.finding import REFUSE, WARN, Effect, FindingSeverity
from pipeline.model import Acknowledged, Missing, Position, ShardId
from pipeline.settings import (
    CollectorSettings,
    KafkaSecurity,
    PipelineSettings,
    SourceSettings,
    TableRule,
)
from tests.pipeline.collectors.connect.fake_connect import fake_connect

SOURCE = SourceSettings(
    "shop",
    "db",
    5432,
    "sluice",
    CollectorSettings("http://connect:8083", "shop-1"),
    "shop",
    kind="postgres",
    options={"database": "Shop", "publication": "all_of_it"},
)
RULES = (TableRule(r"public\.orders_\d+", "shop.orders"), TableRule(r"crm\.x", ignore=True))
SCOPE = CollectionScope(SOURCE, "kafka:9092", KafkaSecurity(), RULES)
RUNNING = CollectorState("running")
WORKER = {"offset.flush.interval.ms": "1000"}
CLASS = "io.debezium.connector.postgresql.PostgresConnector"
PLUGINS = [{"class": CLASS, "type": "source", "version": "3.7.1.Final"}]


def finding_codes(config: Mapping[str, str]) -> set[str]:
    found = examine_connector(SOURCE, RUNNING, config, WORKER, PLUGINS).findings
    return {one.code for one in found}


@pytest.mark.parametrize(
    "source", [SOURCE, replace(SOURCE, tls=True)], ids=["plain", "with certificates"]
)
def test_the_doctor_has_nothing_to_put_right_in_what_is_wanted(source: SourceSettings) -> None:
    config = required_config(replace(SCOPE, source=source), {})

    assert finding_codes(config) == set()
    assert [
        o for o in firm_demands(SCOPE, {}) if o.name in config and not o.met(config[o.name])
    ] == []


def test_it_says_what_the_demo_needs_to_lose_no_value() -> None:
    config = required_config(SCOPE, {})

    by_default = {one.name for one in firm_demands(SCOPE, {}) if one.default in one.good}
    assert POSTGRES_LOSSLESS.keys() - config.keys() - by_default == set()


def test_names_are_those_of_the_source_and_nothing_of_another_kind_is_in_it() -> None:
    config = required_config(SCOPE, {})

    assert config["connector.class"] == CLASS
    assert (config["database.dbname"], config["slot.name"]) == ("Shop", "sluice_shop")
    assert config["publication.name"] == "all_of_it"
    assert config["value.converter.schemas.enable"] == "true"
    assert config["schema.include.list"] == "public,sluice"
    assert config["table.exclude.list"].endswith(r"(?:crm\.x)")
    others = ("schema.history", "database.server.id", "bigint", "database.include")
    assert [name for name in config if name.startswith(others)] == []


@pytest.mark.parametrize(
    ("setting", "value", "severity"),
    [
        ("plugin.name", "decoderbufs", REFUSE),
        ("column.propagate.source.type", "", REFUSE),
        ("value.converter.schemas.enable", "false", REFUSE),
        ("include.unknown.datatypes", "false", REFUSE),
        ("interval.handling.mode", "numeric", REFUSE),
        ("slot.drop.on.stop", "true", REFUSE),
        ("slot.name", "another", REFUSE),
        ("publication.name", "another", REFUSE),
        ("slot.stream.params", "origin=none", REFUSE),
        ("database.dbname", "another", REFUSE),
        ("publication.autocreate.mode", "all_tables", WARN),
        ("replica.identity.autoset.values", "public.t:FULL", WARN),
        ("event.converting.failure.handling.mode", "warn", REFUSE),
        ("snapshot.query.mode", "custom", REFUSE),
        ("skipped.operations", "t", REFUSE),
        ("connector.class", "io.debezium.connector.mysql.MySqlConnector", REFUSE),
    ],
)
def test_a_setting_that_harms_is_found(setting: str, value: str, severity: object) -> None:
    found = examine_connector(
        SOURCE, RUNNING, {**required_config(SCOPE, {}), setting: value}, {}, PLUGINS
    ).findings

    assert [one.severity for one in found if one.code == setting] == [severity]


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        pytest.param({}, [], id="as the source says"),
        pytest.param({"publication.name": "another"}, ["publication.name"], id="publication"),
        pytest.param({"slot.name": "another"}, ["slot.name"], id="slot"),
        pytest.param({"slot.stream.params": "origin=none"}, ["slot.stream.params"], id="origin"),
        pytest.param({"slot.stream.params": "origin = any;"}, [], id="any origin"),
    ],
)
def test_what_the_connector_reads_by_other_names_is_a_hazard(
    more: Mapping[str, str], codes: list[str]
) -> None:
    config = {**required_config(SCOPE, {}), **more}

    found = find_config_hazards(config, "here", source=SOURCE)

    assert [(one.code, one.effect) for one in found] == [(code, Effect.DROPS) for code in codes]


PLACEHOLDER = "unavailable.value.placeholder"


@pytest.mark.parametrize(
    ("sent", "expected", "found"),
    [
        pytest.param(None, None, [], id="both by default"),
        pytest.param("gone", None, [PLACEHOLDER], id="only the connector's"),
        pytest.param(None, "gone", [PLACEHOLDER], id="only the format's"),
        pytest.param("gone", "gone", [], id="both"),
        pytest.param("Gone", "gone", [PLACEHOLDER], id="letters count"),
        pytest.param("hex:676f6e65", "gone", [], id="as octets"),
        pytest.param("hex:67e", "gone", [PLACEHOLDER], id="no octets"),
    ],
)
def test_the_placeholder_of_unsent_values_is_that_of_the_format(
    sent: str | None, expected: str | None, found: list[str]
) -> None:
    source = replace(SOURCE, format_options={} if expected is None else {"unavailable": expected})
    config = {**required_config(SCOPE, {}), **({} if sent is None else {PLACEHOLDER: sent})}

    doctor = examine_connector(source, RUNNING, config, WORKER, PLUGINS).findings
    with fake_connect() as worker:
        worker.registered["shop-1"] = config
        known = replace(source, collector=CollectorSettings(worker.url, "shop-1"))
        with closing(
            open_collector(known, PipelineSettings("lake", "kafka:9092", (known,)))
        ) as collector:
            hazards = collector.captures().hazards

    assert [one.code for one in doctor] == found
    assert [(one.code, one.effect) for one in hazards] == [(name, "rewrites") for name in found]


def test_the_connector_gets_the_placeholder_of_the_format() -> None:
    source = replace(SOURCE, format_options={"unavailable": "gone"})

    assert required_config(replace(SCOPE, source=source), {})[PLACEHOLDER] == "gone"
    assert PLACEHOLDER not in required_config(SCOPE, {})


def test_rows_in_avro_tell_their_columns_by_what_their_converter_keeps_of_them() -> None:
    registry = {"registry": {"url": "http://registry"}}
    source = replace(SOURCE, format="debezium_avro", format_options=registry)
    config = required_config(replace(SCOPE, source=source), {})

    assert not any("schemas.enable" in name for name in config)
    assert list(examine_connector(source, RUNNING, config, WORKER, PLUGINS).findings) == []
    without = {**config, "value.converter.connect.meta.data": "false"}
    (one,) = examine_connector(source, RUNNING, without, WORKER, PLUGINS).findings
    assert (one.severity, one.code) == (REFUSE, "value.converter.connect.meta.data")


@pytest.mark.parametrize(
    ("listed", "severity"),
    [
        (["3.5.0.Final"], REFUSE),
        (["3.6.3.Final"], REFUSE),
        (["3.10.1.Final", "3.5.0.Final"], None),
        (["3.7.1.Final"], None),
        (["3.7.0.Final"], WARN),
        (["3.8"], None),
        (["4.0.0.Alpha1"], None),
        (["2.9"], REFUSE),
        (["null"], WARN),
        ([], WARN),
    ],
)
def test_a_plugin_that_loses_rows_at_a_restart_is_refused(
    listed: list[str], severity: FindingSeverity | None
) -> None:
    others = [{"class": "other", "version": "9.9"}, "odd"]
    plugins = [*others, *({"class": CLASS, "version": version} for version in listed)]

    found = examine_connector(SOURCE, RUNNING, required_config(SCOPE, {}), WORKER, plugins).findings

    assert [(one.code, one.severity) for one in found] == (
        [] if severity is None else [("plugin_version", severity)]
    )


METADATA, MINE = "provide.transaction.metadata", "transforms.mine.predicate"
PATTERN, FILTER = "predicates.sluiceMarkers.pattern", "io.debezium.transforms.Filter"
STEPS = "sluiceKeep,sluiceCount,sluiceDrop,sluiceWrap,sluiceEnd,sluiceName"
OTHER = {
    "transforms.mine.type": "org.apache.kafka.connect.transforms.InsertHeader",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}


@pytest.mark.parametrize(
    ("changed", "hazards"),
    [
        pytest.param({"transforms": ""}, 1, id="no transforms"),
        pytest.param({"transforms": STEPS.replace("sluiceDrop,", "")}, 1, id="one is missing"),
        pytest.param({"transforms": f"mine,{STEPS}", **OTHER}, 4, id="others before them"),
        pytest.param({"transforms": f"{STEPS}, mine", **OTHER}, 0, id="others behind them"),
        pytest.param({"predicates": ""}, 1, id="no predicate"),
        pytest.param({"predicates": "p, sluiceMarkers", **OTHER}, 0, id="two predicates"),
        pytest.param({"topic.transaction": "t"}, 4, id="another topic"),
        pytest.param(
            {"topic.transaction": "public.t", PATTERN: r"shop\.public\.t"}, 4, id="a table's topic"
        ),
        pytest.param({"transforms.sluiceDrop.negate": "false"}, 3, id="negated or not"),
        pytest.param({METADATA: "false", "transforms": ""}, 0, id="no markers"),
        pytest.param(
            {"transforms": f"{STEPS},mine", "transforms.mine.type": FILTER, MINE: "sluiceMarkers"},
            1,
            id="a filter of theirs on the same topic",
        ),
    ],
)
def test_a_connector_that_stores_the_offset_of_a_begin_is_refused(
    changed: Mapping[str, str], hazards: int
) -> None:
    config = {**required_config(SCOPE, {}), **changed}
    found = examine_connector(SOURCE, RUNNING, config, WORKER, PLUGINS).findings
    refused = [one for one in found if one.severity is REFUSE]

    assert len(refused) == hazards
    assert {one.code for one in refused} <= {"transforms"}
    known = find_config_hazards(config, f"collector:{SOURCE.name}")
    assert [one for one in known if one.severity is REFUSE] == refused


def test_transforms_are_added_to_a_connector_that_has_its_own() -> None:
    with fake_connect() as worker:
        before = {"transforms": "mine", "predicates": "", **OTHER}
        worker.registered["shop-1"] = {**required_config(SCOPE, {}), **before}
        with closing(ConnectCollector(worker.url, "shop-1")) as collector:
            registration = collector.registration(SCOPE)
            target = registration.target(registration.now())

    assert (target["transforms"], target["predicates"]) == (f"{STEPS},mine", "sluiceMarkers")
    assert finding_codes(target) == set()
    assert registration.differences(target) == ()


def test_transforms_of_a_person_come_behind_those_that_drop_begin() -> None:
    own = {"transforms": "mine", "predicates": "p", **OTHER}
    config = required_config(SCOPE, own)

    assert config["transforms"] == f"{STEPS},mine"
    assert config["predicates"] == "sluiceMarkers,p"
    assert config["transforms.mine.type"] == OTHER["transforms.mine.type"]
    assert finding_codes(config) == set()
    firm = [one for one in firm_demands(SCOPE, own) if one.name in config]
    assert [one for one in firm if not one.met(config[one.name])] == []
    assert required_config(SCOPE, config) == config


def test_markers_are_those_of_the_topic_that_the_connector_names() -> None:
    named = {"topic.prefix": "a.b-c", "topic.delimiter": "_", "topic.transaction": "tx"}

    assert end_markers(named)[PATTERN] == r"a\.b\-c_tx"
    assert required_config(SCOPE, {"topic.delimiter": "_"})[PATTERN] == "shop_transaction"


def test_the_worker_is_asked_which_plugins_it_has() -> None:
    with fake_connect() as worker:
        worker.registered["shop-1"] = required_config(SCOPE, {})
        worker.plugins = [{"class": CLASS, "type": "source", "version": "3.5.0.Final"}]
        with closing(ConnectCollector(worker.url, "shop-1")) as collector:
            found = collector.examine(SOURCE, WORKER).findings

            worker.plugins = {}
            with pytest.raises(UnreachableError, match="/connector-plugins with 200 and no list"):
                collector.examine(SOURCE, WORKER)

    assert [one.what[:10] for one in found] == ["plugin 3.5"]


def test_without_a_database_nothing_is_registered() -> None:
    with pytest.raises(ConfigError, match=r"options\.database"):
        required_config(replace(SCOPE, source=replace(SOURCE, options={})), {})


def test_its_lists_are_of_schemas() -> None:
    of = CLASS
    found = read_capture({"connector.class": of, "schema.include.list": "public,sys"})

    sent = ("public.t", "sys.t", "other.t", "pg_catalog.t")
    assert [name for name in sent if found(ShardId.parse(name))] == ["public.t", "sys.t"]
    assert "schema.include.list" in found.text


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        pytest.param(
            {"lsn_proc": 26313040, "lsn_commit": 26313040, "lsn": 26313040, "txId": 736},
            Acknowledged(Position("postgres", "0/1918150")),
            id="after a commit",
        ),
        pytest.param(
            {"lsn_proc": 9, "lsn_commit": 5, "lsn": 9, "messageType": "INSERT"},
            Acknowledged(Position("postgres", "0/5")),
            id="in a transaction: what committed before it",
        ),
        pytest.param(
            {"lsn": 26312768, "snapshot": "INITIAL", "snapshot_completed": False},
            Acknowledged(Position("postgres", "0/1918040"), snapshot=True),
            id="in the snapshot",
        ),
        pytest.param(
            {"lsn": 26312768, "txId": 735},
            Missing("no commit has been handed over since the snapshot"),
            id="the snapshot's end",
        ),
    ],
)
def test_what_committed_is_acknowledged(
    offset: dict[str, object], said: Acknowledged | Missing
) -> None:
    assert database_of_kind("postgres").acknowledged(offset) == said
    assert database_of_kind("mysql").acknowledged(offset) is None


def test_no_other_databases_offset_is_taken_for_its_own() -> None:
    offset = {"file": "binlog.000007", "pos": 4}

    assert database_of_kind("postgres").acknowledged(offset) is None
    assert [one for one in every_database() if one.acknowledged({"scn": 4}) is not None] == []


def test_a_kind_is_known_by_its_connectors_class_and_a_strange_one_is_told() -> None:
    assert (
        database_of_connector(
            {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"}
        ).port
        == 3306
    )
    assert database_of_connector(required_config(SCOPE, {})).port == 5432
    assert database_of_kind("mariadb").classes[0].endswith("MariaDbConnector")
    with pytest.raises(ConfigError, match="known: mariadb, mysql, postgres"):
        database_of_kind("oracle")
