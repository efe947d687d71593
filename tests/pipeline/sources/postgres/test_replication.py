import pytest

from pipeline.errors import ConfigError
from pipeline.settings import SourceSettings
from pipeline.sources.postgres.replication import Replication, read_replication
from tests.builders.values import source_settings

NAMES = {
    "the usual ones": (
        source_settings(options={"database": "d"}),
        Replication("d", "sluice", "sluice_shop"),
    ),
    "a slot's name has small letters only": (
        source_settings(name="Shop-EU.1", options={"database": "d"}),
        Replication("d", "sluice", "sluice_shop_eu_1"),
    ),
    "a person's own": (
        source_settings(options={"database": "D d", "publication": "P", "slot": "mine"}),
        Replication("D d", "P", "mine"),
    ),
}


@pytest.mark.parametrize(("given", "names"), NAMES.values(), ids=NAMES)
def test_names_are_a_persons_or_the_usual_ones(given: SourceSettings, names: Replication) -> None:
    assert read_replication(given) == names


def test_no_usual_name_is_too_long_to_be_one() -> None:
    assert (
        len(read_replication(source_settings(name="s" * 80, options={"database": "d"})).slot) == 63
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({}, r"options\.database: is required", id="no database"),
        pytest.param(
            {"database": "d", "slot": "Mine"}, "'Mine' is not a valid slot name", id="capitals"
        ),
        pytest.param(
            {"database": "d", "slot": "s" * 64}, "is not a valid slot name", id="too long"
        ),
    ],
)
def test_what_cannot_be_a_name_is_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_replication(source_settings(options=options))
