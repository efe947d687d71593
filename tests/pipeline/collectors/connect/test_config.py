"""The wanted settings are complete, hold no secret, and the doctor has nothing to say to them."""

import re
from dataclasses import replace

import pytest

from demo.debezium import MYSQL_LOSSLESS
from pipeline.collectors.collector import CollectionScope, CollectorState
from pipeline.collectors.connect.collector import examine_connector
from pipeline.collectors.connect.config import (
    firm_demands,
    holds_secret,
    include_lists,
    required_config,
)
from pipeline.collectors.connect.requirements import APICURIO, CONFLUENT, JSON, NAMES
from pipeline.collectors.connect.table_filter import TableFilter
from pipeline.errors import ConfigError
from pipeline.model import ShardId
from pipeline.settings import (
    CollectorSettings,
    KafkaSecurity,
    MirrorSettings,
    SourceSettings,
    TableRule,
)

CONNECT = CollectorSettings("http://connect:8083", "shop-1")
SOURCE = SourceSettings("shop", "db", 3307, "sluice", CONNECT, "shop", password="dangerous")
SCRAM = KafkaSecurity("SASL_SSL", "SCRAM-SHA-512", "sluice", "dangerous", key_password="dangerous")
RULES = (TableRule(r"shop_\d+\.orders_\d+", "shop.orders"), TableRule(r"crm\.x", ignore=True))
THERE = MirrorSettings("there:9092", "http://mirror:8083", "mirror", alias="there")


OPTIONS = {"registry": {"url": "http://registry:8081"}}
AVRO = replace(SOURCE, format="debezium_avro", format_options=OPTIONS)
AS_SENT = replace(AVRO, format_options={**OPTIONS, "unicode_names": False})


def _scope(source: SourceSettings = SOURCE, **more: object) -> CollectionScope:
    return replace(CollectionScope(source, "kafka:9092", KafkaSecurity(), RULES), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(_scope(), id="plain"),
        pytest.param(_scope(rules=()), id="all tables"),
        pytest.param(_scope(replace(SOURCE, kind="mariadb", tls=True)), id="MariaDB"),
        pytest.param(_scope(security=SCRAM), id="a cluster that asks who it is"),
        pytest.param(_scope(AVRO), id="Avro"),
        pytest.param(_scope(AS_SENT), id="Avro without odd names"),
        pytest.param(_scope(replace(SOURCE, prefix="there.shop", mirrored=THERE)), id="mirrored"),
    ],
)
def test_f52_the_doctor_has_nothing_to_put_right_in_what_is_wanted(scope: CollectionScope) -> None:
    config = required_config(scope, {})

    found = examine_connector(scope.source, CollectorState("running"), config, None).findings

    assert {one.code for one in found} == {"flush_unseen"}  # a matter of the worker
    assert [one.name for one in firm_demands(scope, {}) if one.name in config] != []
    assert [
        o for o in firm_demands(scope, {}) if o.name in config and not o.met(config[o.name])
    ] == []


def test_f52_it_says_what_the_demo_needs_to_lose_no_value() -> None:
    config = required_config(_scope(), {})

    by_default = {one.name for one in firm_demands(_scope(), {}) if one.default in one.good}
    assert MYSQL_LOSSLESS.keys() - config.keys() - by_default == set()


def test_f52_no_secret_is_in_it_and_each_is_a_reference() -> None:
    config = required_config(_scope(security=SCRAM), {})

    assert "dangerous" not in str(config)
    secrets = {name: value for name, value in config.items() if holds_secret(name)}
    assert secrets["database.password"] == "${env:SHOP_DEBEZIUM_PASSWORD}"
    assert {value for value in secrets.values() if not value.startswith("${env:")} == set()
    jaas = {name for name in secrets if name.endswith("sasl.jaas.config")}
    assert len(jaas) == 3


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        pytest.param("shop-1.eu", "SHOP_1_EU", id="signs"),
        pytest.param("Café №1", "CAF___1", id="letters of no shell"),
        pytest.param("1shop", "_1SHOP", id="a digit first"),
    ],
)
def test_a_reference_is_to_a_variable_that_a_shell_can_set(name: str, variable: str) -> None:
    config = required_config(_scope(replace(SOURCE, name=name, prefix=name), security=SCRAM), {})

    assert config["database.password"] == f"${{env:{variable}_DEBEZIUM_PASSWORD}}"
    assert config["signal.consumer.sasl.jaas.config"] == f"${{env:{variable}_KAFKA_JAAS}}"


def test_it_is_about_this_source_and_its_topics() -> None:
    config = required_config(_scope(), {})

    assert (config["database.hostname"], config["database.port"]) == ("db", "3307")
    assert config["topic.prefix"] == "shop"
    assert config["schema.history.internal.kafka.bootstrap.servers"] == "kafka:9092"
    assert config["signal.kafka.topic"] == "__signals.shop"
    assert config["database.include.list"] == r"shop_\d+,sluice"
    assert config["table.exclude.list"].endswith(r"(?:crm\.x)")


