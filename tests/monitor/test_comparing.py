"""One comparison, from the lake's files to the report; only the source's server is a fake.

Lake, change log, mirror and merges are the product's own. Rows change before each statement, and
the mirror follows in each pause.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from bench.compare import CONFIG, describe, parse_row, settings, workload
from bench.kit.lake import Lake, here
from bench.kit.table import SOURCE
from checks.compare.walk import ANY, WalkProgress
from checks.counting import SuspectState
from monitor import clients
from monitor.comparing import CompareReport, CompareRequest, compare_table
from monitor.config.file import load_config
from pipeline.checkpoint import Epoch
from pipeline.errors import ConfigError, ProofError
from pipeline.model import Acknowledged, Head, Shard
from pipeline.row_digest import DigestColumn, RangeDigest, list_row_digests, sum_ranges
from pipeline.schema.model import Column
from pipeline.sources.mysql.position import binlog_position

WORK = workload(400, 20)
SHARD = Shard(SOURCE, WORK.shard)
Range = tuple[int, int]


@dataclass
class Shop:
    """A source of one table, its lake, and what keeps the mirror up to it."""

    home: Path
    name: str = SOURCE
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    number: int = 0
    heartbeats: bool = True
    silent: bool = False
    waived: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Have the same rows on both sides."""
        self.lake = Lake(self.home, [WORK], here)
        self.lake.fill(describe(WORK, settings(1)))
        self.rows = {row["id"]: row for part in WORK.image(100) for row in part.to_pylist()}
        self.turn()

    def change(self) -> None:
        """Commit a round of changes, and land it; nothing is merged."""
        self.number += 1
        changes = WORK.changes(self.number)
        for one in changes.to_pylist():
            id_, values = parse_row(WORK, one)
            self.rows.pop(id_, None)
            if values is not None:
                self.rows[id_] = dict(zip(WORK.names, values, strict=True))
        head = self.head()
        self.lake.land(
            changes,
            heartbeats={SOURCE: self.newest_heartbeat()},
            acknowledged={SOURCE: Acknowledged(head.position)},
            epochs={SOURCE: Epoch(1, head.identity, head.position)},
        )

    def turn(self) -> None:
        """One round of a service."""
        self.change()
        self.lake.apply(self.waived)

    # pipeline.sources.source.Source

    def newest_heartbeat(self) -> int:
        if self.silent:
            raise ProofError("there is no table sluice.heartbeat")
        return self.number if self.heartbeats else 0

    def head(self) -> Head:
        return Head("A", binlog_position(1, self.number))

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        return (SHARD, Shard(SOURCE, "shop.unknown"))

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        return ("id",)

    def columns(self, shard: Shard) -> Sequence[Column]:
        return WORK.columns

    def min_id(self, shard: Shard, column: str) -> int | None:
        return min(self.rows)

    def max_id(self, shard: Shard, column: str) -> int | None:
        return max(self.rows)

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        return sum_ranges(list_row_digests(self.rows.values(), column, columns), ranges)

    def id_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        return self.digests(shard, column, [(id_, id_ + 1) for id_ in ids], columns)

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        each = [self.id_digests(shard, column, ids, [one]) for one in columns]
        return tuple(zip(*each, strict=True))

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        inside = [row for id_, row in self.rows.items() if span[0] <= id_ < span[1]]
        return tuple(list_row_digests(inside, column, columns)[:limit])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(tmp_path / "lake")
    monkeypatch.setattr(clients, "open_source", lambda _: made)
    return made


def compare(
    shop: Shop,
    *,
    busy: Callable[[], object] = lambda: None,
    pause: Callable[[], object] | None = None,
    limits: str = "call: 60s",
    more: str = "",
    heard: list[WalkProgress] | None = None,
    **asked: Any,
) -> CompareReport:
    path, password = shop.home / "sluice.yaml", shop.home / "password"
    password.write_text("x", encoding="utf-8")
    password.chmod(0o600)
    path.write_text(
        CONFIG.format(lake=shop.home, source=SOURCE, port=1, password=password, busy="1s").replace(
            "call: 60s", limits
        )
        + more,
        encoding="utf-8",
    )
    request = CompareRequest(**{"table": WORK.shard, "block_rows": 50, **asked})

    def tell(progress: WalkProgress) -> None:
        if heard is not None:
            heard.append(progress)
        busy()

    return compare_table(load_config(path), request, tell, pause or shop.turn)


