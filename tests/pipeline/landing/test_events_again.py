"""DBEvents that come again, or below what has come, by a real landing loop."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.source_holds import RESENT
from pipeline.model import Op, TopicPartition
from pipeline.settings import RegistrySettings
from tests.pipeline.formats.dbevents_writer import NUMBER, SCHEMA, Event
from tests.pipeline.landing.test_resubmitting import SUBJECT, TOPIC, EventHarness, corrected, resend
from tests.pipeline.registry_server import Answers

FIRST, SECOND = Event("k1", 10, {"id": 1}), Event("k2", 20, {"id": 2})


@pytest.fixture
def harness(tmp_path: Path, registry: Answers) -> EventHarness:
    registry.schemas = {NUMBER: json.dumps(SCHEMA)}
    asked = SchemaRegistry("b", RegistrySettings(registry.url))
    made = EventHarness(tmp_path, registries={"b": asked})
    made.send(FIRST, SECOND)
    return made


@pytest.mark.parametrize(
    ("sent", "held"),
    [
        pytest.param([FIRST, SECOND], [], id="what was sent, again"),
        pytest.param([FIRST, Event("k3", 30, {"id": 3})], [], id="and then what is new"),
        pytest.param([replace(FIRST, at=FIRST.at + 1)], ["disorder"], id="with other metadata"),
        pytest.param([Event("k3", 15, {"id": 3})], ["disorder"], id="another event, below"),
        pytest.param(
            [Event("k1", 30, {"id": 1, "note": "x"}, changed=[(5, ["note"]), (30, ["id"])])],
            [],
            id="a column in a version below stands at its event",
        ),
    ],
)
def test_an_event_below_what_came_repeats_it_or_holds_its_source(
    harness: EventHarness, sent: Sequence[Event], held: Sequence[str]
) -> None:
    harness.send(*sent)
    harness.now += RESENT  # an event that stays alone is held then
    landed = harness.land()

    assert [hold.reason for hold in landed.holds] == held
    assert bool(harness.checkpoint.batch) is not bool(held), "nothing of it is merged in silence"


def test_what_is_sent_again_with_metadata_that_may_change_repeats_it(
    tmp_path: Path, registry: Answers
) -> None:
    registry.schemas = {NUMBER: json.dumps(SCHEMA)}
    asked = SchemaRegistry("b", RegistrySettings(registry.url))
    form = DbEventsAvro(asked.settings, changing=("timestamp",))
    harness = EventHarness(tmp_path, registries={"b": asked}, other=form)
    harness.send(FIRST, SECOND)

    assert not harness.send(replace(FIRST, at=FIRST.at + 1)).holds
    assert len({row["after"] for row in harness.landed(Op.UPDATE)}) == 2


def test_a_forced_event_is_sent_again_in_a_new_version(harness: EventHarness) -> None:
    forced = Event("k1", 5, {"id": 1, "note": "older, and right"}, forced=True)
    harness.send(forced)
    (name,) = harness.checkpoint.quarantine[SUBJECT].ids

    (state,) = resend(harness, corrected(replace(forced, forced=False, version=40).value, name))

    assert (state.batch, harness.checkpoint.quarantine) == (harness.checkpoint.batch, {})
    newest = max(harness.landed(Op.UPDATE), key=lambda row: row["order"]["pos"])
    assert (newest["order"]["pos"], json.loads(newest["after"])["note"]) == (40, "older, and right")
    assert harness.checkpoint.offsets[TopicPartition(TOPIC, 0)].offset == 3
