"""One value has one answer, in a row and in a key; what stands for nothing is told, not shown.

Covers pipeline/standards/finder.py and pipeline/standards/standard.py.
"""

import json
import pickle
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import pytest

from pipeline.errors import FormatError
from pipeline.settings import StandardRule
from pipeline.standards.finder import find, known
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mask import LetterMask
from pipeline.standards.standard import Standard, StandardType
from pipeline.standards.table_standards import NONE, Standards, TableStandards

SECRET = "0123456789abcdef"
HASH = KeyedHash(("phone", "id"), SECRET)
MASK = LetterMask(("name",), 1)
RULE = StandardRule("shop.*", ("id", "part"), (("hash", HASH), ("mask", MASK)))
OWN = cast("TableStandards", Standards((RULE,)).of("shop.users"))


@dataclass(frozen=True, slots=True)
class Upper:
    """A toy: letters become capitals; the fields are the settings."""

    columns: tuple[str, ...]
    distinct: ClassVar[bool] = False
    hides: ClassVar[bool] = False
    lake_type: ClassVar[StandardType] = "string"
    fingerprint: ClassVar[str] = "1"

    def value(self, text: str) -> str:
        if text == "?":
            raise FormatError("a question has no capital")
        return text.upper()


STANDARD: type[Standard] = Upper


def test_a_file_here_and_a_module_elsewhere_are_found_by_their_names() -> None:
    assert known() == ("cipher", "hash", "mapping", "mask")
    assert find("hash") is KeyedHash
    found = find("tests.pipeline.standards.test_table_standards")
    assert found.__name__ == "Upper"


def test_fields_without_a_standard_stay_as_they_were_sent() -> None:
    row = OWN.row('{"id": 7,"part":2,"price":1.10, "name":"Zoë","phone":null}')

    assert '"price":1.10' in row
    assert '"phone":null' in row
    told = json.loads(row)
    assert (told["id"], told["part"], told["name"]) == (HASH.value("7"), 2, "Z**")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param('"138"', '"\\u003138"', id="escapes"),
        pytest.param("138", '"138"', id="a_number_and_its_digits"),
        pytest.param("1.50", "1.5", id="one_double"),
    ],
)
def test_one_value_has_one_answer_however_it_was_written(one: str, other: str) -> None:
    assert OWN.row(f'{{"phone":{one}}}') == OWN.row(f'{{"phone":{other}}}')


def test_a_key_gets_the_answers_of_its_row() -> None:
    row = json.loads(OWN.row('{"id":7,"part":2}'))

    assert json.loads(OWN.key_values('["7","2"]')) == [row["id"], "2"]


def test_a_key_of_other_columns_than_the_config_names_is_refused() -> None:
    OWN.require_key('["7","2"]', '{"id":7,"part":2}')
    for texts, row in (
        ('["2","7"]', '{"id":7,"part":2}'),
        ('["7"]', '{"id":7,"part":2}'),
        ('["7","2"]', '{"id":7}'),
        ('["7","2"]', ""),
    ):
        with pytest.raises(FormatError, match=r"not that of \(id, part\)"):
            OWN.require_key(texts, row)


def test_what_has_no_answer_is_told_by_its_column_alone() -> None:
    own = Standards((StandardRule("*", ("id",), (("u", Upper(("a",))),)),)).of("t")
    assert own is not None

    with pytest.raises(FormatError, match="column a: a question has no capital"):
        own.row('{"a":"?"}')
    with pytest.raises(FormatError, match="column a: a list or an object"):
        own.row('{"a":[1]}')
    with pytest.raises(FormatError, match="no JSON object"):
        own.row('{"a":')


def test_the_first_rule_that_names_a_column_counts() -> None:
    other = StandardRule("*", ("id", "part"), (("u", Upper(("phone", "city"))),))
    own = Standards((RULE, other)).of("shop.users")
    assert own is not None

    told = json.loads(own.row('{"phone":"x","city":"x"}'))

    assert told == {"phone": HASH.value("x"), "city": "X"}


def test_a_digest_is_another_where_a_row_would_be_written_otherwise() -> None:
    rules = Standards((RULE,))

    assert rules.digest("shop.users") == Standards((RULE,)).digest("shop.users")
    assert rules.digest("other.t") == rules.digest(None) == NONE
    others = [
        replace(RULE, key=("id",)),
        replace(RULE, standards=RULE.standards[:1]),
        replace(RULE, standards=(("hash", KeyedHash(("phone", "id"), SECRET[::-1])),)),
        replace(RULE, standards=(("hash", HASH), ("mask", LetterMask(("name",), 2)))),
    ]
    told = {Standards((one,)).digest("shop.users") for one in (RULE, *others)}
    assert len(told) == 5


def test_they_travel_to_where_tasks_run() -> None:
    rules = Standards((RULE,))
    rules.of("shop.users")

    there = pickle.loads(pickle.dumps(rules))  # noqa: S301 - our own

    assert there == rules
    assert there.digest("shop.users") == rules.digest("shop.users")


def test_what_is_hidden_is_known() -> None:
    assert OWN.hides
    assert Standards((RULE,)).hides
    assert not Standards((StandardRule("*", ("id",), (("u", Upper(("a",))),)),)).hides
    assert Standards((RULE,)).columns("shop.users") == ("id", "name", "phone")
    assert Standards((RULE,)).columns("other.t") == ()
