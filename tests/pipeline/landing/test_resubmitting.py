"""A message that was quarantined and is corrected lands in its old place, once, or says why not."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoint import MAX_NAMED_CHANGES, Checkpoint, Existence, Quarantine
from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.formats.format import Format
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.quarantine import Healed, Resubmitted, Resubmitting, explain_refusal
from pipeline.model import Op, Order, Shard, TopicPartition
from pipeline.reports import LandingReport
from pipeline.resubmissions import Resubmission, ResubmissionState, parse_change_name
from pipeline.settings import RegistrySettings, Router, TableRule
from tests.builders.harness import GIB4, LandingHarness, place
from tests.pipeline.formats.dbevents_writer import NUMBER, SCHEMA, Event
from tests.pipeline.registry_server import Answers

TOPIC, SUBJECT = "b.db.t", "b/db.t"
ODD = Event("k1", 20, {"id": 1, "note": "odd"}, error="a letter where a number belongs")


@dataclass(eq=False)
class EventHarness(LandingHarness):
    """Its source ``b`` sends DBEvents, all of one table, read as *other* says."""

    other: DbEventsAvro | None = None

    def format(self, name: str) -> Format:
        its = self.registries.get(name)
        own = None if its is None else self.other or DbEventsAvro(its.settings)
        return super().format(name) if own is None else own

    def send(self, *events: Event) -> LandingReport:
        held = self.topics.held.setdefault(TOPIC, [])
        held.extend((b"", one.value) for one in events)
        return self.land()


@pytest.fixture
def harness(tmp_path: Path, registry: Answers) -> EventHarness:
    """One event that its sender could not conform, between two others of other keys."""
    registry.schemas = {NUMBER: json.dumps(SCHEMA)}
    asked = SchemaRegistry("b", RegistrySettings(registry.url))
    made = EventHarness(tmp_path, registries={"b": asked})
    made.send(Event("k0", 10, {"id": 0}), ODD, Event("k2", 30, {"id": 2}))
    return made


def corrected(value: bytes, change: str = f"{TOPIC}:0:1@0", id_: str = "r1") -> Resubmission:
    return Resubmission(id_, change, base64.b64encode(value).decode())


def resend(harness: LandingHarness, *asked: Resubmission) -> tuple[ResubmissionState, ...]:
    return harness.loop.land(frozenset(), asked).resubmitted


def fixed(**other: Any) -> Event:
    return replace(ODD, error=None, row={"id": 1, "note": "good"}, **other)


def test_it_lands_in_its_own_place_and_what_it_blocked_is_closed(harness: EventHarness) -> None:
    before = harness.checkpoint
    assert before.quarantine[SUBJECT].ids == (f"{TOPIC}:0:1@0",)

    (state,) = resend(harness, corrected(fixed().value))

    checkpoint = harness.checkpoint
    assert (state.batch, state.refused, checkpoint.quarantine) == (checkpoint.batch, False, {})
    assert (checkpoint.batch, checkpoint.belated, checkpoint.high) == (1, {"db.t": 1}, before.high)
    (row,) = [row for row in harness.landed(Op.UPDATE) if row["batch"] == 1]
    assert (row["order"]["pos"], row["offset"]) == (20, 1)
    assert json.loads(row["after"])["note"] == "good"


def test_the_original_bytes_stay_and_the_row_says_what_it_corrects(harness: EventHarness) -> None:
    resend(harness, corrected(fixed().value))

    (error,) = harness.landed(Op.ERROR, more=("raw",))
    notes = {row["offset"]: row["error"] for row in harness.landed(Op.UPDATE, more=("error",))}
    assert error["raw"] == ODD.value
    assert notes == {0: None, 1: f"{TOPIC}:0:1@0", 2: None}


def test_it_lands_once_though_it_is_asked_for_again(harness: EventHarness) -> None:
    asked = corrected(fixed().value)
    resend(harness, asked)
    anew = EventHarness(harness.home, topics=harness.topics, registries=harness.registries)

    again, restarted = resend(harness, asked), resend(anew, asked)

    assert again == restarted == (ResubmissionState("r1", 1),)
    assert harness.checkpoint.batch == 1
    harness.send(Event("k3", 40, {"id": 3}))
    assert harness.checkpoint.resubmitted == {}, "nobody asks any more"


def test_f113_it_stays_of_the_batch_that_landed_it_while_others_land(harness: EventHarness) -> None:
    asked = corrected(fixed().value)
    resend(harness, asked)
    harness.topics.held[TOPIC].append((b"", Event("k3", 40, {"id": 3}).value))

    (state,) = resend(harness, asked)

    assert (harness.checkpoint.batch, state.batch) == (2, 1)
    assert harness.checkpoint.resubmitted == {"r1": 1}


def test_a_crash_before_the_commit_loses_nothing(harness: EventHarness) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    asked = corrected(fixed().value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.loop.log, "put", fail)
        with pytest.raises(OSError, match="disk"):
            resend(harness, asked)
    anew = EventHarness(harness.home, topics=harness.topics, registries=harness.registries)

    assert resend(anew, asked) == (ResubmissionState("r1", 1),)
    assert len(anew.landed(Op.UPDATE)) == 3


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(ODD.value, "it cannot be read either: its sender", id="as it was"),
        pytest.param(b"{}", "it cannot be read either: it does not begin", id="of another kind"),
        pytest.param(
            replace(fixed(), version=10, key="k0").value,
            "another change of its key has the same version",
            id="in a version that is taken",
        ),
    ],
)
def test_what_is_odd_still_is_refused_and_the_table_stays_blocked(
    harness: EventHarness, value: bytes, why: str
) -> None:
    (state,) = resend(harness, corrected(value))

    assert (state.refused, state.batch) == (True, None)
    assert state.why.startswith(why)
    assert harness.checkpoint.quarantine[SUBJECT].count == 1
    assert harness.checkpoint.batch == 0


@pytest.mark.parametrize(
    ("newer", "refused"),
    [
        pytest.param(Event("k1", 50, {"id": 1, "note": "new"}), False, id="a whole row"),
        pytest.param(Event("k1", 50, {"id": 1}, deleted=True), False, id="a delete"),
        pytest.param(Event("k1", 50, {"id": 1}, changed=[(50, ["id"])]), True, id="some columns"),
        pytest.param(
            Event("k9", 50, {"id": 1}, changed=[(50, ["id"])]), False, id="columns of another key"
        ),
    ],
)
def test_a_newer_change_that_took_columns_from_before_keeps_it_out(
    harness: EventHarness, newer: Event, *, refused: bool
) -> None:
    harness.send(newer)

    (state,) = resend(harness, corrected(fixed().value))

    assert state.refused == refused
    assert ("has only some columns" in state.why) == refused
    assert bool(harness.checkpoint.quarantine) == refused


def test_two_that_would_stand_in_one_place_do_not_land_together(harness: EventHarness) -> None:
    """The wrong file for the second: its own change would be passed over without a word."""
    harness.send(replace(ODD, key="k5", version=50))
    (first, second) = harness.checkpoint.quarantine[SUBJECT].ids
    same = fixed().value

    one, other = resend(harness, corrected(same, first, "r1"), corrected(same, second, "r2"))

    assert (one.refused, one.batch) == (False, harness.checkpoint.batch)
    assert (other.refused, other.batch) == (True, None)
    assert other.why.startswith("another change of its key has the same version")
    assert harness.checkpoint.quarantine[SUBJECT].ids == (second,)


def test_a_statement_since_leaves_it_to_a_new_base(harness: EventHarness) -> None:
    there = Existence(Order(1, 0, 25), there=True)
    harness.loop.checkpoint = replace(harness.checkpoint, existing={Shard.parse(SUBJECT): there})

    (state,) = resend(harness, corrected(fixed().value))

    assert "a statement about db.t came since" in state.why


def test_a_registry_that_is_silent_is_waited_for(harness: EventHarness, registry: Answers) -> None:
    registry.whole = (503, "")
    unread = replace(fixed()).value.replace(NUMBER.to_bytes(4, "big"), (78).to_bytes(4, "big"), 1)

    (state,) = resend(harness, corrected(unread))
    registry.whole = None

    assert (state.refused, "503" in state.why) == (False, True)
    assert resend(harness, corrected(fixed().value))[0].batch == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(f"{TOPIC}:0:0@0", id="that was never quarantined"),
        pytest.param("a.db.t:0:1@0", id="of another topic"),
        pytest.param("nothing", id="that is none"),
    ],
)
def test_what_is_not_open_is_refused(harness: EventHarness, change: str) -> None:
    (state,) = resend(harness, corrected(fixed().value, change))

    assert (state.refused, "was closed by a new base" in state.why) == (True, True)


def test_a_topic_that_was_made_anew_keeps_its_place_to_itself(harness: EventHarness) -> None:
    ((name, one),) = harness.checkpoint.quarantine.items()
    harness.loop.checkpoint = replace(harness.checkpoint, quarantine={name: replace(one, epoch=0)})

    (state,) = resend(harness, corrected(fixed().value))

    assert "the log of its position is unknown" in state.why


def test_it_is_of_the_table_of_the_one_that_it_corrects(tmp_path: Path) -> None:
    """Debezium's messages name their table; what cannot be read at all is of its topic."""
    harness = LandingHarness(tmp_path)
    harness.topics.put("a", GIB4, "x")
    harness.topics.held["a.db.t"].append((b'{"id":"y"}', b'{"op":"?"'))
    harness.topics.put("a", GIB4 + 9, "z")
    harness.land()
    assert list(harness.checkpoint.quarantine) == ["topic:a.db.t"]
    value = {"before": None, "after": {"id": "y"}, "source": place("t", GIB4 + 5), "op": "c"}
    asked = corrected(json.dumps(value).encode(), "a.db.t:0:1@0")
    asked = replace(asked, key=base64.b64encode(b'{"id":"y"}').decode())

    (state,) = resend(harness, asked)

    assert (state.batch, harness.checkpoint.quarantine) == (1, {})
    assert harness.rows("a") == [(1, GIB4, 0), (1, GIB4 + 5, 1), (1, GIB4 + 9, 2)]
    assert {row["error"] for row in harness.landed(more=("error",))} == {None}, "no account had it"


