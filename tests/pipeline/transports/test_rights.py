"""What a task is told by a broker that asks who it is, and whether it may."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from monitor.config.file import parse_config
from pipeline.model import TopicPartition
from pipeline.settings import KafkaSecurity
from pipeline.transports.kafka import KafkaTransport, consume_ranges
from pipeline.transports.security import for_librdkafka
from pipeline.transports.transport import OffsetRange, ReadBounds
from tests.pipeline.transports.brokers import PASSWORDS, Node, asking
from tests.pipeline.transports.topics import read, refused, send, some

pytestmark = pytest.mark.stack

HASTY = ReadBounds(patience=timedelta(seconds=3))
ALLOWED, FORBIDDEN = "allowed", "forbidden"
SECURED = """
lake: lake
kafka: {bootstrap}
kafka_security:
  protocol: SASL_PLAINTEXT
  mechanism: PLAIN
  username: reader
  password: {password}
sources:
  - name: shop
    host: 127.0.0.1
    port: 3306
    user: sluice
    prefix: shop
    collector: {{url: http://127.0.0.1:8083, connector: shop}}
"""


@pytest.fixture(scope="module")
def node(server_folder: Path) -> Iterator[Node]:
    made = asking(server_folder / "asking")
    made.start()
    admin = administrator(made)
    names = (ALLOWED, FORBIDDEN)
    wanted = {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
    admin.create_topics(dict.fromkeys(names, wanted))
    admin.wait_for_topics(list(names))
    admin.close()
    allow(made, ResourceType.TOPIC, ALLOWED)
    how: dict[str, Any] = {n.replace(".", "_"): v for n, v in settings(made, "admin").items()}
    for name in names:
        send(made.bootstrap, name, some(0, 5), **how)
    yield made
    made.kill()


def settings(node: Node, user: str, password: str | None = None) -> dict[str, str]:
    return {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or PASSWORDS[user],
    }


def administrator(node: Node) -> KafkaAdminClient:
    return KafkaAdminClient(
        bootstrap_servers=node.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORDS["admin"],
    )


def allow(node: Node, kind: ResourceType, name: str) -> None:
    """Let the reader read and describe it."""
    admin = administrator(node)
    rights = (ACLOperation.READ, ACLOperation.DESCRIBE)
    where, yes = ResourcePattern(kind, name), ACLPermissionType.ALLOW
    admin.create_acls([ACL("User:reader", "*", right, yes, where) for right in rights])
    admin.close()


def offsets(asked: Mapping[str, str], topic: str, bounds: ReadBounds | None = None) -> list[int]:
    reading = consume_ranges(asked, [OffsetRange(topic, 0, 0, 5)], bounds=bounds)
    found: list[int] = read(reading)["offset"].to_pylist()
    return found


def test_rule_3_a_wrong_password_is_an_error_with_its_reason(node: Node) -> None:
    wrong = settings(node, "reader", "wrong")
    refused(lambda: offsets(wrong, ALLOWED, HASTY), r"not read.*[Aa]uthentication fail")


def test_rule_12_a_missing_right_on_a_topic_names_it(node: Node) -> None:
    asked = settings(node, "reader")
    refused(lambda: offsets(asked, FORBIDDEN, HASTY), r"forbidden.*[Aa]uthorization failed")


def test_rules_12_and_13_a_missing_right_on_the_group_is_told_and_spoils_no_good_record(
    node: Node,
) -> None:
    one_too_many = [OffsetRange(ALLOWED, 0, 0, 6)]
    bounds = replace(HASTY, rows=1)
    came: list[list[int]] = []

    def read_on() -> None:
        came.append([])
        for batch in consume_ranges(settings(node, "reader"), one_too_many, bounds=bounds):
            came[-1] += batch["offset"].to_pylist()

    slow = r"the brokers said nothing|^(?!.*log ends at 5)"
    refused(read_on, r"log ends at 5; .*Group authorization failed", meanwhile=slow)
    assert came[-1] == list(range(5))

    allow(node, ResourceType.GROUP, "sluice")
    not_yet = rf"Group authorization failed|{slow}"  # until the broker has heard of the right
    refused(read_on, r"log ends at 5; the brokers said nothing", meanwhile=not_yet)
    assert came[-1] == list(range(5))
    assert all(one == list(range(len(one))) for one in came)


def test_one_section_of_the_config_opens_both_clients(node: Node, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORDS["reader"], encoding="utf-8")
    where = f"{{file: {tmp_path / 'password'}}}"
    text = SECURED.format(bootstrap=node.bootstrap, password=where)
    config = parse_config(text, tmp_path / "sluice.yaml").settings

    with KafkaTransport(config.kafka, security=config.kafka_security) as transport:
        assert ALLOWED in transport.topics(".*")
        assert transport.ends([ALLOWED])[TopicPartition(ALLOWED, 0)].offset == 5
        assert TopicPartition(ALLOWED, 0) in transport.last_records([TopicPartition(ALLOWED, 0)])
    asked = for_librdkafka(config.kafka, config.kafka_security)
    assert offsets(asked, ALLOWED) == [0, 1, 2, 3, 4]


def test_a_topic_that_we_may_not_see_is_left_out_of_a_listing_and_told_when_asked_for(
    node: Node,
) -> None:
    """Whether it is there or not: the brokers do not say."""
    security = KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "reader", PASSWORDS["reader"])

    with KafkaTransport(node.bootstrap, security) as transport:
        listed = transport.topics(".*")
        hidden = transport.hidden([ALLOWED, FORBIDDEN, "nowhere"])

    assert (ALLOWED in listed, FORBIDDEN in listed) == (True, False)
    assert hidden == {FORBIDDEN, "nowhere"}


def test_who_may_see_all_topics_is_hidden_none(node: Node) -> None:
    security = KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "admin", PASSWORDS["admin"])

    with KafkaTransport(node.bootstrap, security) as transport:
        assert transport.hidden([FORBIDDEN, "nowhere"]) == frozenset()
        assert transport.hidden([]) == frozenset()


def test_a_wrong_password_is_thought_of_without_being_shown(node: Node) -> None:
    wrong = KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "reader", "hunter2")

    with KafkaTransport(node.bootstrap, wrong, timedelta(seconds=3)) as transport:
        told = refused(lambda: transport.topics(".*"), r"a rejected login .* kafka_security")

    assert "hunter2" not in told
