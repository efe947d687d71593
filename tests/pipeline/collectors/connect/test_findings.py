"""Every setting that harms is found, and the demo's connector, which has none, is clean."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest

from demo.debezium import MYSQL_LOSSLESS
from pipeline.collectors.connect.findings import (
    connector_findings,
    find_config_hazards,
    heartbeat_findings,
    producer_findings,
)
from pipeline.finding import NOTE, REFUSE, WARN, Effect, FindingSeverity
from pipeline.settings import CollectorSettings, SourceSettings

GOOD = {**MYSQL_LOSSLESS, "topic.prefix": "shop", "value.converter.schemas.enable": "false"}
DEFAULTS = {"connector.class": MYSQL_LOSSLESS["connector.class"], "topic.prefix": "shop"}
SHOP = SourceSettings(
    "shop", "127.0.0.1", 3306, "s", CollectorSettings("http://c:1", "shop"), "shop"
)
ROUTER = "io.debezium.transforms.ByLogicalTableRouter"
RENAMER = "org.apache.kafka.connect.transforms.RegexRouter"


def severities(
    config: Mapping[str, str], worker: Mapping[str, str] | None = None
) -> dict[str, FindingSeverity]:
    found = connector_findings(config, "collector:shop", source=SHOP, worker=worker)
    return {finding.code: finding.severity for finding in found}


def test_a_connector_that_loses_nothing_has_a_clean_bill() -> None:
    assert severities(GOOD) == {}


def test_a_connector_with_its_defaults_loses_values_and_truncates() -> None:
    assert severities(DEFAULTS) == {
        "bigint.unsigned.handling.mode": REFUSE,
        "decimal.handling.mode": REFUSE,
        "enable.time.adjuster": REFUSE,
        "event.converting.failure.handling.mode": REFUSE,
        "skipped.operations": REFUSE,
        "provide.transaction.metadata": WARN,
        "value.converter.replace.null.with.default": WARN,  # nobody knows the worker's converter
    }


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("bigint.unsigned.handling.mode", "long", REFUSE),
        ("decimal.handling.mode", "double", REFUSE),
        ("decimal.handling.mode", "precise", REFUSE),
        ("time.precision.mode", "connect", REFUSE),
        ("enable.time.adjuster", "true", REFUSE),
        ("skipped.operations", "t", REFUSE),
        ("skipped.operations", "u,d", REFUSE),
        ("binary.handling.mode", "hex", REFUSE),
        ("include.schema.changes", "false", REFUSE),
        ("event.processing.failure.handling.mode", "skip", REFUSE),
        ("event.processing.failure.handling.mode", "warn", REFUSE),
        ("event.converting.failure.handling.mode", "warn", REFUSE),
        ("event.converting.failure.handling.mode", "skip", REFUSE),
        ("event.deserialization.failure.handling.mode", "ignore", REFUSE),
        ("inconsistent.schema.handling.mode", "skip", REFUSE),
        ("errors.tolerance", "all", REFUSE),
        ("schema.history.internal.skip.unparseable.ddl", "true", REFUSE),
        ("field.name.adjustment.mode", "avro", REFUSE),
        ("sanitize.field.names", "true", REFUSE),
        ("topic.naming.strategy", "com.acme.Naming", REFUSE),
        ("topic.naming.strategy", "com.acme.DefaultTopicNamingStrategy", REFUSE),
        ("snapshot.mode", "initial_only", REFUSE),
        ("snapshot.mode", "no_data", WARN),
        ("snapshot.mode", "never", WARN),
        ("snapshot.mode", "always", NOTE),
        ("snapshot.locking.mode", "none", WARN),
        ("snapshot.locking.mode", "custom", WARN),
        ("snapshot.query.mode", "custom", REFUSE),
        ("snapshot.isolation.mode", "read_committed", WARN),
        ("snapshot.select.statement.overrides", "shop.users", REFUSE),
        ("snapshot.include.collection.list", "shop.users", WARN),
        ("provide.transaction.metadata", "false", WARN),
        ("tombstones.on.delete", "false", NOTE),
        ("column.exclude.list", "shop.users.email", WARN),
        ("column.include.list", "shop.users.id", WARN),
        ("converters", "boolean", WARN),
        ("post.processors", "reselector", WARN),
        ("message.key.columns", "shop.users:email", WARN),
        ("gtid.source.excludes", "f5aa6304-.*", REFUSE),
        ("key.converter", "io.confluent.connect.avro.AvroConverter", REFUSE),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", REFUSE),
        ("value.converter.replace.null.with.default", "true", REFUSE),
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector", REFUSE),
        ("topic.prefix", "other", REFUSE),
    ],
)
def test_a_setting_that_harms_is_found_with_its_fix(
    name: str, value: str, severity: FindingSeverity
) -> None:
    found = connector_findings({**GOOD, name: value}, "collector:shop", source=SHOP, worker=None)

    assert [(f.code, f.severity, f.where) for f in found] == [(name, severity, "collector:shop")]
    assert f"{name}={value}" in found[0].what
    assert found[0].fix


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(
            "io.debezium.transforms.ExtractNewRecordState", {"transforms": REFUSE}, id="unwrapped"
        ),
        pytest.param("io.debezium.transforms.Filter", {"transforms": REFUSE}, id="filtered"),
        pytest.param(
            "org.apache.kafka.connect.transforms.ReplaceField$Value",
            {"transforms": REFUSE},
            id="columns dropped",
        ),
        pytest.param("org.shop.Polish", {"transforms": WARN}, id="not known to be harmless"),
        pytest.param(
            "org.apache.kafka.connect.transforms.InsertHeader", {}, id="headers harm nobody"
        ),
        pytest.param(
            "org.apache.kafka.connect.transforms.HeaderFrom$Value",
            {"transforms": REFUSE},
            id="fields moved into headers",
        ),
    ],
)
def test_transforms_are_judged_by_what_they_do(
    kind: str, expected: Mapping[str, FindingSeverity]
) -> None:
    assert severities({**GOOD, "transforms": "one", "transforms.one.type": kind}) == expected


@pytest.mark.parametrize(("operation", "codes"), [("move", ["transforms"]), ("copy", [])])
def test_a_field_that_is_moved_into_a_header_is_a_hazard(operation: str, codes: list[str]) -> None:
    config = {
        **GOOD,
        "transforms": "h",
        "transforms.h.type": "org.apache.kafka.connect.transforms.HeaderFrom$Value",
        "transforms.h.fields": "after",
        "transforms.h.operation": operation,
    }

    found = find_config_hazards(config, "here")

    assert [one.code for one in found] == codes
    assert [one.effect for one in found] == [Effect.REWRITES] * len(codes)


def test_a_snapshotter_of_its_own_is_a_hazard() -> None:
    (found,) = find_config_hazards({**GOOD, "snapshot.mode": "custom"}, "here")

    assert (found.code, found.effect) == ("snapshot.mode", Effect.DROPS)


@pytest.mark.parametrize(
    ("kind", "topics", "unique", "expected"),
    [
        pytest.param(ROUTER, "cdc-.+", "false", [], id="folded, and the key stays"),
        pytest.param(ROUTER, "cdc-.+", "true", [REFUSE], id="folded, with the shard in the key"),
        pytest.param(ROUTER, "cdc-.+", None, [REFUSE], id="which is its default"),
        pytest.param(ROUTER, "", "false", [WARN], id="folded into topics that nobody reads"),
        pytest.param(RENAMER, "cdc-.+", None, [], id="renamed"),
        pytest.param(RENAMER, "", None, [WARN], id="renamed to what nobody reads"),
    ],
)
def test_topics_may_have_other_names_if_they_are_read(
    kind: str, topics: str, unique: str | None, expected: list[FindingSeverity]
) -> None:
    routed = {**GOOD, "transforms": "fold", "transforms.fold.type": kind}
    if unique is not None:
        routed["transforms.fold.key.enforce.uniqueness"] = unique
    shop = replace(SHOP, topics=topics)

    found = connector_findings(routed, "collector:shop", source=shop, worker=None)

    assert [one.severity for one in found] == expected
    assert all("fold" in one.what and one.fix for one in found)


def test_a_salt_in_a_settings_name_is_not_told() -> None:
    masked = {**GOOD, "column.mask.hash.SHA-256.with.salt.Pepper": "shop.users.email"}

    found = connector_findings(masked, "collector:shop", source=SHOP, worker=None)

    assert [(f.code, f.severity) for f in found] == [("column.mask.", WARN)]
    assert "Pepper" not in f"{found[0].what} {found[0].fix}"


def test_rows_of_other_servers_stay_where_a_gtid_filter_spares_them() -> None:
    spared = {"gtid.source.includes": "f5.*", "gtid.source.filter.dml.events": "false"}

    assert severities({**GOOD, **spared}) == {}


@pytest.mark.parametrize(
    ("worker", "severity"),
    [
        pytest.param(None, WARN, id="nobody knows"),
        pytest.param(
            {"value.converter": MYSQL_LOSSLESS["value.converter"]}, REFUSE, id="its default"
        ),
        pytest.param(
            {"value.converter.replace.null.with.default": "false"}, None, id="the worker keeps NULL"
        ),
    ],
)
def test_null_is_kept_by_whoever_names_the_converter(
    worker: Mapping[str, str] | None, severity: FindingSeverity | None
) -> None:
    own = {name: value for name, value in GOOD.items() if not name.startswith("value.converter")}

    found = severities(own, worker)

    assert found.get("value.converter.replace.null.with.default") is severity


def test_a_converter_goes_with_its_own_settings_not_the_workers() -> None:
    own = {**GOOD}
    del own["value.converter.replace.null.with.default"]

    found = severities(own, {"value.converter.replace.null.with.default": "false"})

    assert found == {"value.converter.replace.null.with.default": REFUSE}


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"shop\.([a-z_]+)+!", id="hours"),
        pytest.param("(" * 500 + "a" + ")" * 500, id="groups in groups"),
        pytest.param(r"(?<x>a)\.b:c;(?<x>a)\.c", id="a group that is there twice"),
        pytest.param("(?i)shop.t", id="letters of any size"),
    ],
)
def test_a_hazard_whose_pattern_cannot_be_used_is_about_every_table(pattern: str) -> None:
    config = {**GOOD, "message.key.columns": f"{pattern}:id"}

    (found,) = find_config_hazards(config, "here")

    assert found.code == "message.key.columns"
    assert pattern in found.what
    assert found.affects("shop.anything_at_all_that_takes_long_to_match")


def test_a_statement_of_many_blanks_is_read_at_once() -> None:
    overrides = "snapshot.select.statement.overrides"
    long = "SELECT * FROM shop.t" + " " * 30_000 + "x"
    began = process_time()

    (found,) = find_config_hazards(
        {**GOOD, overrides: "shop.t", f"{overrides}.shop.t": long}, "here"
    )

    assert found.affects("shop.t")
    assert process_time() - began < 2


def test_a_number_of_requests_that_is_none_is_a_hazard() -> None:
    setting = "max.in.flight.requests.per.connection"
    over = "producer.override."
    config = {**GOOD, f"{over}enable.idempotence": "false", f"{over}{setting}": "many"}

    assert [one.code for one in find_config_hazards(config, "here")] == [setting]


IN_FLIGHT = "max.in.flight.requests.per.connection"
PROMPT = {"offset.flush.interval.ms": "1000"}
STATED = {
    "producer.override.acks": "all",
    "producer.override.retries": "2147483647",
    "producer.override.enable.idempotence": "true",
    f"producer.override.{IN_FLIGHT}": "5",
}


@pytest.mark.parametrize(
    ("connector", "worker", "expected"),
    [
        pytest.param({}, PROMPT, {}, id="Connect's own are safe"),
        pytest.param(STATED, PROMPT, {}, id="stated"),
        pytest.param({"producer.override.acks": "1"}, PROMPT, {"acks": REFUSE}, id="one ack"),
        pytest.param({}, {**PROMPT, "producer.acks": "0"}, {"acks": REFUSE}, id="worker's acks"),
        pytest.param(
            {"producer.override.acks": "-1"},
            {**PROMPT, "producer.acks": "0"},
            {},
            id="the connector's go first",
        ),
        pytest.param(
            {"producer.override.retries": "0"}, PROMPT, {"retries": REFUSE}, id="no retries"
        ),
        pytest.param(
            {f"producer.override.{IN_FLIGHT}": "5"}, PROMPT, {IN_FLIGHT: REFUSE}, id="reorders"
        ),
        pytest.param(
            {f"producer.override.{IN_FLIGHT}": "${file:kafka.properties:most}"},
            PROMPT,
            {IN_FLIGHT: WARN},
            id="a reference is not known here",
        ),
        pytest.param(
            {**STATED, f"producer.override.{IN_FLIGHT}": "${env:MOST}"},
            PROMPT,
            {},
            id="whatever it is, idempotence keeps the order",
        ),
        pytest.param(
            {},
            {"offset.flush.interval.ms": "${env:FLUSH}"},
            {"flush_unseen": NOTE},
            id="of flushes",
        ),
        pytest.param(
            {}, None, {"producer_unseen": NOTE, "flush_unseen": NOTE}, id="worker not known"
        ),
        pytest.param(STATED, None, {"flush_unseen": NOTE}, id="stated, worker not known"),
        pytest.param({}, {}, {"offset.flush.interval.ms": WARN}, id="offsets once a minute"),
        pytest.param({}, {"offset.flush.interval.ms": "5000"}, {}, id="5 s will do"),
    ],
)
def test_producer_settings_are_ruled_as_they_hold(
    connector: Mapping[str, str],
    worker: Mapping[str, str] | None,
    expected: Mapping[str, FindingSeverity],
) -> None:
    found = producer_findings(connector, "collector:shop", worker)

    assert {finding.code: finding.severity for finding in found} == expected
    assert all(finding.fix for finding in found)


def test_a_list_that_is_no_regular_expression_is_told() -> None:
    (found,) = heartbeat_findings({"table.include.list": "shop.("}, "sluice.heartbeat", "here")

    assert found.severity is REFUSE
    assert found.what.startswith(
        "table.include.list of the connector cannot be read, so it may leave out any table: "
    )


def test_what_cannot_be_read_is_said_and_stands_where_the_fix_says() -> None:
    (found,) = heartbeat_findings({"table.include.list": r"\bshop\..*"}, "sluice.heartbeat", "here")
    page, _, heading = found.fix.rpartition(": ")[2].partition("#")
    told = (Path(__file__).resolve().parents[4] / page).read_text(encoding="utf-8")
    _, _, after = told.partition(f"## {heading.capitalize().replace('-', ' ')}\n")

    for words in (
        "ets of sets",
        "[a-z&&[^t]]",
        "classes of Unicode",
        "ends of words",
        "epeats of repeats",
        "new base",
    ):
        assert words in found.fix
        assert words in " ".join(after.partition("\n## ")[0].split())


@pytest.mark.parametrize(
    ("config", "fix"),
    [
        pytest.param({}, None, id="all is captured"),
        pytest.param({"database.include.list": "shop,sluice"}, None, id="listed"),
        pytest.param(
            {"database.include.list": "shop"}, "add sluice to database.include.list", id="database"
        ),
        pytest.param(
            {"database.include.list": "shop,sluice", "table.include.list": r"shop\..*"},
            r"add sluice\.heartbeat to table.include.list",
            id="table",
        ),
        pytest.param(
            {"database.exclude.list": "sluice", "table.exclude.list": "x"},
            "let database.exclude.list spare sluice",
            id="excluded",
        ),
    ],
)
def test_the_heartbeat_must_be_captured(config: Mapping[str, str], fix: str | None) -> None:
    found = heartbeat_findings(config, "sluice.heartbeat", "collector:shop")

    assert [finding.fix for finding in found] == ([fix] if fix else [])
