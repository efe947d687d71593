"""A mask leaves no more than it says."""

import pytest

from pipeline.errors import ConfigError
from pipeline.standards.mask import LetterMask


@pytest.mark.parametrize(
    ("first", "last", "told", "wanted"),
    [
        pytest.param(3, 4, "13812345678", "138****5678", id="both_ends_stay"),
        pytest.param(0, 0, "abc", "***", id="by_default_none"),
        pytest.param(3, 4, "1234567", "*******", id="a_short_value_is_all_signs"),
        pytest.param(1, 0, "王小明", "王**", id="letters_not_bytes"),
        pytest.param(0, 2, "", "", id="the_empty_text"),
    ],
)
def test_what_stays(first: int, last: int, told: str, wanted: str) -> None:
    assert LetterMask(("name",), first, last).value(told) == wanted


def test_it_may_give_two_values_one_answer() -> None:
    assert not LetterMask(("name",)).distinct


@pytest.mark.parametrize("odd", [{"first": -1}, {"sign": ""}, {"sign": "xx"}])
def test_settings_that_mask_nothing_are_refused(odd: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        LetterMask(("name",), **odd)  # type: ignore[arg-type]