def test_two_sources_have_two_server_ids() -> None:
    other = replace(SOURCE, name="crm")

    ids = {required_config(_scope(one), {})["database.server.id"] for one in (SOURCE, other)}

    assert len(ids) == 2
    assert all(100_000 <= int(one) < 1_000_000 for one in ids)


def test_settings_of_a_person_go_before() -> None:
    own = {"snapshot.mode": "initial", "table.include.list": "shop.a", "max.batch.size": "9"}

    config = required_config(_scope(), own)

    assert {name: config[name] for name in own} == own
    assert "database.include.list" not in config


def test_settings_of_a_person_are_what_must_be_registered() -> None:
    (one,) = [
        one for one in firm_demands(_scope(), {"max.batch.size": "9"}) if one.name[:4] == "max."
    ]

    assert (one.met("9"), one.met("8")) == (True, False)


@pytest.mark.parametrize("name", ["database.password", "ssl.key.passphrase", "x.sasl.jaas.config"])
def test_a_secret_in_the_config_itself_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(ConfigError, match="write a reference") as told:
        required_config(_scope(), {name: "dangerous"})

    assert name in str(told.value)
    assert "dangerous" not in str(told.value)
    assert required_config(_scope(), {name: "${file:/run/x:y}"})[name] == "${file:/run/x:y}"


LOGIN = 'org.apache.kafka.x.PlainLoginModule required username="us" password="{}";'
KEY = "-----BEGIN RSA PRIVATE KEY-----\\nhunter2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value.converter.basic.auth.user.info", "sluice:hunter2"),
        ("value.converter.schema.registry.basic.auth.user.info", "sluice:hunter2"),
        ("producer.override.ssl.keystore.key", "hunter2"),
        ("database.sslkey", KEY),
        ("key.converter.schema.registry.url", "http://a:8081,http://sluice:hunter2@b:8081"),
        ("key.converter.schema.registry.url", "https://sluice:hunter2${env:X}@b"),
        ("database.password", "hunter2${env:X}"),
        ("database.password", "${env:X}hunter2"),
        ("database.password", "${hunter2}"),
        ("sasl.jaas.config", LOGIN.format("hunter2")),
        ("sasl.jaas.config", LOGIN.format("${env:X}") + ' x.secret = "hunter2";'),
        ("sasl.jaas.config", "password=${env:X} hunter2"),
        ("database.password", "${env:X"),
    ],
)
def test_f186_a_secret_is_refused_wherever_it_is_written(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="write a reference") as told:
        required_config(_scope(), {name: value})

    assert name in str(told.value)
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value.converter.basic.auth.user.info", "${env:REGISTRY_USER_INFO}"),
        ("value.converter.basic.auth.credentials.source", "USER_INFO"),
        ("value.converter.basic.auth.user.info", "${env:REGISTRY_USER}:${env:REGISTRY_PASSWORD}"),
        ("sasl.jaas.config", LOGIN.format("${env:X}")),
        ("producer.override.sasl.jaas.config", LOGIN.format("${file:/run/x:y}")),
        ("database.sslkey", "/run/keys/us.key"),
        ("producer.override.ssl.keystore.location", "/run/keys/us.p12"),
        ("key.converter.schema.registry.url", "http://a:8081,https://sluice@b:8081"),
        ("key.converter.schema.registry.url", "http://${env:USER}:${file:/run/x:y}@b:8081"),
    ],
)
def test_what_is_no_secret_may_be_written(name: str, value: str) -> None:
    assert required_config(_scope(), {name: value})[name] == value


BEAT = "sluice.heartbeat"


def _wanted(*patterns: str) -> tuple[TableRule, ...]:
    return tuple(TableRule(one, "a.b") for one in patterns)


@pytest.mark.parametrize(
    ("pattern", "databases"),
    [
        pytest.param(r"shop_\d+\.orders_\d+", r"shop_\d+,sluice", id="shards"),
        pytest.param(r"shop\.a|crm\.b", "shop,crm,sluice", id="two ways"),
        pytest.param(r"(shop|crm)\.a", "(shop|crm),sluice", id="a group"),
        pytest.param(r"shop.orders", "shop,sluice", id="a dot that is any letter"),
        pytest.param(r"shop_\d{1,2}\.a", r"shop_\d{1\,2},sluice", id="a comma"),
        pytest.param(r"(?P<d>shop_\d)\.t(?P=d)", r"(?<d>shop_\d),sluice", id="a named group"),
        pytest.param(r"[a.|(]b\.c", r"[a.|(]b,sluice", id="signs in a set of letters"),
        pytest.param(r"[]\.]b\.c", r"[]\.]b,sluice", id="a bracket that comes first"),
        pytest.param(r"[^]]b\.c", "[^]]b,sluice", id="one that is not to be"),
        pytest.param(r".*", "", id="anything"),
        pytest.param(r".+\.orders", r".+,sluice", id="of any database"),
        pytest.param(r"shop.*", "", id="a dot that may be many"),
        pytest.param(r"shop\.a|.*_b", "", id="one way that fits any"),
        pytest.param(r"(shop\.a|crm\.b)", "", id="dots within a group"),
        pytest.param(r"(?:shop\.)?a", "", id="a dot that may be none"),
    ],
)
def test_f52_a_rules_databases_are_listed_where_they_can_be_told(
    pattern: str, databases: str
) -> None:
    found = include_lists(_wanted(pattern), BEAT)

    assert found.get("database.include.list", "") == databases


