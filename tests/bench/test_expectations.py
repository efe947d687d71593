"""All changed rows are evaluated, and no others: a figure of fewer rows is no figure."""

import pytest
from click.testing import CliRunner

from bench.expectations import main


@pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_all_changed_rows_are_evaluated() -> None:
    told = CliRunner().invoke(main, ["--rows", "40", "--bad", "3"])

    assert told.exit_code == 0, told.output
    assert "read 40 changed rows of 80" in told.output
    assert [line.rpartition(", ")[2] for line in told.output.splitlines()[2:7]] == [
        "0 unexpected",
        "3 unexpected",
        *["0 unexpected"] * 3,
    ]
