"""Each kind is planted at each rate, and what is reported is counted by row."""

from click.testing import CliRunner

from bench.plaintext import HARMLESS, PLANTED, Quality, email, main, measure_quality, note


def test_the_table_has_each_kind_among_notes_and_among_what_looks_alike() -> None:
    told = CliRunner().invoke(main, ["--rows", "300", "--seeds", "1"])

    assert told.exit_code == 0, told.output
    lines = told.output.splitlines()
    assert len([one for one in lines if one.startswith("| ")]) == 1 + 2 * len(PLANTED)
    assert "300 rows of 8 harmless columns" in told.output
    assert "of these columns reported: none" in told.output


def test_planted_rows_are_counted_and_found() -> None:
    found = measure_quality(email, note, 1000, 0.01, seed=3)
    missed = measure_quality(HARMLESS["words"], note, 1000, 0.01, seed=3)

    assert (found, found.text) == (Quality(10, 10, 10), "1.00 / 1.00")
    assert (missed, missed.text) == (Quality(10, 0, 0), "0.00 / -")
