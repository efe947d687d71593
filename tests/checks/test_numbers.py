"""A setting of a probe that could decide nothing, or fail everything, is told with its place."""

from pathlib import Path

import pytest

from monitor.config.file import parse_config
from pipeline.errors import ConfigError
from tests.monitor.config.test_config import MINIMAL


@pytest.mark.parametrize(
    ("probe", "setting", "value"),
    [
        ("max_id", "tolerance", "-1"),
        ("max_id", "tries", "0"),
        ("max_id", "limit", "-PT1S"),
        ("max_id", "every", "PT0S"),
        ("range_counts", "block_rows", "0"),
        ("range_counts", "rotating", "-1"),
        ("range_counts", "patience", "PT0S"),
        ("volatility", "width", ".nan"),
        ("volatility", "slack", "-1"),
        ("volatility", "weeks", "0"),
        ("expectations", "rows", "0"),
        ("plaintext", "rows", "0"),
        ("schema", "limit", "PT0S"),
        ("completeness", "limit", "PT0S"),
        ("offset_keys", "limit", "PT0S"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(probe: str, setting: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(
            f"{MINIMAL}probes: {{{probe}: {{{setting}: {value}}}}}\n", Path("/etc/sluice.yaml")
        )

    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"/etc/sluice.yaml:11: probes.{probe}.{setting}: ")


def test_none_is_a_tolerance() -> None:
    parse_config(f"{MINIMAL}probes: {{max_id: {{tolerance: 0}}}}\n", Path("/etc/sluice.yaml"))
