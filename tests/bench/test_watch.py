"""The service's own cost is told at each size, of a service that does its whole work."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import watch
from bench.kit import month
from bench.kit.service import SOURCES, FakeKafka, Service
from checks.readiness import ReadinessState
from pipeline.model import Stage, TopicPartition

SMALL = watch.Figures(
    tables=1,
    start=0.5,
    rest=0.01,
    busy=0.02,
    gate=0.004,
    waiting=0.1,
    metrics=0.01,
    metrics_size=10_000,
    page=0.01,
    page_size=9_000,
    mark=2_000,
    memory=200 * watch.MIB,
    end=month.Lived(1_000_000, {"fences": 9}, pause=0.01, pruning=1.0, hourly=0.1),
)


def test_a_figure_is_told_at_each_size_with_what_a_thousand_tables_add() -> None:
    large = replace(SMALL, tables=2_001, rest=2.01, metrics_size=8_010_000)

    lines = list(watch.told([SMALL, large]))

    assert lines[0].split() == ["tables", "1", "2001"]
    assert [line.split()[-7:] for line in lines if "nothing changed" in line] == [
        ["CPU", "0.010", "2.010", "+", "1.000", "for", "1,000"]
    ]
    assert [line.split()[-6:] for line in lines if "metrics, MB" in line] == [
        ["0.01", "8.01", "+", "4.00", "for", "1,000"]
    ]


def test_what_the_store_holds_after_its_days_is_told_too() -> None:
    (line,) = (line for line in watch.told([SMALL]) if "store" in line)

    assert line.split()[-1] == "1"


def test_a_store_that_lived_through_no_day_has_no_figures() -> None:
    lines = list(watch.told([replace(SMALL, end=None)]))

    assert [line.split("  ")[1] for line in lines if line.endswith("  not measured")] == [
        "store after the days, MB",
        "longest pause of pruning, ms",
        "pruning a day at once, s of CPU",
        "pruning an hour later, s of CPU",
    ]


def test_one_size_alone_has_no_slope() -> None:
    assert watch.slope([SMALL], "rest") == ""


def test_the_service_measured_is_one_whose_tables_are_ready(tmp_path: Path) -> None:
    service = Service(tmp_path, 4)

    with service.life() as app:
        service.settle()
        app.observers.census.ask()
        views, headroom = app.current.board.tables, app.current.board.headroom

    assert [view.day[Stage.MIRROR].state for view in views] == [ReadinessState.READY] * 4
    assert [view.recent[Stage.MIRROR].state for view in views] == [ReadinessState.READY] * 4
    assert {view.table.sources for view in views} == {(name,) for name in SOURCES}
    assert all(view.table.id_column == "id" for view in views)
    assert {name for kind, name in headroom if kind == "topic"} == {
        f"{name}.{table}"
        for name, table in zip((*SOURCES, SOURCES[0]), service.tables, strict=True)
    }


def test_a_service_without_retention_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path, 1)
    monkeypatch.delattr(FakeKafka, "settings")

    with service.life(), pytest.raises(RuntimeError, match="no retention"):
        service.settle()


def test_a_batch_moves_what_it_touches_and_nothing_else(tmp_path: Path) -> None:
    service = Service(tmp_path, 3)

    with service.life():
        service.write_heartbeat()
        before = service.lake.checkpoint()
        service.lake.land(service.changing(0.4), partitions=1)
        after = service.lake.checkpoint()

    moved = [name for name, end in after.offsets.items() if before.offsets[name] != end]
    assert moved == [TopicPartition("east.shop.orders_00000", 0)]
    assert [service.lake.mirrors[name].batch for name in service.tables] == [1, 0, 0]


@pytest.mark.thorough  # it lives through an hour
def test_a_store_lives_through_days_of_as_many_tables(tmp_path: Path) -> None:
    hour = month.live_hour(tmp_path)
    small, large = (month.live_days(hour, tmp_path / f"{n}.db", n, 1) for n in (2, 40))

    assert large.size > small.size
    assert large.pause > 0
    assert {row["check"] for row in hour.stored.busy["verdicts"]} == {*month.PROBES}
    more = {name: large.rows[name] - small.rows[name] for name in ("memory", "certificates")}
    assert more == {"memory": 38, "certificates": 2 * 38}  # of 38 tables more, and one midnight


def test_rows_of_an_hour_are_given_to_every_table_and_hour() -> None:
    row = {"id": 7, "table": "shop.orders_00001", "at": 0}
    hour = month.StoredHour({"verdicts": [row, row]}, {"verdicts": [row]}, {})

    rows = list(month.rows(hour, "verdicts", 20, day=1))

    assert len(rows) == 24 * (2 * 2 + 18)
    assert {row["table"] for row in rows} == {f"shop.orders_{n:05}" for n in range(20)}
    assert rows[0]["at"] == 25 * 3600 * 1_000_000
    assert {row["id"] for row in rows} == {None}
