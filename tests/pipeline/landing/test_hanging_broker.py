"""A broker that stands still without dying: rounds end in bounded time, by name, and go on."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from demo.ports import free_ports
from demo.processes import wait_until
from pipeline.errors import UnreachableError
from pipeline.landing.task import LandingTask, TaskResult, run_task
from pipeline.transports.kafka import KafkaTransport
from pipeline.transports.transport import ReadBounds
from tests.builders.harness import LandingHarness, nothing
from tests.pipeline.transports.brokers import Node
from tests.pipeline.transports.topics import make, send

pytestmark = pytest.mark.stack

ANSWER = timedelta(seconds=2)  # what one request may take
PATIENT = ReadBounds(patience=timedelta(seconds=2))
LONGEST = 60.0  # seconds that a round may take, however long the broker hangs: 8 on quiet cores
SOON = timedelta(minutes=5)
TOPIC = "a.db.t"


@pytest.fixture(scope="module")
def node(server_folder: Path) -> Iterator[Node]:
    """One broker that is its own controller."""
    port, controller = free_ports(2)
    made = Node(server_folder / "hanging", 1, port, f"127.0.0.1:{controller}", "broker,controller")
    made.start()
    make(made.bootstrap, name=TOPIC)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def harness(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandingHarness]:
    """A landing loop over that broker."""
    made = LandingHarness(tmp_path_factory.mktemp("lake"))
    with KafkaTransport(node.bootstrap, timeout=ANSWER) as transport:
        made.loop.transport = transport
        yield made


def send_more(node: Node, harness: LandingHarness, count: int) -> int:
    """Send this many changes; how many were sent in all."""
    held = harness.topics.held.setdefault(TOPIC, [])
    first = len(held)
    for number in range(first, first + count):
        harness.topics.put("a", 100 + number, "a", key=number)
    send(node.bootstrap, TOPIC, held[first:])
    return len(held)


def before_reading(harness: LandingHarness, event: Callable[[], object]) -> None:
    """Let *event* happen once, after the next batch is planned; its tasks have little patience."""
    due = [event]

    def work(tasks: Sequence[LandingTask]) -> list[TaskResult]:
        (due.pop() if due else nothing)()
        return [run_task(replace(task, bounds=PATIENT)) for task in tasks]

    harness.loop.work = work


def before_commit(harness: LandingHarness, event: Callable[[], object]) -> None:
    """Let it happen after that batch is read."""
    harness.meanwhile, harness.loop.work = event, harness.work


@pytest.mark.parametrize("moment", ["listing", "reading", "judging"])
def test_a_broker_that_hangs_costs_rounds_with_a_name_and_nothing_else(
    moment: str, node: Node, harness: LandingHarness
) -> None:
    process = node.daemon.process
    assert process is not None
    sent = send_more(node, harness, 300)
    told, took = list[str](), list[float]()

    def hang() -> None:
        process.signal(signal.SIGSTOP)

    def landed() -> bool:
        began = time.monotonic()
        try:
            batch = harness.land()
        except UnreachableError as error:
            told.append(str(error))
            if len(told) == 2:
                process.signal(signal.SIGCONT)
        else:
            assert (batch.gaps, batch.holds) == ((), ())
        took.append(time.monotonic() - began)
        return len(harness.landed()) == sent

    if moment == "listing":
        hang()
    else:
        (before_reading if moment == "reading" else before_commit)(harness, hang)
    wait_until(landed, SOON, "end of what was sent")

    assert [offset for _, _, offset in harness.rows("a")] == list(range(sent))
    assert len(told) >= 2
    assert all(TOPIC in one or node.bootstrap in one for one in told), told
    assert max(took) < LONGEST, (told, took)
