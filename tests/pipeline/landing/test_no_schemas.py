"""A registry that does not tell schemas stops its own source, says so, and loses nothing.

Source ``b`` writes Avro, ``a`` JSON.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.clocks import LONGEST_WAIT
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.model import Op, TopicPartition
from pipeline.reports import LandingReport
from pipeline.settings import RegistrySettings
from tests.builders.harness import GIB4, LandingHarness, place
from tests.pipeline.formats.avro_writer import message, record
from tests.pipeline.registry_server import Answers

SOURCE = record("Source", db="string", table="string", file="string", pos="long", row="int")
VALUE = record("Value", id="int", name=["null", "string"])
OTHER = record("Other", id="int", name=["null", "string"])
IMAGES = {"before": ["null", OTHER], "after": ["null", VALUE]}
ENVELOPE = record("Envelope", **IMAGES, source=SOURCE, op="string")
KEY = record("Key", id="int")
SCHEMAS = {1: json.dumps(KEY), 2: json.dumps(ENVELOPE)}


@pytest.fixture
def harness(tmp_path: Path, registry: Answers) -> LandingHarness:
    return asking(registry, tmp_path)


def asking(registry: Answers, home: Path) -> LandingHarness:
    """A harness whose source ``b`` has its schemas from there."""
    settings = RegistrySettings(registry.url, timeout=timedelta(seconds=0.5))
    return LandingHarness(home, registries={"b": SchemaRegistry("b", settings)})


def put(harness: LandingHarness, pos: int, *, schema: int = 2) -> None:
    """An insert of ``b`` in Avro, of row ``pos % 100``."""
    source = place("t", pos)
    row = (1, {"id": pos % 100, "name": (1, "x")})
    envelope = {"before": (0, None), "after": row, "source": source, "op": "c"}
    written = message(schema, ENVELOPE, envelope), message(1, KEY, {"id": pos % 100})
    harness.topics.held.setdefault("b.db.t", []).append(written[::-1])


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        pytest.param({"whole": (503, "")}, "503", id="it is down"),
        pytest.param({"whole": (401, "{}")}, "401; it needs a user", id="it lets nobody in"),
        pytest.param({"whole": (404, "not found")}, "404 and no JSON", id="a wrong address"),
        pytest.param({"hanging": True}, "ReadTimeout", id="it hangs"),
    ],
)
def test_its_source_waits_with_a_reason_and_goes_on_by_itself(
    harness: LandingHarness, registry: Answers, harm: dict[str, Any], why: str
) -> None:
    for name, value in harm.items():
        setattr(registry, name, value)
    harness.topics.put("a", GIB4, "x")
    put(harness, GIB4)

    first = harness.land()

    assert [(hold.subject, hold.reason) for hold in first.holds] == [("source:b", "registry")]
    assert why in first.holds[0].detail
    assert "landing resumes when the registry answers" in first.holds[0].detail
    assert (len(harness.rows("a")), harness.rows("b")) == (1, [])
    assert TopicPartition("b.db.t", 0) not in harness.checkpoint.offsets

    registry.whole, registry.hanging, registry.schemas = None, False, SCHEMAS
    registry.released.set()
    harness.now += LONGEST_WAIT
    harness.topics.put("a", GIB4 + 1, "x")
    later = harness.land()

    assert (later.holds, len(harness.rows("a"))) == ((), 2)
    assert [offset for _, _, offset in harness.rows("b")] == [0]


def test_it_is_not_asked_in_each_round(harness: LandingHarness, registry: Answers) -> None:
    registry.whole = (500, "")
    put(harness, GIB4)

    found = [harness.land() for _ in range(5)]

    assert [hold.reason for one in found for hold in one.holds] == ["registry"] * 5
    assert len(registry.asked) == 1


def test_what_is_known_lands_without_it(harness: LandingHarness, registry: Answers) -> None:
    registry.schemas = SCHEMAS
    put(harness, GIB4)
    harness.land()
    registry.whole = (503, "")
    put(harness, GIB4 + 1)

    assert harness.land().holds == ()
    assert [offset for _, _, offset in harness.rows("b")] == [0, 1]


def patient(harness: LandingHarness) -> LandingReport:
    """Rounds until a number that is not known is nothing to wait for any more."""
    for _ in range(3):
        found = harness.land()
        harness.now += LONGEST_WAIT
    return found


def test_a_number_that_is_not_known_just_now_holds_its_source_until_it_is(
    harness: LandingHarness, registry: Answers
) -> None:
    registry.schemas = {1: SCHEMAS[1]}
    put(harness, GIB4)
    harness.topics.put("a", GIB4, "x")

    first = harness.land()

    assert [(hold.subject, hold.reason) for hold in first.holds] == [("source:b", "registry")]
    assert "it knows no schema 2; nothing is lost" in first.holds[0].detail
    assert (len(harness.rows("a")), harness.rows("b")) == (1, [])

    registry.schemas = SCHEMAS
    harness.now += LONGEST_WAIT
    assert harness.land().holds == ()
    assert [offset for _, _, offset in harness.rows("b")] == [0]
    assert harness.checkpoint.quarantined == {}


def test_a_number_that_stays_unknown_is_quarantined_beside_its_neighbours(
    harness: LandingHarness, registry: Answers
) -> None:
    registry.schemas = SCHEMAS
    put(harness, GIB4)
    put(harness, GIB4 + 1, schema=9)
    put(harness, GIB4 + 2)

    assert patient(harness).holds == ()

    assert [offset for _, _, offset in harness.rows("b")] == [0, 2]
    assert len(harness.landed(Op.ERROR)) == 1
    (told,) = harness.checkpoint.quarantined.values()
    assert told == ("b.db.t:0:1@0",)
    assert harness.checkpoint.offsets[TopicPartition("b.db.t", 0)].offset == 3


@pytest.mark.parametrize("before", [False, True], ids=["from the start", "emptied meanwhile"])
def test_a_registry_that_knows_nothing_holds_its_source_as_long_as_that_is_so(
    harness: LandingHarness, registry: Answers, *, before: bool
) -> None:
    if before:
        registry.schemas = SCHEMAS
        put(harness, GIB4)
        harness.land()
    registry.schemas = {}
    put(harness, GIB4 + 1, schema=9)

    for _ in range(4):
        (hold,) = patient(harness).holds

    assert "nor any other; is it the right one, or was it emptied" in hold.detail
    assert harness.checkpoint.quarantined == {}
    registry.schemas = {9: SCHEMAS[2], **SCHEMAS}
    harness.now += LONGEST_WAIT
    assert harness.land().holds == ()
    assert len(harness.rows("b")) == 1 + before
