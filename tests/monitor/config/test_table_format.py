import pytest

from monitor.config.file import parse_config
from monitor.config.sections import plugin_faults
from pipeline.build import open_table_format
from pipeline.errors import ConfigError
from tests.monitor.config.plain import without_place
from tests.monitor.config.test_config import MINIMAL, PLACE


def test_mirrors_are_delta_where_nothing_is_said() -> None:
    found = open_table_format(parse_config(MINIMAL, PLACE, plugin_faults).settings)

    assert type(found).__module__ == "pipeline.tables.delta.table_format"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        pytest.param(
            "table_format: iceberg", "table_format: no table_format 'iceberg' in", id="unknown"
        ),
        pytest.param(
            "table_format_options: {spark: 1}",
            "table_format_options.spark: unknown key; known: none",
            id="no option of Delta's",
        ),
        pytest.param(
            "table_format: examples.parquet_versions\ntable_format_options: {compression: 3}",
            "table_format_options.compression: ",
            id="type",
        ),
    ],
)
def test_a_table_format_that_cannot_be_built_is_refused(more: str, line: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_config(f"{MINIMAL}{more}\n", PLACE, plugin_faults)

    assert without_place(str(told.value)).startswith(line)
