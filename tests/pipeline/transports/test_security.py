import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer

from pipeline.settings import KafkaSecurity
from pipeline.transports.kafka import KafkaTransport, consume_ranges
from pipeline.transports.security import find_security_faults, for_kafka_python, for_librdkafka

LOGIN = KafkaSecurity("SASL_PLAINTEXT", "SCRAM-SHA-512", "sluice", "hunter2")
FULL = KafkaSecurity(
    "SASL_SSL", "SCRAM-SHA-256", "sluice", "hunter2", "ca.pem", "us.pem", "us.key", "hunter3"
)


def test_an_open_cluster_needs_its_address_alone() -> None:
    assert for_librdkafka("a:1,b:2", KafkaSecurity()) == {"bootstrap.servers": "a:1,b:2"}
    assert for_kafka_python("a:1,b:2", KafkaSecurity()) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
    }


def test_both_clients_are_told_the_same_in_their_own_words() -> None:
    assert for_librdkafka("a:1", FULL) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "sluice",
        "sasl.password": "hunter2",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "us.pem",
        "ssl.key.location": "us.key",
        "ssl.key.password": "hunter3",
    }
    assert for_kafka_python("a:1", FULL) == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "sluice",
        "sasl_plain_password": "hunter2",
        "ssl_cafile": "ca.pem",
        "ssl_certfile": "us.pem",
        "ssl_keyfile": "us.key",
        "ssl_password": "hunter3",
    }


def test_each_word_is_one_that_its_client_knows() -> None:
    Consumer({"group.id": "x", "log_level": 0, **for_librdkafka("127.0.0.1:1", LOGIN)}).close()
    theirs = for_kafka_python("127.0.0.1:1", FULL).keys()

    assert theirs <= KafkaConsumer.DEFAULT_CONFIG.keys()
    assert theirs <= KafkaAdminClient.DEFAULT_CONFIG.keys()


@pytest.mark.parametrize(
    ("security", "wrong"),
    [
        pytest.param(KafkaSecurity(), [], id="open"),
        pytest.param(FULL, [], id="all there is"),
        pytest.param(LOGIN, [], id="a login without encryption"),
        pytest.param(KafkaSecurity("SSL"), [], id="encrypted, by authorities that are believed"),
        pytest.param(
            KafkaSecurity("SASL_SSL"), ["mechanism", "username", "password"], id="no login"
        ),
        pytest.param(
            KafkaSecurity("SSL", "PLAIN", "me", "x"),
            ["mechanism", "username", "password"],
            id="a login that nobody asks for",
        ),
        pytest.param(KafkaSecurity(ca="ca.pem"), ["ca"], id="an authority for nothing"),
        pytest.param(KafkaSecurity("SSL", certificate="c"), ["key"], id="a certificate alone"),
        pytest.param(KafkaSecurity("SSL", key="k"), ["key"], id="a key alone"),
        pytest.param(KafkaSecurity("SSL", key_password="x"), ["key_password"], id="of no key"),
    ],
)
def test_what_is_missing_or_does_nothing_is_named(
    security: KafkaSecurity, wrong: list[str]
) -> None:
    assert [name for name, _ in find_security_faults(security)] == wrong


def test_no_secret_shows_where_settings_are_printed() -> None:
    shown = repr(FULL) + repr(KafkaTransport("a:1", security=FULL))
    shown += repr(consume_ranges(for_librdkafka("a:1", FULL), []))
    shown += "".join(
        text for _, text in find_security_faults(KafkaSecurity("SSL", None, "", "hunter2"))
    )

    assert "hunter" not in shown
