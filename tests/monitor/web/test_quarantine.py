"""What could not be read is listed without a value, shown on demand, corrected and sent again."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from monitor.cli.client import get_mapping, send_request
from monitor.commands.quarantine import COMMAND
from monitor.quarantine import ErrorTable, SourceFormat
from monitor.web.api import build_application
from pipeline.build import message_text, open_table_format
from pipeline.checkpoint import Quarantine
from pipeline.errors import ConfigError, SluiceError
from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.formats.debezium.avro import AvroMessage
from pipeline.formats.format import PlainText
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.model import Account, Op
from pipeline.settings import CollectorSettings, RegistrySettings, SourceSettings
from pipeline.tables.lake import Lake
from tests.monitor.rig import NOON, Rig
from tests.monitor.serving import serving
from tests.pipeline.formats.dbevents_writer import NUMBER, SCHEMA, Event
from tests.pipeline.landing.test_resubmitting import ODD, TOPIC, EventHarness
from tests.pipeline.registry_server import Answers, registry_server

NAME = f"{TOPIC}:0:1@0"
SECRET = "not for everybody"


@pytest.fixture
def registry() -> Iterator[Answers]:
    with registry_server() as answers:
        yield answers


@pytest.fixture
def harness(tmp_path: Path, registry: Answers) -> EventHarness:
    registry.schemas = {NUMBER: json.dumps(SCHEMA)}
    asked = SchemaRegistry("b", RegistrySettings(registry.url))
    made = EventHarness(tmp_path / "lake", registries={"b": asked})
    odd = replace(ODD, row={"id": 1, "note": SECRET})
    made.topics.held[TOPIC] = [(b"", Event("k0", 10, {"id": 0}).value), (b"key", odd.value)]
    made.send(Event("k2", 30, {"id": 2}))
    return made


@pytest.fixture
def server(rig: Rig, harness: EventHarness) -> Iterator[str]:
    lake = Lake(harness.settings, open_table_format(harness.settings))
    formats = {"b": SourceFormat(harness.format("b"), harness.registries["b"], AvroMessage())}
    errors = ErrorTable(lake, formats, lambda: harness.topics)
    with serving(build_application(replace(rig.api_parts(), errors=errors))) as address:
        yield address


def run_quarantine(server: str, *words: str, **more: Any) -> Result:
    given = [*words, "--server", server]
    return CliRunner().invoke(COMMAND, given, catch_exceptions=False, **more)


def resend(server: str, *words: str, **more: Any) -> Result:
    said = ("--reason", "the sender's typing error", "--who", "ann", "--no-wait", "--json")
    return run_quarantine(server, "resend", NAME, *words, *said, **more)


def land_once(rig: Rig, harness: EventHarness) -> None:
    """As the service does."""
    landed = harness.loop.land(frozenset(), rig.store.resubmissions.wished())
    rig.store.resubmissions.record_states(landed.resubmitted, rig.clock())


def test_what_is_open_is_listed_without_a_value(server: str) -> None:
    found = run_quarantine(server, "list").output

    assert f"{NAME}: open, of db.t, " in found
    assert "its sender could not conform it: a letter where a number belongs" in found
    assert SECRET not in found
    assert SECRET not in run_quarantine(server, "list", "--json").output
    assert run_quarantine(server, "list", "no.such").output == "no message is in quarantine\n"


def test_what_it_says_is_shown_to_who_asks_for_it_and_no_more_than_that(server: str) -> None:
    whole, some = (
        run_quarantine(server, "show", NAME).output,
        run_quarantine(server, "show", NAME, "--letters", "20"),
    )

    assert f'"note":"{SECRET}"' in whole
    assert f"schema_id: {NUMBER}" in whole
    assert SECRET not in some.output
    assert "more characters (use --letters, or --out FILE)" in some.output
    assert SECRET not in run_quarantine(server, "show", NAME, "--letters", "0").output


def test_it_is_written_to_a_file_corrected_and_lands(
    server: str, rig: Rig, harness: EventHarness, tmp_path: Path
) -> None:
    file = tmp_path / "odd.json"
    assert (
        f"sluice quarantine resend {NAME} --text {file}"
        in run_quarantine(server, "show", NAME, "--out", str(file)).output
    )
    told = json.loads(file.read_text())
    told["note"], told["hadoop_metadata"]["error_exception"] = "corrected", None
    file.write_text(json.dumps(told))

    asked = json.loads(resend(server, "--text", str(file)).output)
    (wished,) = rig.store.resubmissions.wished()
    land_once(rig, harness)

    assert (asked["change"], asked["table"], asked["ended"]) == (NAME, "db.t", None)
    assert wished.key == "a2V5", "as its topic has it"
    assert harness.loop.checkpoint.quarantine == {}
    (row,) = [one for one in harness.landed(Op.UPDATE) if one["offset"] == 1]
    assert json.loads(row["after"])["note"] == "corrected"
    assert run_quarantine(server, "list").output == "no message is in quarantine\n"
    said = run_quarantine(server, "list", "--all").output
    assert f"{NAME}: corrected, of db.t" in said
    assert (
        "by ann at 2026-03-29T12:00:00+00:00: the sender's typing error; it landed in batch 1"
        in said
    )


def test_of_what_nobody_edits_no_digit_is_lost_on_the_way(
    rig: Rig, harness: EventHarness, tmp_path: Path
) -> None:
    """Maxwell's decimals are numbers of JSON, and a message may have one name twice."""
    sent = b'{"price": 10.10, "sum": 12345678901234567890.123456, "odd": "\\u00e9", "sum": 1}'
    harness.topics.held[TOPIC].append((b"", sent))
    harness.land()
    file = tmp_path / "odd.json"
    lake = Lake(harness.settings, open_table_format(harness.settings))
    formats = {"b": SourceFormat(harness.format("b"), harness.registries["b"])}
    errors = ErrorTable(lake, formats, lambda: harness.topics)
    with serving(build_application(replace(rig.api_parts(), errors=errors))) as address:
        run_quarantine(address, "show", f"{TOPIC}:0:3@1", "--out", str(file))

    told = (
        b'"price": 10.10',
        b'"sum": 12345678901234567890.123456',
        b'"odd": "\\u00e9"',
        b'"sum": 1',
    )
    assert file.read_bytes() == b"{\n " + b",\n ".join(told) + b"\n}"


