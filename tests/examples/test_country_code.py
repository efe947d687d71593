"""The standard of docs/extending.md, taken from the config to a row."""

import json
from pathlib import Path

import pytest

from monitor.config.file import load_config
from pipeline.errors import FormatError
from pipeline.standards.table_standards import Standards
from tests.monitor.config.test_sections import LEAST


def test_a_standard_of_ones_own_is_named_in_the_config_alone(tmp_path: Path) -> None:
    part = '{tables: shop.users, key: [id], examples.country_code: {columns: [phone], code: "+43"}}'
    file = tmp_path / "sluice.yaml"
    file.write_text(f"{LEAST}\nstandards: [{part}]\n", encoding="utf-8")

    own = Standards(load_config(file).settings.standards).of("shop.users")

    assert own is not None
    told = [own.row(json.dumps({"id": 1, "phone": one})) for one in ("0650 123", "+1 650-123")]
    assert [json.loads(one)["phone"] for one in told] == ["+43650123", "+1650123"]
    with pytest.raises(FormatError, match="column phone: no digit"):
        own.row('{"id":1,"phone":"none"}')