def test_without_a_rule_there_is_no_list() -> None:
    assert include_lists((), BEAT) == {}


def test_one_rule_of_any_database_opens_all() -> None:
    assert include_lists(_wanted(r"shop\.a", ".*_b"), BEAT) == {}


IGNORED = TableRule(r"shop\.tmp_.+", ignore=True)
KEPT, ALSO = TableRule(r"shop\.tmp_kept", "shop.kept"), TableRule(r"shop\.\w+", "shop.all")


@pytest.mark.parametrize(
    ("rules", "captured"),
    [
        pytest.param((IGNORED, ALSO), "a", id="ignored by the first"),
        pytest.param((KEPT, IGNORED, ALSO), "a tmp_kept", id="spared by the first"),
        pytest.param((ALSO, IGNORED), "a tmp_x tmp_kept", id="too late to be ignored"),
        pytest.param((IGNORED,), "a", id="nothing else is said"),
    ],
)
def test_f52_what_the_first_rule_ignores_is_left_out_and_nothing_else(
    rules: tuple[TableRule, ...], captured: str
) -> None:
    lists = TableFilter.of(include_lists(rules, BEAT))

    shards = [ShardId("shop", name) for name in ("a", "tmp_x", "tmp_kept")]
    assert [one.relation for one in shards if lists.captures(one)] == captured.split()
    assert lists.captures(ShardId.parse(BEAT))


def test_tables_beside_the_named_ones_and_shadows_of_them_are_let_in() -> None:
    lists = TableFilter.of(include_lists(_wanted(r"shop_\d+\.orders_\d+"), BEAT))

    names = ("shop_1.orders_7", "shop_1.users", "shop_1._orders_7_gho", BEAT)
    assert all(lists.captures(ShardId.parse(name)) for name in names)
    assert not lists.captures(ShardId("crm", "users"))


def test_the_heartbeats_database_is_no_pattern() -> None:
    found = include_lists(_wanted(r"shop\.a"), "a+b.write_heartbeat")["database.include.list"]

    assert found.split(",")[1] == re.escape("a+b")


def finding_codes(source: SourceSettings, **changed: str) -> set[str]:
    """What the doctor has to say to the settings that are wanted, some of them changed."""
    config = {
        **required_config(_scope(source), {}),
        **{n.replace("__", "."): v for n, v in changed.items()},
    }
    found = examine_connector(source, CollectorState("running"), config, None).findings
    return {one.code for one in found} - {"flush_unseen"}


def test_its_connector_is_printed_with_confluents_converter_and_its_registry() -> None:
    config = required_config(_scope(AVRO), {})

    for side in ("key", "value"):
        assert config[f"{side}.converter"] == CONFLUENT
        assert config[f"{side}.converter.schema.registry.url"] == "http://registry:8081"
    assert config[NAMES] == config["schema.name.adjustment.mode"] == "avro_unicode"
    assert config["value.converter.ignore.default.for.nullables"] == "true"
    assert not any("schemas.enable" in name for name in config)


@pytest.mark.parametrize(
    ("source", "changed", "told"),
    [
        pytest.param(AVRO, {"value__converter": JSON}, {"value.converter"}, id="JSON for Avro"),
        pytest.param(SOURCE, {"key__converter": CONFLUENT}, {"key.converter"}, id="Avro for JSON"),
        pytest.param(AVRO, {"key__converter": APICURIO}, set(), id="Apicurio's"),
        pytest.param(
            AVRO, {"value__converter": APICURIO}, {"value.converter"}, id="NULLs become defaults"
        ),
        pytest.param(
            AVRO,
            {"value__converter__ignore__default__for__nullables": "false"},
            {"value.converter.ignore.default.for.nullables"},
            id="NULLs become defaults of Confluent's, too",
        ),
        pytest.param(AVRO, {"field__name__adjustment__mode": "avro"}, {NAMES}, id="names get lost"),
        pytest.param(
            AS_SENT, {"field__name__adjustment__mode": "avro_unicode"}, {NAMES}, id="spelled oddly"
        ),
        pytest.param(
            SOURCE, {"field__name__adjustment__mode": "avro"}, {NAMES}, id="JSON needs none"
        ),
    ],
)
def test_another_converter_and_names_that_get_lost_are_refused(
    source: SourceSettings, changed: dict[str, str], told: set[str]
) -> None:
    assert finding_codes(source, **changed) == told
    if told == {NAMES}:
        (demand,) = (one for one in firm_demands(_scope(source), {}) if one.name == NAMES)
        assert not demand.met(changed["field__name__adjustment__mode"])