def test_letters_that_are_not_utf_8_are_never_replaced(server: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes('{"note": "Müller"}'.encode("latin-1"))

    with pytest.raises(ConfigError, match=r"odd.json is not UTF-8 text \(byte 11\)"):
        resend(server, "--text", str(file))


def test_bytes_are_sent_as_they_are(server: str, rig: Rig, harness: EventHarness) -> None:
    value = replace(ODD, error=None).value

    resend(server, "--bytes", "-", "--key", "other", input=value)
    (wished,) = rig.store.resubmissions.wished()
    land_once(rig, harness)

    assert wished.key == "b3RoZXI="
    assert harness.loop.checkpoint.quarantine == {}


def test_what_can_be_read_by_now_is_sent_as_it_came(
    tmp_path: Path, rig: Rig, registry: Answers
) -> None:
    """The config named a column as the key that is none, and does so no more."""
    registry.schemas = {NUMBER: json.dumps(SCHEMA)}
    asked = SchemaRegistry("b", RegistrySettings(registry.url))
    wrong = DbEventsAvro(asked.settings, keys={"db.t": ("nothing",)})
    home = tmp_path / "other"
    harness = EventHarness(home, registries={"b": asked}, other=wrong)
    harness.send(Event("k0", 10, {"id": 0}), Event("k1", 20, {"id": 1}))
    names = harness.loop.checkpoint.quarantine["b/db.t"].ids
    right = EventHarness(home, topics=harness.topics, registries={"b": asked})
    lake = Lake(right.settings, open_table_format(right.settings))
    formats = {"b": SourceFormat(right.format("b"), asked, AvroMessage())}
    errors = ErrorTable(lake, formats, lambda: right.topics)
    with serving(build_application(replace(rig.api_parts(), errors=errors))) as address:
        for name in names:
            words = ("--unchanged", "--reason", "keys are right now", "--no-wait")
            assert run_quarantine(address, "resend", name, *words).exit_code == 0
    land_once(rig, right)
    waits = {one.why for one in rig.store.resubmissions.list()}
    right.send(Event("k2", 30, {"id": 2}))
    land_once(rig, right)

    assert waits == {
        "no landed change of b/db.t describes its columns yet; it lands after the first that does"
    }
    assert len(names) == 2
    assert right.loop.checkpoint.quarantine == {}
    assert [row["order"]["pos"] for row in right.landed(Op.UPDATE)] == [10, 20, 30]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        pytest.param(
            {"note": 7}, "does not fit its format: the value.note is no string", id="a wrong type"
        ),
        pytest.param({"more": 7}, "the value has no field more in its schema", id="a field more"),
        pytest.param({}, "cannot be read either: its sender could not", id="the same again"),
    ],
)
def test_what_would_not_be_read_either_is_refused(
    server: str, rig: Rig, told: dict[str, Any], why: str
) -> None:
    shown = run_quarantine(server, "show", NAME, "--json", "--letters", "9999").output
    text = json.loads(shown.splitlines()[-1])["text"]  # before it the service's log
    sent = json.dumps(json.loads(text) | told)

    with pytest.raises(ConfigError) as refused:
        resend(server, "--text", "-", input=sent)

    assert why in str(refused.value)
    assert rig.store.resubmissions.list() == ()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("show", "nothing"), "nothing that could not be read is named 'nothing'"),
        (("show", f"{TOPIC}:0:1@7"), "nothing that could not be read is named"),
        (("resend", f"{TOPIC}:0:0@0", "--reason", "x", "--bytes", "-"), "nothing that could not"),
        (("resend", NAME, "--reason", "x"), "--text FILE, --bytes FILE, or --unchanged"),
        (("resend", NAME, "--reason", "x", "--text", "-"), "it is no JSON"),
        (("resend", NAME, "--reason", "x", "--text", "-", "--schema", "9"), "knows no schema 9"),
        (("show", NAME, "--out", "/no/such/file"), "cannot write /no/such/file"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    server: str, words: tuple[str, ...], why: str
) -> None:
    with pytest.raises(SluiceError) as refused:
        run_quarantine(server, *words)

    assert why in str(refused.value)


