"""Each kind of rows is written once, all of them: a figure of fewer rows is no figure."""

import pytest
from click.testing import CliRunner

from bench.wide_rows import main


@pytest.mark.parametrize(("narrow", "wide"), [(50, 3), (3, 5)])
def test_all_rows_are_written_and_told_with_their_cost(narrow: int, wide: int) -> None:
    told = CliRunner().invoke(main, ["--narrow", str(narrow), "--wide", str(wide)])

    assert told.exit_code == 0, told.output
    assert [line.partition(" rows,")[0] for line in told.output.splitlines()] == [
        f"{narrow} narrow and 0 wide",
        f"0 narrow and {wide} wide",
        f"{narrow} narrow and {wide} wide",
    ]
