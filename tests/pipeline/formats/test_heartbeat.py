"""A heartbeat's row tells its number, whoever wrote it, and nothing else does."""

import pytest

from pipeline.formats.format import heartbeat_number


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
