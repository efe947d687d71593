"""A broker with a certificate of its own that wants a login by SCRAM: both clients, and landing."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from pipeline.errors import UnreachableError
from pipeline.settings import KafkaSecurity
from pipeline.transports.kafka import KafkaTransport, consume_ranges
from pipeline.transports.security import for_kafka_python, for_librdkafka
from pipeline.transports.transport import OffsetRange, ReadBounds
from tests.builders.harness import LandingHarness
from tests.pipeline.transports.brokers import PASSWORDS, SCRAM, Node, secured
from tests.pipeline.transports.topics import read, refused, send

pytestmark = pytest.mark.stack

TOPIC, SENT = "a.db.t", 10
HASTY = timedelta(seconds=2)


@pytest.fixture(scope="module")
def node(server_folder: Path) -> Iterator[Node]:
    """The broker, with an empty topic."""
    made = secured(server_folder / "secured")
    made.start()
    admin = KafkaAdminClient(**for_kafka_python(made.bootstrap, security_of(made)))
    wanted = {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
    admin.create_topics({TOPIC: wanted})
    admin.wait_for_topics([TOPIC])
    admin.close()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def harness(node: Node, tmp_path_factory: pytest.TempPathFactory) -> LandingHarness:
    """Changes that were sent to that broker, and a loop that is to land them."""
    made = LandingHarness(tmp_path_factory.mktemp("lake"))
    for number in range(SENT):
        made.topics.put("a", 100 + number, "a", key=number)
    login: dict[str, Any] = {**for_librdkafka(node.bootstrap, security_of(node))}
    send(node.bootstrap, TOPIC, made.topics.held[TOPIC], **login)
    return made


def security_of(node: Node) -> KafkaSecurity:
    """What opens it."""
    ca = str(node.home / "ca.pem")
    return KafkaSecurity("SASL_SSL", SCRAM, "reader", PASSWORDS["reader"], ca)


def test_what_lies_behind_tls_and_a_login_lands(node: Node, harness: LandingHarness) -> None:
    with KafkaTransport(node.bootstrap, security_of(node)) as transport:
        harness.loop.transport = transport
        landed = harness.land()

    assert (landed.gaps, landed.holds) == ((), ())
    assert [offset for _, _, offset in harness.rows("a")] == list(range(SENT))


# kafka-python leaves the sockets of failed handshakes to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        pytest.param(
            "127.0.0.1",
            lambda it: replace(it, ca=""),
            id="an authority that the machine does not know",
        ),
        pytest.param("localhost", lambda it: it, id="a name that is not in the certificate"),
        pytest.param("127.0.0.1", lambda it: replace(it, password="wrong"), id="a wrong password"),
    ],
)
def test_neither_client_goes_on_where_one_does_not_know_the_other(
    node: Node,
    harness: LandingHarness,
    name: str,
    changed: Callable[[KafkaSecurity], KafkaSecurity],
) -> None:
    del harness  # there are records to be read
    where, how = f"{name}:{node.port}", changed(security_of(node))

    with KafkaTransport(where, how, HASTY) as lister, pytest.raises(UnreachableError) as listing:
        lister.topics(".*")
    asked = [OffsetRange(TOPIC, 0, 0, SENT)]
    reading = consume_ranges(for_librdkafka(where, how), asked, bounds=ReadBounds(patience=HASTY))
    refused(lambda: read(reading), r"^(?!.*the brokers said nothing)")
    gc.collect()

    assert where in str(listing.value)
