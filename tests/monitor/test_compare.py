"""`sluice compare` prints what was found, and its exit status says what was proven."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from checks.compare.look import ComparedColumns
from checks.compare.walk import (
    ANY,
    RowDifference,
    UndecidedRange,
    WalkProgress,
    WalkResult,
)
from checks.counting import SuspectState
from monitor import comparing
from monitor.__main__ import sluice
from monitor.comparing import CompareReport, CompareRequest
from pipeline.model import Head, Position, Shard, Table
from pipeline.row_digest import DigestColumn, Form
from tests.monitor.config.test_config import MINIMAL

SHARD = Shard("shop", "shop.orders")
TABLE = Table("shop.orders", (SHARD,), ("id",), "id")
BEGAN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
EQUAL = WalkResult(
    rows=1_200,
    ranges=12,
    equal=12,
    different=0,
    undecided_ranges=0,
    differences=(),
    more={},
    undecided=(),
    versions=(7, 9),
    began=BEGAN,
    ended=BEGAN + timedelta(seconds=65),
)
COLUMNS = {SHARD: ComparedColumns((DigestColumn("id", Form.INTEGER),), {"x": "no floats"})}
HEADS = {"shop": (Head("A", Position("mysql", "b.1:4")), Head("A", Position("mysql", "b.1:90")))}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "sluice.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    return path


def compared(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: Sequence[str] = (),
    result: WalkResult = EQUAL,
) -> tuple[Result, list[CompareRequest]]:
    asked = list[CompareRequest]()

    def compare_table(_: object, request: CompareRequest, tell: object) -> CompareReport:
        asked.append(request)
        assert callable(tell)
        tell(WalkProgress(10, 1, 2))
        return CompareReport(TABLE, COLUMNS, result, HEADS)

    monkeypatch.setattr(comparing, "compare_table", compare_table)
    words = ["compare", "shop.orders", "--config", str(config), *options]
    return CliRunner().invoke(sluice, words), asked


WRONG = replace(
    EQUAL,
    equal=9,
    different=2,
    undecided_ranges=1,
    differences=(
        RowDifference(SHARD, 7, SuspectState.DIFFERENT, ("total", "state")),
        RowDifference(SHARD, 8, SuspectState.DOUBLED),
    ),
    more={SuspectState.MISSING: 3},
    undecided=(UndecidedRange(SHARD, (100, 200), "it moves"),),
)


def test_equal_tables_end_with_what_was_proven_and_when(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, _ = compared(config, monkeypatch)

    assert ended.exit_code == 0
    assert ended.stdout.splitlines() == [
        "not compared: x of shop/shop.orders: no floats",
        "EQUAL: 1,200 rows of shop.orders in 12 ranges equal their source, each range at one "
        "position between 2026-03-02 10:00:00 and 10:01:05 UTC "
        "(mirror versions 7 to 9; log of shop from b.1:4 to b.1:90)",
    ]


def test_each_difference_is_a_line_and_the_status_is_1(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, _ = compared(config, monkeypatch, result=WRONG)

    assert ended.exit_code == 1
    lines = ended.stdout.splitlines()
    assert lines[:4] == [
        "DIFFERENT(total, state)  shop/shop.orders  id=7",
        "DUPLICATE  shop/shop.orders  id=8",
        "and 3 more rows: 3 MISSING",
        "INCONCLUSIVE  shop/shop.orders  ids from 100 up to 200: it moves",
    ]
    assert lines[-1].startswith(
        "DIFFERENT: 5 rows of shop.orders; ranges equal: 9, different: 2, undecided: 1; between "
    )


def test_an_undecided_range_is_no_proof_and_the_status_is_3(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = (UndecidedRange(SHARD, ANY, "no mirror"),)
    ended, _ = compared(config, monkeypatch, result=replace(EQUAL, undecided=left))

    assert ended.exit_code == 3
    assert "INCONCLUSIVE  shop/shop.orders  all ids: no mirror" in ended.stdout
    assert "EQUAL" not in ended.stdout


def test_json_has_everything(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, _ = compared(config, monkeypatch, ["--json"], result=WRONG)

    found = json.loads(ended.stdout)
    assert ended.exit_code == 1
    assert found["outcome"] == "different"
    assert found["ranges"] == {"all": 12, "equal": 9, "different": 2, "undecided": 1}
    assert found["differences"][0] == {
        "shard": "shop/shop.orders",
        "id": 7,
        "what": "different",
        "columns": ["total", "state"],
    }
    assert found["more"] == {"missing": 3}
    assert found["not_compared"] == {"shop/shop.orders": {"x": "no floats"}}


def test_options_are_what_is_asked_for(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--columns", "a, b", "--range", "-5:20", "--shard", "shop.orders", "--wait", "90")

    _, (asked,) = compared(config, monkeypatch, options)

    wait = timedelta(seconds=90)
    assert asked == CompareRequest("shop.orders", ("a", "b"), (-5, 20), "shop.orders", wait)


@pytest.mark.parametrize(
    "text",
    ["5", "a:b", "9:3", "3:3", "1:2:3", f"0:{2**70}", "0:" + 5_000 * "9", "\u0661:\u0669"],
    ids=["one number", "letters", "down", "no id", "three", "too high", "5,000 digits", "Arabic"],
)
def test_a_wrong_range_is_wrong_usage(
    config: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    ended, asked = compared(config, monkeypatch, ["--range", text])

    assert (ended.exit_code, asked) == (2, [])
    assert f"'{text}'" in ended.stderr


def test_half_a_range_reaches_to_the_end_of_all_ids(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (asked,) = compared(config, monkeypatch, ["--range", "7:"])

    assert asked.within == (7, ANY[1])
