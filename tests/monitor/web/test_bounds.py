"""What is blank, endless or too much is refused, whoever asks for it."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from monitor.web.deps import Limit, TableNames, Text


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        pytest.param(Text, "x" * 1000, "x" * 1001, id="a long reason"),
        pytest.param(Text, " x ", "  ", id="a blank one"),
        pytest.param(TableNames, ["shop.a"], [], id="no table"),
        pytest.param(TableNames, ["shop.a"] * 1000, ["shop.a"] * 1001, id="too many tables"),
        pytest.param(TableNames, ["shop.a"], ["shop.a", ""], id="one of no name"),
        pytest.param(Limit, 10_000, 10_001, id="too long a list"),
        pytest.param(Limit, 1, 0, id="an empty list"),
    ],
)
def test_what_goes_too_far_is_refused(kind: Any, allowed: object, refused: object) -> None:
    TypeAdapter(kind).validate_python(allowed)

    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(refused)