def test_those_beyond_what_is_told_one_by_one_are_sent_again_too(harness: EventHarness) -> None:
    odd = [replace(ODD, key=f"o{n}", version=100 + n) for n in range(30)]
    harness.send(*odd)
    names = harness.checkpoint.quarantine[SUBJECT].ids
    assert len(names) == 31
    asked = [
        corrected(replace(one, error=None).value, name, name)
        for one, name in zip(odd[MAX_NAMED_CHANGES:], names[1 + MAX_NAMED_CHANGES :], strict=True)
    ]

    states = resend(harness, *asked)

    assert {one.batch for one in states} == {2}
    assert harness.checkpoint.quarantine[SUBJECT].ids == names[: 1 + MAX_NAMED_CHANGES]
    assert harness.checkpoint.quarantine[SUBJECT].count == 1 + MAX_NAMED_CHANGES


def test_f113_what_is_corrected_is_not_read_again_as_it_was_in_the_same_batch() -> None:
    open_ = {
        name: Quarantine(name, 1, 2, (f"{name}:0:1@1", f"{name}:0:2@1")) for name in ("t", "u")
    }
    checkpoint = Checkpoint("main", 1, quarantine=open_)

    left = Resubmitted(Healed(frozenset({"t:0:2@1"}))).left(checkpoint)

    assert left == replace(checkpoint, quarantine={"u": open_["u"]})


