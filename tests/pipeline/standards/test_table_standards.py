"""One value has one answer, in a row and in a key; what stands for nothing is told, not shown."""

import json
import pickle
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import pytest

from pipeline.errors import FormatError
from pipeline.settings import StandardRule
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mask import LetterMask
from pipeline.standards.standard import Standard, StandardType
from pipeline.standards.standard import find_standard as find
from pipeline.standards.standard import known_standards as known
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


STRICT = replace(RULE, clear=("name", "*_at"))


def _of(*rules: StandardRule) -> TableStandards:
    return cast("TableStandards", Standards(rules).of("shop.users"))


def test_letter_case_tells_no_two_columns_apart() -> None:
    told = json.loads(OWN.row('{"ID":7,"Part":2,"PHONE":"x"}'))

    assert told == {"ID": HASH.value("7"), "Part": 2, "PHONE": HASH.value("x")}
    assert OWN.of("Name") is MASK
    assert OWN.name_of("NAME") == "mask"


def test_a_column_that_nobody_spoke_of_does_not_land() -> None:
    """A name it got in a moment, by RENAME, or a column that is new: no one knows what is in it."""
    own = _of(STRICT)
    assert json.loads(own.row('{"id":7,"part":2,"made_at":"x","Part":3}'))["made_at"] == "x"

    for name, told in (("mobile", "column mobile"), ("138 001", "column with an unusual name")):
        with pytest.raises(
            FormatError, match=f"{told} has no entry in `standards`.*; give it"
        ) as refused:
            own.row(json.dumps({"id": 7, "part": 2, name: None}))
        assert "138" not in str(refused.value)


def test_a_column_of_the_key_is_named_and_no_glob() -> None:
    own = _of(replace(STRICT, key=("no[1]",)))

    assert json.loads(own.row('{"NO[1]":7,"made_at":"x"}')) == {"NO[1]": 7, "made_at": "x"}
    with pytest.raises(FormatError, match="column no1"):
        own.row('{"no1":7}')


def test_the_first_part_that_hides_says_what_may_land() -> None:
    shown = StandardRule("*", ("id", "part"), (("u", Upper(("city",))),))
    all_ = replace(RULE, tables="*")

    with pytest.raises(FormatError, match="column mobile"):
        _of(shown, STRICT, all_).row('{"mobile":"x"}')
    assert _of(shown, all_, STRICT).row('{"mobile":"x"}') == '{"mobile":"x"}'
    assert _of(shown).row('{"mobile":"x"}') == '{"mobile":"x"}'


@pytest.mark.parametrize(
    ("images", "refused"),
    [
        pytest.param(['{"id":1,"part":2,"mobile":"x"}'], True, id="another_name"),
        pytest.param(['{"id":1,"part":2,"PHONE":"x","name":"y"}'], False, id="its_own_name"),
        pytest.param(
            ['{"id":1,"price":3}', '{"phone":"x","name":"y"}'], False, id="what_changed_alone"
        ),
        pytest.param(['{"id":1,"part":2}'], True, id="its_standard_is_not_there"),
        pytest.param(['{"part":2}'], False, id="a_key"),
    ],
)
def test_where_all_may_land_a_row_has_what_its_table_should_have(
    images: list[str], refused: bool
) -> None:
    own = _of(replace(RULE, tables="shop.users", key=("part",)))

    if refused:
        with pytest.raises(FormatError, match=r"it has no column (name|phone), whose values may"):
            own.require_columns(images)
    else:
        own.require_columns(images)


def test_of_tables_that_a_pattern_names_a_row_may_lack_columns() -> None:
    OWN.require_columns(['{"id":1,"part":2,"mobile":"x"}'])


@pytest.mark.parametrize(
    ("clear", "refused"),
    [
        pytest.param(("?*",), True, id="another_glob_for_all"),
        pytest.param(("id", "m*"), True, id="one_that_lets_the_new_name_land"),
        pytest.param(("id", "mobile"), False, id="each_by_its_name"),
    ],
)
def test_where_a_glob_lets_columns_land_a_row_has_what_its_table_should_have(
    clear: tuple[str, ...], *, refused: bool
) -> None:
    own = _of(replace(RULE, tables="shop.users", clear=clear))
    good = '{"id":1,"phone":"x","name":"y","memo":"z"}'

    own.require_columns([good])
    if refused:
        with pytest.raises(FormatError, match="it has no column name, whose values may"):
            own.require_columns(['{"id":1,"part":2,"mobile":"x"}'])
    else:
        own.require_columns(['{"id":1,"part":2,"mobile":"x"}'])
