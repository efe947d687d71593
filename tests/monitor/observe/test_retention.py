"""What is left until unread changes are deleted, as the watching round shows and tells it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn, cast

import pytest
from structlog.testing import capture_logs

from alerts.model import AlertKind, IncidentState
from checks.model import Outcome
from monitor.observe.retention import DESCRIBED, RetentionWatch
from monitor.observe.sampler import Sampling
from monitor.observe.system_checks import of_retentions
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.errors import UnreachableError
from pipeline.lags.samples import Sample, SourceSamples
from pipeline.model import Acknowledged, Fence, Head, Missing
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import LogBacklog
from pipeline.transports.topics import TopicFacts
from pipeline.transports.transport import Transport
from tests.monitor.rig import NOON, SOURCE, FakeKafka, Rig
from tests.pipeline.hanging import Hanging

TOPIC, LOG = ("topic", "shop.shop.users"), ("log", "shop")
GIB = 2**30
OLD = Acknowledged(binlog_position(9, 5_000))
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.schema.variables["binlog_expire_logs_seconds"] = str(30 * DAY // timedelta(seconds=1))
    rig.round(2)
    return rig


def find_open_causes(rig: Rig) -> list[tuple[AlertKind, str]]:
    return [
        (one.cause.kind, one.cause.subject)
        for one in rig.store.incidents.open()
        if one.state is IncidentState.FIRING
    ]


def test_a_pipeline_that_keeps_up_has_all_the_time_that_is_kept(rig: Rig) -> None:
    left = rig.current.board.headroom

    assert timedelta() < 7 * DAY - left[TOPIC] < timedelta(minutes=1)
    assert timedelta() < 30 * DAY - left[LOG] < timedelta(minutes=1)
    assert find_open_causes(rig) == []


def test_changes_that_will_be_deleted_before_they_are_read_are_told_in_time(rig: Rig) -> None:
    rig.kafka.end = 10**9  # never landed
    rig.retention.ask()

    rig.second((7 * DAY - 5 * HOUR).total_seconds())
    rig.cycle.watch()

    assert rig.current.board.headroom[TOPIC] < 5 * HOUR
    assert (AlertKind.SERVICE, "retention:shop") in find_open_causes(rig)


def test_what_was_never_told_is_not_shown_and_wakes_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.kafka.silent = rig.schema.silent = True

    rig.round(3)

    assert rig.current.board.headroom == {}
    assert "retention:shop" not in [subject for _, subject in find_open_causes(rig)]
    rig.close()


def test_kafka_that_stops_answering_is_believed_on_what_it_said(rig: Rig) -> None:
    rig.kafka.silent = True

    rig.round()

    assert TOPIC in rig.current.board.headroom


def test_brokers_that_do_not_answer_are_told_with_their_address_until_they_do(rig: Rig) -> None:
    rig.kafka.silent = True
    with capture_logs() as logs:
        rig.retention.ask()
        rig.retention.ask()
    down = rig.retention.trouble()
    rig.kafka.silent = False

    rig.retention.ask()

    told = [(one["log_level"], one["event"], one["why"]) for one in logs]
    assert told == [("warning", "Kafka does not answer", "Kafka at k: timed out")]
    assert down == "Kafka at k: timed out"
    assert rig.retention.trouble() == ""


def test_topics_are_described_far_less_often_than_brokers_are_asked(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, settings = list[datetime](), rig.kafka.settings

    def count(pattern: str) -> Sequence[TopicFacts]:
        described.append(rig.clock())
        return settings(pattern)

    monkeypatch.setattr(rig.kafka, "settings", count)
    rig.second(DESCRIBED.seconds)
    rig.retention.ask()
    for _ in range(8):
        rig.second(30)
        rig.retention.ask()

    first, *_, last = described
    assert len(described) == 3
    assert last - first == 2 * DESCRIBED


def test_brokers_list_their_topics_once_for_all_sources() -> None:
    listed = list[str]()

    class CountingKafka(FakeKafka):
        def topics(self, pattern: str) -> Mapping[str, str]:
            listed.append(pattern)
            return super().topics(pattern)

    names, now, kafka = ("a", "b", "c"), [NOON], CountingKafka()
    retention = RetentionWatch(
        [replace(SOURCE, name=name, prefix=name) for name in names],
        lambda _: cast(Transport, kafka),
        lambda _: Missing("not asked"),
        lambda: now[0],
    )

    for _ in range(4):
        retention.ask()
        now[0] += timedelta(seconds=30)

    assert len(listed) == 4
    assert all(re.fullmatch(listed[0], f"{name}.shop.users") for name in names)
    assert {*retention.retentions(Sampling.nothing())} == {*names}


def test_settings_that_may_not_be_read_are_no_trouble_of_the_brokers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> NoReturn:
        raise UnreachableError("Kafka at k: may not describe settings")

    monkeypatch.setattr(rig.kafka, "settings", refuse)

    rig.retention.ask()

    assert rig.retention.trouble() == ""


def test_f21_of_three_sources_the_topics_of_one_hang_for_ever_and_the_others_are_described(
    hanging: Hanging,
) -> None:
    kafka = FakeKafka()

    @dataclass
    class HangingKafka(FakeKafka):
        """Its listing never ends."""

        def settings(self, pattern: str) -> NoReturn:
            hanging()

    kinds: dict[str, FakeKafka] = {"a": kafka, "b": HangingKafka(), "c": kafka}
    retention = RetentionWatch(
        [replace(SOURCE, name=name) for name in kinds],
        lambda name: cast(Transport, kinds.get(str(name), kafka)),
        lambda _: Missing("not asked"),
        lambda: NOON,
    )
    hanging.watched(retention.asking)

    retention.ask()
    retention.ask()

    told = retention.retentions(Sampling.nothing())
    assert {name: isinstance(found[0].kept, Missing) for name, found in told.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }
    assert hanging.stuck == ["topics of b"]


def test_a_log_that_is_kept_by_size_is_told_before_its_room_is_full(rig: Rig) -> None:
    def told(written: int, held: int, left: int) -> None:
        rig.schema.backlog = LogBacklog("sluice_shop", written * GIB, held * GIB, left * GIB)
        rig.second(660)
        rig.census.ask()
        rig.round()

    told(100, 1, 100)
    told(110, 2, 99)
    rig.round()
    well = find_open_causes(rig)
    told(120, 90, 9)
    rig.round()

    assert well == []
    assert rig.current.board.backlogs["shop"].left == 9 * GIB
    assert rig.current.board.headroom["backlog", "sluice_shop"] < timedelta(minutes=20)
    assert (AlertKind.SERVICE, "retention:shop") in find_open_causes(rig)


def test_f102_a_topic_whose_settings_are_not_told_has_no_known_retention(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = rig.kafka.settings
    untold = TopicFacts("shop.shop.secret", is_described=False)
    monkeypatch.setattr(rig.kafka, "settings", lambda pattern: (*told(pattern), untold))
    rig.second(DESCRIBED.seconds)
    rig.retention.ask()

    (secret,) = [
        one
        for one in rig.retention.retentions(Sampling.nothing())["shop"]
        if one.name == untold.name
    ]
    verdict = of_retentions("shop", [secret], rig.clock())

    assert secret.kept == Missing("settings of shop.shop.secret are unknown; grant DescribeConfigs")
    assert verdict.ruling.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("counted", "left"),
    [
        pytest.param({}, 2 * HOUR, id="all of the new log may be unread"),
        pytest.param({"shop": OLD}, 30 * DAY, id="it was acknowledged in this epoch"),
    ],
)
def test_what_was_acknowledged_of_the_log_before_a_failover_reads_nothing_of_the_new_one(
    rig: Rig, counted: dict[str, Acknowledged], left: timedelta
) -> None:
    began = rig.now - 30 * DAY + 2 * HOUR
    ends = ((began, 100), (rig.now, 200))
    fences = tuple(
        Fence("shop", number, at, Head("B", binlog_position(1, pos)))
        for number, (at, pos) in enumerate(ends, 1)
    )
    epoch = Epoch(2, "B", binlog_position(1, 50))
    checkpoint = Checkpoint("main", 7, acknowledged=counted, epochs={"shop": epoch})
    soon = timedelta(seconds=30)
    source = SourceSamples(Sample(fences, rig.now, soon), Sample(OLD, rig.now, soon))
    look = replace(
        Sampling.nothing(), sources={"shop": source}, checkpoint=Sample(checkpoint, rig.now, soon)
    )

    (log,) = (one for one in rig.retention.retentions(look)["shop"] if one.kind == "log")

    assert log.left(rig.now) == left