def test_f113_one_whose_columns_nobody_told_waits_for_a_change_that_tells_them(
    harness: EventHarness,
) -> None:
    told = harness.checkpoint
    harness.loop.checkpoint = replace(told, schemas={})
    (waiting,) = resend(harness, corrected(fixed().value))
    harness.loop.checkpoint = told
    (state,) = resend(harness, corrected(fixed().value))

    assert waiting.why.startswith(f"no landed change of {SUBJECT} describes its columns yet")
    assert (waiting.refused, waiting.batch, state.batch) == (False, None, 1)


def test_f113_one_that_tells_other_columns_than_those_in_force_is_refused(
    harness: EventHarness, registry: Answers
) -> None:
    other = json.dumps(SCHEMA).replace('"note"', '"remark"')
    registry.schemas[78] = other
    value = fixed().value.replace(NUMBER.to_bytes(4, "big"), (78).to_bytes(4, "big"), 1)

    (state,) = resend(harness, corrected(value))

    assert state.refused
    assert state.why == "its columns are not the known columns of db.t"


def test_f113_a_statement_is_refused_and_waits_for_nothing(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.alter("a", GIB4, "name")
    statement = harness.topics.held["a"][0][1]
    harness.topics.held["a.db.t"] = [(b"{}", b"?")]
    harness.land()

    (state,) = resend(harness, corrected(statement, "a.db.t:0:0@0"))

    assert state.refused
    assert state.why.startswith("it is a statement, which is valid only at its position")


def test_f113_a_change_of_the_same_key_in_another_source_is_no_newer_one(
    tmp_path: Path, registry: Answers
) -> None:
    registry.schemas = {NUMBER: json.dumps(SCHEMA)}
    asked = SchemaRegistry("b", RegistrySettings(registry.url))
    harness = EventHarness(tmp_path, registries={"a": asked, "b": asked})
    harness.loop.router = Router((TableRule(r"db\.t", "db.t", unique_across_shards=True),))
    part = Event("k1", 50, {"id": 1}, changed=[(50, ["id"])])
    harness.topics.held["a.db.t"] = [(b"", part.value)]
    harness.send(Event("k0", 10, {"id": 0}), ODD)

    (state,) = resend(harness, corrected(fixed().value))

    keys = {(row["source"], row["key"]) for row in harness.landed(Op.UPDATE)}
    assert keys == {("a", '["k1"]'), ("b", '["k0"]'), ("b", '["k1"]')}
    assert (state.why, state.batch) == ("", 1)


@pytest.mark.parametrize(
    ("subject", "change", "why"),
    [
        pytest.param(SUBJECT, f"{TOPIC}:0:1@0", "", id="its shard is known"),
        pytest.param(
            f"topic:{TOPIC}",
            f"{TOPIC}:0:1@0",
            f"no source of the config has topic '{TOPIC}' now",
            id="only its topic is",
        ),
        pytest.param(
            SUBJECT,
            f"{TOPIC}:and 7 more@0",
            f"{TOPIC}:and 7 more@0 is no name of a message",
            id="of several under one name",
        ),
        pytest.param(
            f"topic:{TOPIC}",
            f"{TOPIC}:and 7 more@0",
            "no source of the config has topic '' now",
            id="of several of an unknown shard",
        ),
    ],
)
def test_f113_a_topic_that_is_gone_is_needed_only_where_its_shard_is_not_known(
    harness: EventHarness, subject: str, change: str, why: str
) -> None:
    loop = harness.loop
    listing = replace(loop.upstream.list(loop.checkpoint.offsets), source_of={})
    open_ = replace(loop.checkpoint.quarantine[SUBJECT], ids=(change,))
    checkpoint = replace(loop.checkpoint, quarantine={subject: open_})
    resubmitting = Resubmitting(loop.feeds, loop.router, harness.log())

    found = resubmitting.found(checkpoint, listing, [corrected(fixed().value, change)], harness.now)

    assert [(one.why, one.refused) for one in found.others] == ([(why, True)] if why else [])
    assert bool(found.landed) is not bool(why)


def test_f113_of_several_that_are_quarantined_only_the_corrected_were_counted(
    harness: EventHarness,
) -> None:
    harness.send(replace(ODD, key="k5", version=50))
    loop, (first, second) = harness.loop, harness.checkpoint.quarantine[SUBJECT].ids
    listing = loop.upstream.list(loop.checkpoint.offsets)
    resubmitting = Resubmitting(loop.feeds, loop.router, harness.log())

    found = resubmitting.found(loop.checkpoint, listing, [corrected(fixed().value)], harness.now)

    assert (found.healed.counted_before, second in found.healed.ids) == ((first,), False)


def test_f113_one_whose_batch_was_not_committed_is_asked_for_again() -> None:
    waits = ResubmissionState("r2", why="no answer")
    found = Resubmitted(landed={"r1": None, "r3": 4}, others=(waits,))

    states = found.states(Checkpoint("main", 7, resubmitted={"r3": 4, "r9": 5}))

    assert states == (ResubmissionState("r3", 4), waits)


def test_f113_it_is_held_against_the_change_log_as_it_is_now(harness: EventHarness) -> None:
    """Also by who has not read that yet: after a restart, or while others took files away."""
    loop = harness.loop
    listing = loop.upstream.list(loop.checkpoint.offsets)
    resubmitting = Resubmitting(loop.feeds, loop.router, harness.log())

    found = resubmitting.found(loop.checkpoint, listing, [corrected(fixed().value)], harness.now)

    assert (found.landed, found.others) == ({"r1": None}, ())
    assert found.healed.ids == {f"{TOPIC}:0:1@0"}


FINE = {
    "op": "u", "source": "b", "shard": "db.t", "table": "db.t", "key": "k",
    "order": {"epoch": 1, "log": 0, "pos": 5, "row": 0},
    "changed": None, "snapshot": None, "schema_id": None, "error": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param({}, "", id="a live change of a row"),
        pytest.param({"op": "c"}, "", id="a row that came"),
        pytest.param({"op": "d"}, "", id="a row that went"),
        pytest.param({"op": "r"}, "no live change of a row, but r", id="a row of a base"),
        pytest.param(
            {"shard": "db.o"}, "the correction is of b/db.o, but the", id="another table's"
        ),
        pytest.param(
            {"table": None}, "b/db.t belongs to no table", id="of a table that is ignored"
        ),
        pytest.param({"snapshot": "true"}, "no live change of a row", id="a snapshot's"),
        pytest.param({"op": "truncate"}, "no live change of a row, but truncate", id="no row"),
        pytest.param({"op": "heartbeat"}, "no live change of a row", id="a heartbeat"),
        pytest.param(
            {"op": "ddl", "schema_id": 3},
            "its columns are not the known",
            id="columns that are told",
        ),
        pytest.param({"op": "ddl"}, "it is a statement", id="a statement"),
        pytest.param({"key": None}, "the correction has no key", id="without a key"),
        pytest.param({"order": None}, "the correction has no position", id="without a place"),
    ],
)
def test_what_order_does_not_place_is_refused(other: dict[str, Any], why: str) -> None:
    found = explain_refusal([FINE | other], SUBJECT, Checkpoint("main", 0), lambda _: [])

    assert bool(found) == bool(why)
    assert why in found


