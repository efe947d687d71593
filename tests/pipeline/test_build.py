"""What a config asks of a plug-in is refused by name, before anything runs."""

from dataclasses import dataclass, replace

import pytest

from pipeline.build import open_format
from pipeline.errors import ConfigError
from pipeline.settings import CollectorSettings, SourceSettings


@dataclass(frozen=True, slots=True)
class Greedy:
    """A format that asks for what no message has, unless its settings say otherwise."""

    columns: tuple[str, ...] = ("headers", "colour")


FORMAT = Greedy
SOURCE = SourceSettings(
    "shop", "h", 1, "u", collector=CollectorSettings("", ""), prefix="shop", format=__name__
)


def test_a_format_that_asks_for_a_column_no_message_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shop: .* \['colour'\] .* known: headers, timestamp"):
        open_format(SOURCE)


def test_a_format_is_made_with_its_options() -> None:
    made = open_format(replace(SOURCE, format_options={"columns": ("headers",)}))

    assert made.columns == ("headers",)


def test_an_option_the_format_does_not_know_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"shop: format_options\.size: unknown key; known: columns"
    ):
        open_format(replace(SOURCE, format_options={"size": 3}))
