"""No value of a source's reaches the change log where its column has a standard."""

import json

import pyarrow as pa
import pytest

from pipeline.errors import ConfigError, FormatError
from pipeline.formats.format import SENDER_SAYS, Decoded, build_batch
from pipeline.model import Op
from pipeline.settings import StandardRule
from pipeline.sources.row_reader import ROWS
from pipeline.standards.hash import KeyedHash
from pipeline.standards.table_standards import Standards, rows_again, standardise_batch
from tests.pipeline.standards.test_table_standards import Upper

HASH = KeyedHash(("phone", "id"), "0123456789abcdef")
PHONE = KeyedHash(("phone",), "0123456789abcdef")
RULES = Standards((StandardRule("shop.users", ("id",), (("hash", HASH),)),))
OPEN = Standards((StandardRule("shop.users", ("id",), (("u", Upper(("phone",))),)),))
CLEAR = "13812345678"
ROW = json.dumps({"id": 42_424_242, "phone": CLEAR, "city": "Wien"})
KEY = '["42424242"]'


def standardised(
    changes: list[Decoded], tables: list[str | None], own: Standards = RULES
) -> pa.Table:
    batch = build_batch(enumerate(changes))
    return pa.Table.from_batches([standardise_batch(batch, pa.array(tables, pa.string()), own)])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(Decoded(Op.CREATE, "shop.users", KEY, after=ROW), id="create"),
        pytest.param(Decoded(Op.READ, "shop.users", KEY, after=ROW), id="snapshot"),
        pytest.param(Decoded(Op.UPDATE, "shop.users", KEY, before=ROW, after=ROW), id="update"),
        pytest.param(Decoded(Op.DELETE, "shop.users", KEY, before=ROW), id="delete"),
        pytest.param(Decoded(Op.TOMBSTONE, "shop.users", KEY), id="tombstone"),
        pytest.param(
            Decoded(Op.ERROR, "shop.users", KEY, error="odd", raw=ROW.encode()), id="quarantine"
        ),
        pytest.param(
            Decoded(Op.ERROR, "shop.users", error=f"{SENDER_SAYS}no number: {CLEAR}", raw=b"{"),
            id="words_of_the_sender",
        ),
        pytest.param(Decoded(Op.ERROR, error="odd", raw=ROW.encode()), id="nobody_knows_whose"),
        pytest.param(Decoded(Op.CREATE, "shop.users", '["7"]', after=ROW), id="another_key"),
    ],
)
def test_no_clear_value_is_left_anywhere(change: Decoded) -> None:
    table = None if change.shard is None else change.shard

    told = standardised([change], [table]).to_pylist()[0]

    assert CLEAR not in str(told)
    assert "42424242" not in str(told)


def test_images_before_and_after_a_key_and_a_delete_agree() -> None:
    changes = [
        Decoded(Op.CREATE, "shop.users", KEY, after=ROW),
        Decoded(Op.UPDATE, "shop.users", KEY, before=ROW, after=ROW),
        Decoded(Op.DELETE, "shop.users", KEY, before=ROW),
        Decoded(Op.TOMBSTONE, "shop.users", KEY),
    ]

    told = standardised(changes, ["shop.users"] * 4).to_pylist()

    assert {one["key_values"] for one in told} == {json.dumps([HASH.value("42424242")])}
    images = {one[name] for one in told for name in ("before", "after")} - {None}
    assert len(images) == 1
    assert json.loads(images.pop())["city"] == "Wien"


def test_rows_of_other_tables_are_passed_on_as_they_are() -> None:
    changes = [
        Decoded(Op.CREATE, "shop.a", '["1"]', after='{"phone": 1.0}'),
        Decoded(Op.CREATE, "shop.users", KEY, after=ROW),
        Decoded(Op.BEGIN, after='{"event_count": 1}'),
        Decoded(Op.CREATE, "shop.a", '["2"]', after='{"phone": 2.0}'),
    ]
    batch = build_batch(enumerate(changes))

    told = standardised(changes, ["shop.a", "shop.users", None, "shop.a"])

    for place in (0, 2, 3):
        assert told.slice(place, 1).to_pylist() == batch.slice(place, 1).to_pylist()
    plain = standardise_batch(batch, pa.array([None] * 4, pa.string()), Standards())
    assert plain is batch


def test_a_value_without_an_answer_is_one_error_and_spoils_no_other_row() -> None:
    changes = [
        Decoded(Op.CREATE, "shop.users", '["1"]', after='{"id":1,"phone":"?"}'),
        Decoded(Op.CREATE, "shop.users", '["2"]', after='{"id":2,"phone":"x"}'),
    ]

    told = standardised(changes, ["shop.users"] * 2, OPEN).to_pylist()

    assert [one["op"] for one in told] == [Op.ERROR, Op.CREATE]
    assert "no standard value: column phone: a question has no capital" in told[0]["error"]
    assert json.loads(told[1]["after"])["phone"] == "X"


def test_bytes_are_kept_where_nothing_is_to_be_hidden() -> None:
    odd = Decoded(Op.ERROR, "shop.users", error="odd", raw=b"{")

    assert standardised([odd], ["shop.users"], OPEN).to_pylist()[0]["raw"] == b"{"
    assert standardised([odd], ["shop.users"], RULES).to_pylist()[0]["raw"] is None


def test_rows_that_are_read_again_are_written_as_those_that_were_sent() -> None:
    own = RULES.of("shop.users")
    assert own is not None
    read = pa.RecordBatch.from_arrays([pa.array([KEY]), pa.array([ROW])], schema=ROWS)
    sent = standardised(
        [Decoded(Op.READ, "shop.users", KEY, after=ROW)], ["shop.users"]
    ).to_pylist()

    again = rows_again(read, ("id",), own).to_pylist()

    assert again == [{name: sent[0][name] for name in ("key_values", "after")}]


def test_rows_under_another_key_or_without_an_answer_are_not_read_again() -> None:
    own = OPEN.of("shop.users")
    assert own is not None
    odd = pa.array(['{"id":42424242,"phone":"?"}'])
    read = pa.RecordBatch.from_arrays([pa.array([KEY]), odd], schema=ROWS)

    with pytest.raises(ConfigError, match=r"its key is \(uid\), and `standards` says \(id\)"):
        rows_again(read, ("uid",), own)
    with pytest.raises(FormatError, match="column phone"):
        rows_again(read, ("id",), own)


@pytest.mark.parametrize(
    ("left_out", "landed"),
    [
        pytest.param(("bio",), False, id="a_hidden_column_has_another_name"),
        pytest.param(("bio", "Phone"), True, id="a_hidden_column_is_left_out"),
        pytest.param(None, False, id="nobody_says_what_is_left_out"),
    ],
)
def test_a_row_that_leaves_columns_out_lands_if_it_has_the_hidden_ones(
    left_out: tuple[str, ...] | None, *, landed: bool
) -> None:
    own = Standards((StandardRule("shop.users", ("id",), (("hash", PHONE),), clear=("*",)),))
    after = json.dumps({"id": 42_424_242, "mobile": CLEAR})
    partial = Decoded(
        Op.UPDATE, "shop.users", KEY, after=after, changed=("id", "mobile"), left_out=left_out
    )

    (told,) = standardised([partial], ["shop.users"], own).to_pylist()

    assert (told["op"] == Op.UPDATE, CLEAR in str(told)) == (landed, landed)
    if not landed:
        assert "it has no column phone, whose values may be in another column" in told["error"]
        assert (told["changed"], told["left_out"]) == (None, None)