def test_f113_of_several_rows_each_must_be_in_its_place() -> None:
    odd = FINE | {"key": None}

    found = [
        explain_refusal(rows, SUBJECT, Checkpoint("main", 0), lambda _: [])
        for rows in ([FINE, FINE], [FINE, odd], [odd, FINE])
    ]

    assert found == ["", "the correction has no key", "the correction has no key"]


@pytest.mark.parametrize(
    ("shard", "table"), [("b/db.t", "db.t"), ("b/db.o", "db.o")], ids=["its own", "whatever"]
)
def test_f113_what_was_of_an_unknown_shard_may_be_of_any(shard: str, table: str) -> None:
    row = FINE | {"shard": shard.removeprefix("b/"), "table": table}

    assert explain_refusal([row], "topic:b.db.t", Checkpoint("main", 0), lambda _: []) == ""


def landed_change(pos: int | None, op: str = "u", *, part: bool = False) -> dict[str, Any]:
    """What the change log has of the key of ``FINE``, which is at 5."""
    order = None if pos is None else {"epoch": 1, "log": 0, "pos": pos, "row": 0}
    return {"op": op, "order": order, "changed": ["id"] if part else None}


@pytest.mark.parametrize(
    ("newer", "why"),
    [
        pytest.param(
            [landed_change(5)], "another change of its key has the same", id="in its place"
        ),
        pytest.param(
            [landed_change(9), landed_change(5)], "another change of its key", id="and after it"
        ),
        pytest.param([landed_change(None)], "", id="one without a place"),
        pytest.param(
            [landed_change(None), landed_change(9, part=True)], "has only some columns", id="a part"
        ),
        pytest.param(
            [landed_change(9, part=True), landed_change(7)], "", id="a whole row before a part"
        ),
        pytest.param(
            [landed_change(9), landed_change(7, part=True)],
            "has only some columns",
            id="a part first",
        ),
        pytest.param([landed_change(9, "d", part=True)], "", id="a delete, whatever it tells"),
        pytest.param([landed_change(3, part=True)], "", id="a part from before it"),
    ],
)
def test_f113_the_next_newer_change_decides_whether_it_is_overtaken(
    newer: Sequence[dict[str, Any]], why: str
) -> None:
    found = explain_refusal([FINE], SUBJECT, Checkpoint("main", 0), lambda _: newer)

    assert why in found
    assert bool(found) == bool(why)


def test_a_message_that_says_nothing_is_refused() -> None:
    assert "it contains no change" in explain_refusal(
        [], SUBJECT, Checkpoint("main", 0), lambda _: []
    )


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("a.b.c:3:17@5", (TopicPartition("a.b.c", 3), 17)),
        ("a:b:3:17@5", (TopicPartition("a:b", 3), 17)),
        ("a.b.c:and 7 more@5", None),
        ("a.b.c:3:17", None),
        ("17@5", None),
        ("", None),
    ],
)
def test_a_name_tells_its_place(change: str, place: Sequence[Any] | None) -> None:
    assert parse_change_name(change) == place