def test_a_second_correction_waits_its_turn_and_a_closed_one_is_corrected_no_more(
    server: str, rig: Rig, harness: EventHarness
) -> None:
    value = replace(ODD, error=None).value
    resend(server, "--bytes", "-", input=value)

    with pytest.raises(ConfigError, match="already has a correction that has not landed"):
        resend(server, "--bytes", "-", input=value)
    land_once(rig, harness)
    with pytest.raises(ConfigError, match="is not open by name"):
        resend(server, "--bytes", "-", input=value)


def test_who_waits_learns_that_it_never_lands(
    server: str, rig: Rig, harness: EventHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.send(Event("k1", 50, {"id": 1}, changed=[(50, ["id"])]))
    monkeypatch.setattr("monitor.commands.quarantine.time.sleep", lambda _: land_once(rig, harness))
    words = ("--bytes", "-", "--reason", "x", "--who", "ann")

    found = run_quarantine(server, "resend", NAME, *words, input=replace(ODD, error=None).value)

    assert found.exit_code == 4
    assert "was refused: the next newer change of its key has only some" in found.output


def test_main_and_error_table_are_counted_for_who_lists(server: str, rig: Rig) -> None:
    rig.store.accounts.add("main", "db.t", 0, Account(read=3, applied=2, quarantined=1), NOON)
    assert (
        "db.t: 3 changes read = 2 in the mirror + 1 here" in run_quarantine(server, "list").output
    )

    rig.store.accounts.add("main", "db.t", 1, Account(read=1, applied=1, corrected=1), NOON)
    assert (
        "db.t: 3 changes read = 3 in the mirror + 0 here" in run_quarantine(server, "list").output
    )


def test_the_topic_has_it_no_more(server: str, harness: EventHarness) -> None:
    harness.topics.held[TOPIC][1] = (b"another", Event("k9", 99, {"id": 9}).value)

    found = run_quarantine(server, "show", NAME).output

    assert "its topic no longer has it" in found
    assert SECRET in found, "the change log has it"


def test_what_could_be_read_and_is_open_all_the_same_is_left_to_a_new_base(
    server: str, harness: EventHarness
) -> None:
    """A row whose transaction may have begun before a snapshot."""
    name = f"{TOPIC}:0:0@0"
    mark = harness.loop.checkpoint
    around = Quarantine("db.t", 0, 1, (name,), ("b/db.t",), epoch=1)
    harness.loop.checkpoint = replace(mark, quarantine={**mark.quarantine, "b/db.t": around})
    harness.send(Event("k9", 90, {"id": 9}))

    with pytest.raises(ConfigError, match="was read, but stays open"):
        run_quarantine(server, "show", name)


def test_what_it_says_does_nothing_to_the_terminal(server: str, harness: EventHarness) -> None:
    odd = replace(ODD, version=60, error="\x1b]0;owned\x07", row={"id": 1, "note": "\x9b2J\u202e"})
    harness.send(odd)
    (name,) = {one for one in harness.loop.checkpoint.quarantine["b/db.t"].ids if one != NAME}

    for words in (("list",), ("show", name)):
        told = run_quarantine(server, *words).output
        assert "\\x1b]0;owned\\x07" in told
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(told)


def test_of_what_nothing_was_kept_it_is_said_so(server: str, harness: EventHarness) -> None:
    harness.topics.held[TOPIC].append((b"key", None))  # type: ignore[arg-type]
    harness.send(Event("k3", 70, {"id": 3}))
    (name,) = {one for one in harness.loop.checkpoint.quarantine["b/db.t"].ids if one != NAME}

    shown = run_quarantine(server, "show", name).output

    assert "bytes not kept, landed" in shown
    assert "it was empty, or a standard keeps it out of the lake" in shown
    assert "its topic no longer has it" not in shown
    with pytest.raises(ConfigError, match="its bytes were not kept"):
        run_quarantine(server, "resend", name, "--unchanged", "--reason", "x", "--no-wait")


def test_one_of_many_corrections_is_asked_for_by_its_id(server: str, rig: Rig) -> None:
    made = json.loads(resend(server, "--bytes", "-", input=replace(ODD, error=None).value).output)

    assert get_mapping(server, f"/v1/resubmissions/{made['id']}", "change") == made
    with pytest.raises(ConfigError, match="unknown resubmission 'none'"):
        send_request("GET", f"{server}/v1/resubmissions/none")


def test_its_verbs_are_told(server: str) -> None:
    context = click.Context(COMMAND)

    assert COMMAND.list_commands(context) == ["list", "resend", "show"]


@pytest.mark.parametrize(
    ("format_", "kind"),
    [("dbevents_avro", AvroMessage), ("debezium_avro", AvroMessage), ("canal_json", PlainText)],
)
def test_each_format_tells_how_a_person_reads_it(format_: str, kind: type) -> None:
    zone = {"zone": "UTC"} if format_ == "canal_json" else {"registry": {"url": "http://r"}}
    collector = CollectorSettings("http://c", "b")
    source = SourceSettings("b", "h", 1, "u", collector, "b", format=format_, format_options=zone)

    assert type(message_text(source)) is kind
