"""What the verb prints is complete, holds no secret, and the doctor has nothing to say to it."""

from dataclasses import replace

import pytest

from demo.debezium import MYSQL_LOSSLESS
from pipeline.collectors.collector import CollectionScope, CollectorState
from pipeline.collectors.connect.collector import examine_connector
from pipeline.collectors.connect.config import firm_demands, holds_secret, required_config
from pipeline.errors import ConfigError
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


def _scope(source: SourceSettings = SOURCE, **more: object) -> CollectionScope:
    return replace(CollectionScope(source, "kafka:9092", KafkaSecurity(), RULES), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(_scope(), id="plain"),
        pytest.param(_scope(rules=()), id="all tables"),
        pytest.param(_scope(replace(SOURCE, kind="mariadb", tls=True)), id="MariaDB"),
        pytest.param(_scope(security=SCRAM), id="a cluster that asks who it is"),
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
