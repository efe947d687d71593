"""With Spark at hand, too, a mirror that Sluice can write is not left to it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipeline.delta.log import ActiveFile
from pipeline.model import Op
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import LocalLake, row


def test_an_ordinary_mirror_is_written_here_though_spark_is_there(tmp_path: Path) -> None:
    mirrors = DeltaMirrors(None)
    mirrors.spark = cast("Any", SimpleNamespace())  # asked for anything, it fails
    lake = LocalLake(tmp_path, table_format=mirrors)

    assert lake.play([row(Op.CREATE, 11, 1, "a")], [row(Op.UPDATE, 12, 1, "b")]) == {1: "b"}


@pytest.mark.parametrize("told", [True, False], ids=["by the log", "by footers"])
def test_rows_of_a_partitioned_table_are_counted(tmp_path: Path, told: bool) -> None:
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "a"]})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["name"])
    mirrors = DeltaMirrors(None)
    found = mirrors.look(str(tmp_path / "t"), None)
    assert found is not None
    files = found.files.items()
    silent = {path: ActiveFile({**file.action, "stats": None}) for path, file in files}

    assert mirrors.count(found if told else replace(found, files=silent)) == 3
