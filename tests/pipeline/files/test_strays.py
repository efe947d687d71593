"""What nobody would ever read is found, and what is meant to lie there is not told."""

import os
from pathlib import Path

from pipeline.files.layout import UNFINISHED
from pipeline.files.sweep import find_strays


def test_files_and_folders_where_no_hour_is_are_told(tmp_path: Path) -> None:
    for good in ("clicks/2026_11_23/05", "views/2026_11_23/23", "views/_staging/x", "lost+found"):
        (tmp_path / good).mkdir(parents=True)
    for odd in ("clicks/2026-11-23/05", "clicks/2026_11_23/5", "clicks/2026_02_30", "views/24"):
        (tmp_path / odd).mkdir(parents=True)
    for file in ("a.json", "clicks/b.json", "views/2026_11_23/c.json", "clicks/2026_11_23/05/d"):
        (tmp_path / file).touch()

    assert list(find_strays(tmp_path, UNFINISHED)) == [
        "a.json",
        "clicks/2026-11-23",
        "clicks/2026_02_30",
        "clicks/2026_11_23/5",
        "clicks/b.json",
        "views/2026_11_23/c.json",
        "views/24",
    ]
    assert list(find_strays(tmp_path / "none", UNFINISHED)) == []


def test_a_name_that_is_no_text_can_be_told(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()

    assert list(find_strays(tmp_path, UNFINISHED)) == ["\\xff"]
