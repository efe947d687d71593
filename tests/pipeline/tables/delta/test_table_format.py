"""With Spark at hand, too, a mirror that Sluice can write is not left to it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pipeline.model import Op
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.pipeline.hand_lake import HandLake, row


def test_an_ordinary_mirror_is_written_here_though_spark_is_there(tmp_path: Path) -> None:
    mirrors = DeltaMirrors(None)
    mirrors.spark = cast("Any", SimpleNamespace())  # asked for anything, it fails
    lake = HandLake(tmp_path, table_format=mirrors)

    assert lake.play([row(Op.CREATE, 11, 1, "a")], [row(Op.UPDATE, 12, 1, "b")]) == {1: "b"}