TWO_SOURCES = """
  - name: two
    host: 127.0.0.1
    port: 2
    user: sluice
    password: {{file: {password}}}
    prefix: two
    follow_collector: false
    collector: {{kind: bench.kit.collector, url: none, connector: none}}
tables:
  - {{shards: 'shop.*[.]orders', table: {table}}}
  - {{shards: 'shop[.]unknown', ignore: true}}
"""


class SecondShop(Shop):
    """A source with the second shard, of which nothing has landed."""

    def __post_init__(self) -> None:
        """Have no lake."""

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        return (Shard("two", "shop_2.orders"),)


def delete_in_mirror(shop: Shop, id_: int) -> None:
    """As another writer does; somebody waives that, so that merges go on."""
    table = DeltaTable(shop.lake.mirror(WORK))
    assert table.delete(f"id = {id_}")["num_deleted_rows"] == 1
    shop.waived = frozenset({f"foreign_write:{WORK.shard}:{table.version()}"})


def test_a_table_that_changes_is_equal(shop: Shop) -> None:
    report = compare(shop, busy=shop.change)

    assert (report.result.differences, report.result.undecided) == ((), ())
    assert report.result.equal == report.result.ranges > 5
    assert report.columns[SHARD].left_out == {}
    first, last = report.heads[SOURCE]
    assert first.position != last.position


def test_exactly_the_wrong_rows_are_named_while_others_change(shop: Shop) -> None:
    touched = {id_ for round_ in range(15) for id_ in changed(round_)}
    wrong, gone = sorted({*shop.rows} - touched)[:2]
    shop.rows[wrong] = {**shop.rows[wrong], "total": 0.5}
    delete_in_mirror(shop, gone)

    result = compare(shop, busy=shop.change).result

    assert [(one.id, one.state, one.columns) for one in result.differences] == [
        (wrong, SuspectState.DIFFERENT, ("total",)),
        (gone, SuspectState.MISSING, ()),
    ]
    assert result.undecided == ()


def changed(round_: int) -> set[int]:
    return {parse_row(WORK, one)[0] for one in WORK.changes(round_).to_pylist()}


def test_without_heartbeats_ranges_in_motion_stay_undecided(shop: Shop) -> None:
    shop.heartbeats = False
    shop.change()

    result = compare(shop, wait=timedelta(seconds=0), pause=lambda: None).result

    assert result.differences == ()
    assert result.undecided_ranges == len(result.undecided) > 0
    assert result.equal + result.undecided_ranges == result.ranges


def test_a_source_without_a_table_of_heartbeats_can_still_be_equal(shop: Shop) -> None:
    shop.silent = True

    result = compare(shop).result

    assert result.equal == result.ranges


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"table": "shop.order"}, "no table 'shop.order'; known: shop.orders"),
        ({"columns": ("note", "nam")}, "one/shop.orders has no column 'nam'; known: id"),
        ({"shard": "shop.x"}, "table shop.orders has no shard 'shop.x'; known: one/shop.orders"),
    ],
)
def test_a_wrong_name_is_an_error_with_the_known_ones(
    shop: Shop, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        compare(shop, **asked)

    assert str(error.value).startswith(said)


def test_a_table_without_ranges_names_the_check_that_compares_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop, "key_columns", lambda _: WORK.names[:2])

    with pytest.raises(ConfigError, match="not one integer column; use the check `values`, which"):
        compare(shop)


