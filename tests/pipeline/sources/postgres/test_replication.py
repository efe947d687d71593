from typing import Any

import pytest

from pipeline.errors import ConfigError
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.postgres.replication import Replication, read_replication


def settings(name: str = "shop", **options: Any) -> SourceSettings:
    collector = CollectorSettings("http://127.0.0.1:1", "shop")
    return SourceSettings(name, "db", 5432, "sluice", collector, "shop", options=options)


NAMES = {
    "the usual ones": (settings(database="d"), Replication("d", "sluice", "sluice_shop")),
    "a slot's name has small letters only": (
        settings("Shop-EU.1", database="d"),
        Replication("d", "sluice", "sluice_shop_eu_1"),
    ),
    "a person's own": (
        settings(database="D d", publication="P", slot="mine"),
        Replication("D d", "P", "mine"),
    ),
}


@pytest.mark.parametrize(("given", "names"), NAMES.values(), ids=NAMES)
def test_names_are_a_persons_or_the_usual_ones(given: SourceSettings, names: Replication) -> None:
    assert read_replication(given) == names


def test_no_usual_name_is_too_long_to_be_one() -> None:
    assert len(read_replication(settings("s" * 80, database="d")).slot) == 63


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
        read_replication(settings(**options))
