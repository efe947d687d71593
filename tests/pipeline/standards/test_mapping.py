"""A mapping gives each value one answer, and grows without a restart."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from pipeline.errors import ConfigError, FormatError
from pipeline.standards import mapping
from pipeline.standards.mapping import IdMapping

table = mapping.read_table


def _file(folder: Path, *rows: str, heading: str = "source,standard") -> str:
    file = folder / "ids.csv"
    file.write_text("\n".join((heading, *rows, "")), encoding="utf-8")
    stamp = file.stat().st_mtime_ns + 1_000_000 * len(rows)
    os.utime(file, ns=(stamp, stamp))
    return str(file)


def test_a_value_gets_its_entry(tmp_path: Path) -> None:
    own = IdMapping(("user_id",), _file(tmp_path, "007,u-7", "8,u-8"))

    assert [own.value("007"), own.value("8")] == ["u-7", "u-8"]


def test_a_value_without_an_entry_is_refused_without_being_told(tmp_path: Path) -> None:
    own = IdMapping(("user_id",), _file(tmp_path, "7,u-7"))

    with pytest.raises(FormatError, match=r"ids\.csv has no entry") as refused:
        own.value("13812345678")

    assert "13812345678" not in str(refused.value)


def test_or_becomes_null_where_that_is_asked_for(tmp_path: Path) -> None:
    assert IdMapping(("id",), _file(tmp_path, "7,u-7"), unmapped="null").value("8") is None


def test_an_entry_that_is_added_counts_at_once(tmp_path: Path) -> None:
    own = IdMapping(("user_id",), _file(tmp_path, "7,u-7"))
    assert own.value("7") == "u-7"

    _file(tmp_path, "7,u-7", "8,u-8")

    assert own.value("8") == "u-8"


def test_an_entry_that_changed_is_refused_for_one_column_must_not_hold_both(
    tmp_path: Path,
) -> None:
    own = IdMapping(("user_id",), _file(tmp_path, "7,u-7"))
    assert own.value("7") == "u-7"

    _file(tmp_path, "7,u-9", "8,u-8")

    with pytest.raises(FormatError, match="an entry was changed or removed"):
        own.value("7")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        pytest.param(["7,u", "7,v"], "occurs twice", id="one_value_with_two_answers"),
        pytest.param(["7,u", "8,u"], "occurs twice", id="two_values_with_one_answer"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, rows: list[str], why: str) -> None:
    own = IdMapping(("user_id",), _file(tmp_path, *rows))

    with pytest.raises(FormatError, match=why):
        own.value("7")


def test_a_file_that_is_not_there_or_lacks_a_column_stops_no_other_table(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        IdMapping(("user_id",), str(tmp_path / "none.csv")).value("7")
    with pytest.raises(FormatError, match="has no column 'standard'"):
        IdMapping(("user_id",), _file(tmp_path, "7,u", heading="source,uid")).value("7")


def test_while_half_of_it_is_written_what_it_said_before_counts(tmp_path: Path) -> None:
    """Cut in the midst of an answer it would give another one, which is never taken back."""
    own = IdMapping(("user_id",), _file(tmp_path, "7,u-7"), unmapped="null")
    assert own.value("7") == "u-7"

    half = Path(own.file)
    half.write_text("source,standard\n7,u-7\n8,u-", encoding="utf-8")

    assert own.value("7") == "u-7"
    with pytest.raises(FormatError, match="its last line has no newline"):
        own.value("8")
    half.unlink()
    assert own.value("7") == "u-7"
    with pytest.raises(FormatError, match="No such file"):
        own.value("8")
    _file(tmp_path, "7,u-7", "8,u-88")
    assert own.value("8") == "u-88"


def test_a_file_that_is_never_whole_answers_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    for text in ("", "source,standard\n7,u-7", "source,standard"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(FormatError, match="its last line has no newline"):
            IdMapping(("user_id",), str(file)).value("7")


def test_a_refused_file_is_read_once_and_counts_again_when_it_is_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = IdMapping(("user_id",), _file(tmp_path, "7,u-7"))
    assert own.value("7") == "u-7"
    _file(tmp_path, "7,u-9", "8,u-8")
    reads: list[str] = []

    def counted(file: str) -> pa.Table:
        reads.append(file)
        return table(file)

    monkeypatch.setattr(mapping, "read_table", counted)

    for _ in range(3):
        with pytest.raises(FormatError, match="an entry was changed"):
            own.value("7")

    assert len(reads) == 1
    _file(tmp_path, "7,u-7", "8,u-8", "9,u-9")
    assert own.value("7") == "u-7"


def test_a_read_that_fails_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many files were open, or a disk was slow: nothing of the file changes when that ends."""
    own = IdMapping(("user_id",), _file(tmp_path, "7,u-7"))
    faults = [OSError(errno.EMFILE, "Too many open files")]

    def failing(file: str) -> pa.Table:
        if faults:
            raise faults.pop()
        return table(file)

    monkeypatch.setattr(mapping, "read_table", failing)

    with pytest.raises(FormatError, match="Too many open files"):
        own.value("7")
    assert own.value("7") == "u-7"


def test_what_could_answer_nothing_is_known_before_it_is_asked(tmp_path: Path) -> None:
    good = IdMapping(("id",), _file(tmp_path, "7,u"))
    odd = IdMapping(("id",), good.file, standard="uid")
    none = IdMapping(("id",), str(tmp_path / "none.parquet"))

    assert good.fault == ""
    assert odd.fault == f"file: mapping {good.file}: has no column 'uid'; it has source, standard"
    assert "No such file" in none.fault
    Path(none.file).write_bytes(b"PAR1")
    assert "cannot be read (ArrowInvalid); write it" in none.fault
    assert IdMapping(("id",), str(tmp_path)).fault.endswith("Is a directory")


def test_parquet_and_numbers(tmp_path: Path) -> None:
    file = tmp_path / "ids.parquet"
    pa.parquet.write_table(pa.table({"old": [7, 8], "new": [70, 80]}), file)
    own = IdMapping(("id",), str(file), source="old", standard="new", type="bigint")

    assert (own.value("8"), own.lake_type) == ("80", "bigint")


def test_answers_that_are_no_numbers_are_refused_as_such(tmp_path: Path) -> None:
    own = IdMapping(("id",), _file(tmp_path, "7,u-7"), type="bigint")

    with pytest.raises(FormatError, match="not of type bigint"):
        own.value("7")


@pytest.mark.parametrize("text", ["01", "-0", "+1", "1_0", "9" * 20])
def test_a_number_has_one_text_or_two_keys_would_be_one_row(tmp_path: Path, text: str) -> None:
    """Answers are told apart as texts, and rows of the mirror by their numbers."""
    own = IdMapping(("id",), _file(tmp_path, "a,1", f"b,{text}", "c,0"), type="bigint")

    with pytest.raises(FormatError, match="not of type bigint"):
        own.value("a")


def test_values_that_become_null_are_not_told_apart(tmp_path: Path) -> None:
    file = _file(tmp_path, "7,u-7")

    assert IdMapping(("id",), file).distinct
    assert not IdMapping(("id",), file, unmapped="null").distinct


def test_a_file_without_a_whole_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a whole path"):
        IdMapping(("id",), "ids.csv")