def test_the_shard_of_a_source_of_which_nothing_landed_is_undecided(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other shard is compared, and waits for no heartbeat of that source."""
    second = SecondShop(shop.home / "two", heartbeats=False)
    both = {SOURCE: shop, "two": second}
    monkeypatch.setattr(clients, "open_source", lambda settings: both[settings.name])
    more = TWO_SOURCES.format(password=shop.home / "password", table="shop.orders")
    shop.rows[7] = {**shop.rows[7], "total": 0.5}

    report = compare(shop, more=more)

    (left,) = report.result.undecided
    assert (left.shard, left.span) == (Shard("two", "shop_2.orders"), ANY)
    assert left.why.startswith("no columns of it have landed")
    assert [(one.shard, one.id) for one in report.result.differences] == [(SHARD, 7)]


def test_a_source_whose_rules_name_other_tables_is_not_asked(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "open_source", lambda settings: {SOURCE: shop}[settings.name])
    more = TWO_SOURCES.format(password=shop.home / "password", table="shop.others")
    more = more.replace("shop.*[.]orders", "shop_.*[.]others")

    assert compare(shop, more=more).result.undecided == ()


def test_only_the_columns_that_were_asked_for_are_compared(shop: Shop) -> None:
    shop.rows[7] = {**shop.rows[7], "total": 0.5}

    report = compare(shop, columns=("id", "note"))

    assert report.result.equal == report.result.ranges
    assert report.columns[SHARD].left_out["total"] == "--columns leaves it out"


def test_two_rows_with_swapped_values_differ_if_only_that_column_is_compared(shop: Shop) -> None:
    one, other = sorted({*shop.rows} - {id_ for n in range(15) for id_ in changed(n)})[:2]
    notes = shop.rows[one]["note"], shop.rows[other]["note"]
    shop.rows[one] = {**shop.rows[one], "note": notes[1]}
    shop.rows[other] = {**shop.rows[other], "note": notes[0]}

    report = compare(shop, columns=("note",))

    assert [(a.id, a.columns) for a in report.result.differences] == [
        (one, ("note",)),
        (other, ("note",)),
    ]
    assert "id" not in report.columns[SHARD].left_out


def test_a_table_whose_key_is_not_compared_is_an_error_with_the_reason(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with swapped values would seem equal."""
    computed = [replace(cast(Any, one), computed=one.name == "id") for one in WORK.columns]
    monkeypatch.setattr(shop, "columns", lambda _: computed)

    with pytest.raises(ConfigError, match="key column id cannot be compared: it is computed"):
        compare(shop)


def test_a_column_that_is_added_meanwhile_is_reported_as_not_compared(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = replace(cast(Any, WORK.columns[0]), name="added")

    def alter() -> None:
        monkeypatch.setattr(shop, "columns", lambda _: (*WORK.columns, new))

    report = compare(shop, busy=alter)

    assert report.result.equal == report.result.ranges
    assert report.columns[SHARD].left_out == {
        "added": "it was added while the table was compared; compare again"
    }


def test_rows_that_were_found_before_the_source_refused_to_be_read_are_reported(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = min(shop.rows)
    shop.rows[wrong] = {**shop.rows[wrong], "total": 0.5}
    heard = list[WalkProgress]()

    def busy() -> None:
        shop.turn()
        if heard[-1].ranges > heard[-1].expected // 2:
            monkeypatch.setattr(shop, "digests", refuse)

    def refuse(*_: object) -> None:
        raise ConfigError("source:one: the user may not read it")

    result = compare(shop, busy=busy, heard=heard, limits="rate: 40").result

    assert [one.id for one in result.differences] == [wrong]
    assert result.undecided[-1].why.endswith("early: source:one: the user may not read it")


def test_no_more_rows_are_read_at_once_than_the_rate_allows_a_second(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, heard = list[float](), list[WalkProgress]()
    monkeypatch.setattr(time, "sleep", slept.append)

    compare(shop, limits="rate: 40", heard=heard)

    rows = [0, *(one.rows for one in heard)]
    assert max(after - before for before, after in pairwise(rows)) <= 40
    assert len(slept) == len(heard) > 9
    assert slept[-1] > 0
