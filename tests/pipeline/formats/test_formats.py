"""What formats of other senders promise: their corpora, damaged messages, and heartbeats."""

from typing import Any

import pytest

from pipeline.formats.canal_json import CanalJson
from pipeline.formats.format import LONG_NAME, Format, Schemas, heartbeat_number
from pipeline.formats.maxwell_json import MaxwellJson
from tests.example_count import examples
from tests.pipeline.corpus import Message, messages
from tests.pipeline.formats.batches import Raw, batch, told
from tests.pipeline.formats.canal_writer import CanalTable
from tests.pipeline.formats.changes_told import as_expected, hurt, nothing_is_lost
from tests.pipeline.formats.maxwell_writer import MaxwellTable
from tests.pipeline.formats.test_dbevents_avro import FORMAT as DBEVENTS
from tests.pipeline.formats.test_dbevents_avro import SCHEMAS
from tests.pipeline.formats.test_simple_binlog import FORMAT as SIMPLE

FORMATS: dict[str, tuple[Format, Schemas]] = {
    "canal_json": (CanalJson("UTC"), {}),
    "maxwell_json": (MaxwellJson(), {}),
    "simple_binlog": (SIMPLE, {}),
    "dbevents_avro": (DBEVENTS, SCHEMAS),
}
WITHOUT_POSITIONS = pytest.param(
    MaxwellJson(positions=False), {}, "maxwell_json", id="maxwell_json by offsets"
)
EACH = [pytest.param(form, known, name, id=name) for name, (form, known) in FORMATS.items()]
CORPUS = [
    pytest.param(form, known, one, id=f"{name}: {one.id}")
    for name, (form, known) in FORMATS.items()
    for one in messages(name)
]


@pytest.mark.parametrize(("form", "schemas", "message"), CORPUS)
def test_a_message_says_what_is_written_beside_it(
    form: Format, schemas: Schemas, message: Message
) -> None:
    as_expected(form, message, schemas)


@pytest.mark.parametrize(("form", "schemas", "name"), EACH)
def test_each_message_has_a_row(form: Format, schemas: Schemas, name: str) -> None:
    sent = batch([(one.key, one.value, one.topic) for one in messages(name)])

    assert {*form.decode(sent, schemas)["message"].to_pylist()} == {*range(len(sent))}


def odd_messages(form: Format, schemas: Schemas, name: str, count: int, seed: int) -> int:
    """Decode damaged messages of the corpus; returns how many made no sense."""
    sent: list[Raw] = [(one.key, one.value, one.topic) for one in messages(name)]

    def needed(_: Any) -> Schemas:
        return schemas

    return sum(nothing_is_lost(form, some, needed) for some in hurt(sent, count, seed))


@pytest.mark.parametrize(("form", "schemas", "name"), [*EACH, WITHOUT_POSITIONS])
def test_damaged_messages_are_kept_with_their_bytes_and_a_reason(
    form: Format, schemas: Schemas, name: str
) -> None:
    assert odd_messages(form, schemas, name, examples(300, brief=100), seed=1) > 10


LONG = "x" * 100_000
ROWS: dict[str, Raw] = {
    "canal_json": (
        None,
        CanalTable("shop", LONG, {"id": "bigint"}, ("id",)).insert({"id": "1"}),
        "shop",
    ),
    "maxwell_json": MaxwellTable(LONG, "orders", ("id",)).insert({"id": 1}, "b.000001:9"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_name_that_no_table_can_have_is_an_error(name: str) -> None:
    form, schemas = FORMATS[name]

    (found,) = told(form.decode(batch([ROWS[name]]), schemas))

    assert (found["op"], found["shard"], found["error"]) == ("error", None, LONG_NAME)
    assert found["raw"] == ROWS[name][1]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("form", "schemas", "name"), EACH)
def test_200_000_damaged_messages_are_kept_with_their_bytes(
    form: Format, schemas: Schemas, name: str, seed: int
) -> None:
    odd_messages(form, schemas, name, 20_000, 100 + seed)


@pytest.mark.parametrize(
    ("after", "number"),
    [
        pytest.param('{"source": "shop", "n": 7}', 7, id="a number"),
        pytest.param('{"source": "shop", "n": "7"}', 7, id="its text"),
        pytest.param('{"source": "bank", "n": 7}', None, id="another source's"),
        pytest.param('{"source": "shop", "n": "7x"}', None, id="no number"),
        pytest.param('{"source": "shop", "n": -7}', None, id="one below nothing"),
        pytest.param('{"source": "shop", "n": ' + "9" * 30 + "}", None, id="one that is too long"),
        pytest.param('{"source": "shop"', None, id="no JSON"),
        pytest.param("[" * 100_000, None, id="JSON without end"),
        pytest.param(None, None, id="a row that went"),
    ],
)
def test_its_number_is_read(after: str | None, number: int | None) -> None:
    assert heartbeat_number(after, "shop") == number
