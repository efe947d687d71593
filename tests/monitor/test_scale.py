"""Tests that a monitoring round asks the store no more for many tables than for few.

Time is never looked at: what is counted are questions.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from cProfile import Profile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from bench.kit.service import Service
from monitor.app import App
from monitor.config.model import Config
from monitor.gate import Gate
from monitor.observe import sampler
from pipeline.checkpoint import Checkpoint, Existence, active_shards
from pipeline.errors import ConfigError
from pipeline.lags.samples import MirrorPosition, Sample
from pipeline.model import Order, Shard, Stage
from pipeline.settings import Router


@contextmanager
def settled_service(folder: Path, size: int) -> Iterator[tuple[Service, App]]:
    """A service that has certified yesterday, with nothing new to tell."""
    service = Service(folder / str(size), size)
    with service.life() as app:
        service.settle()
        yield service, app


@contextmanager
def described_service(folder: Path, size: int) -> Iterator[tuple[Service, App]]:
    """A service whose next round is the first that can certify yesterday."""
    service = Service(folder, size)
    with service.life() as app:
        service.round()
        app.cycle.watch()
        app.observers.census.ask()
        service.round()
        yield service, app


@contextmanager
def record_statements(app: App) -> Iterator[list[str]]:
    """What the store is asked meanwhile."""
    asked = list[str]()
    engine = app.store.database.engine

    def note(*said: object) -> None:
        asked.append(str(said[2]))

    event.listen(engine, "before_cursor_execute", note)
    yield asked
    event.remove(engine, "before_cursor_execute", note)


def round_of(folder: Path, size: int) -> list[str]:
    with settled_service(folder, size) as (service, app):
        service.round()
        with record_statements(app) as asked:
            app.cycle.watch()
    return asked


def test_a_round_asks_the_store_as_much_for_many_tables_as_for_few(tmp_path: Path) -> None:
    few, many = round_of(tmp_path, 3), round_of(tmp_path, 45)

    assert many == few


def work_of_a_round(folder: Path, size: int) -> int:
    """Calls of functions in a round in which nothing changed."""
    with settled_service(folder, size) as (service, app):
        service.round()
        profile = Profile()
        profile.runcall(app.cycle.watch)
    return sum(one.callcount for one in profile.getstats())


def test_f146_a_round_does_little_for_a_table_of_which_nothing_changed(tmp_path: Path) -> None:
    few, many = work_of_a_round(tmp_path, 5), work_of_a_round(tmp_path, 55)

    assert (many - few) / 50 < 1_400  # more while each table worked out what all have in common


def test_f146_a_round_makes_no_settings_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, settings = list[int](), Config.__dict__["settings"]

    def counting(config: Config) -> object:
        made.append(1)
        return settings.__get__(config)

    with settled_service(tmp_path, 3) as (service, app):
        service.round()
        monkeypatch.setattr(Config, "settings", property(counting))
        app.cycle.watch()

    assert made == []


def test_yesterday_is_certified_by_few_transactions(tmp_path: Path) -> None:
    with described_service(tmp_path, 45) as (service, app):
        with record_statements(app) as asked:
            app.cycle.watch()

        certified = [
            table
            for table in service.tables
            if app.store.certificates.newest(table, Stage.MIRROR, app.current.board.cut)
        ]

    assert len(certified) == 45
    assert len([text for text in asked if text.startswith("INSERT INTO certificates")]) == 3


def test_where_a_job_asks_at_the_gate_no_table_but_one_keeps_it_waiting(tmp_path: Path) -> None:
    with (
        described_service(tmp_path, 4) as (_, app),
        app.way.foreground(),
        record_statements(app) as asked,
    ):
        app.cycle.watch()

    assert len([text for text in asked if text.startswith("INSERT INTO certificates")]) == 4


def followed(monkeypatch: pytest.MonkeyPatch) -> list[Checkpoint]:
    """The marks whose shards are gone through from now on."""
    gone_through = list[Checkpoint]()

    def gone(mark: Checkpoint, router: Router) -> Mapping[Shard, str]:
        gone_through.append(mark)
        return active_shards(mark, router)

    monkeypatch.setattr("monitor.observe.tables.active_shards", gone)
    return gone_through


def test_names_are_gone_through_again_only_where_a_shard_came_or_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with settled_service(tmp_path, 3) as (service, app):
        gone_through = followed(monkeypatch)
        mark = service.lake.checkpoint()
        shard, *_ = mark.shards
        told = {shard: Existence(Order(1, 1, 5), there=False)}
        tables = []
        for one in (replace(mark, batch=9), replace(mark, existing=told), mark):
            app.observers.roster.update(one)
            tables.append(len(app.observers.roster.tables()))

    assert (tables, len(gone_through)) == ([3, 2, 3], 2)


def test_a_round_with_an_older_look_goes_through_the_shards_once_and_not_for_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with settled_service(tmp_path, 5) as (service, app):
        service.round()
        old, mark = app.observers.watcher.look(timedelta()), service.lake.checkpoint()
        altered = {next(iter(mark.shards)): Existence(Order(1, 2, 0), there=True)}
        app.observers.roster.update(replace(mark, existing={**mark.existing, **altered}))
        monkeypatch.setattr(app.observers.watcher, "look", lambda *_: old)
        gone_through = followed(monkeypatch)
        app.cycle.watch()

    assert len(gone_through) == 1


def test_a_second_question_of_a_table_asks_the_store_for_nothing(tmp_path: Path) -> None:
    with settled_service(tmp_path, 3) as (service, app):
        gate = opened_gate(service, app)
        cut = gate.cut("2026-03-30")
        gate.decide([service.tables[1]], cut, Stage.MIRROR)
        with record_statements(app) as asked:
            gate.decide([service.tables[1]], cut, Stage.MIRROR)

    assert asked == []


def test_f40_a_round_looks_at_mirrors_behind_and_in_turn_at_those_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "FEWEST", 5)
    with settled_service(tmp_path, 40) as (service, app):
        looks = list[int]()
        for _ in range(4):
            service.round(service.tables[:3])
            before = service.lake.asked
            app.cycle.watch()
            looks.append(service.lake.asked - before)
        ages = {service.clock.now - one.at for one in mirrors(app)}

    assert looks == [3 + 11] * 4
    assert max(ages) < timedelta(seconds=20)


def test_f40_no_sample_of_a_mirror_at_rest_outlives_a_third_of_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "FEWEST", 1)
    monkeypatch.setattr(sampler, "ROUNDS", 1_000)
    with settled_service(tmp_path, 10) as (service, app):
        for _ in range(12):
            service.round()
            app.cycle.watch()
            ages = {service.clock.now - one.at for one in mirrors(app)}
            assert max(ages) <= app.observers.watcher.sampler.budget / 3 + timedelta(seconds=5)


def test_f47_a_question_at_the_gate_looks_at_its_own_mirrors(tmp_path: Path) -> None:
    with settled_service(tmp_path, 30) as (service, app):
        asked = opened_gate(service, app)
        service.write_heartbeat(3)
        before = service.lake.asked
        for _ in range(5):
            asked.decide([service.tables[4], service.tables[7]], service.clock(), Stage.MIRROR)
        looks = service.lake.asked - before

    assert looks == 2


def test_f47_a_mirror_that_somebody_took_away_is_seen_by_who_asks_though_it_was_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "FEWEST", 1)
    with settled_service(tmp_path, 12) as (service, app):
        asked, table = opened_gate(service, app), service.tables[5]
        cut = app.current.board.cut
        ready = asked.decide([table], cut, Stage.MIRROR).status()
        del service.lake.mirrors[table]
        service.write_heartbeat(2)
        gone = asked.decide([table], cut, Stage.MIRROR).status()

    assert (ready, gone) == (200, 409)


def test_of_many_tables_a_wrong_name_is_told_with_the_few_it_may_have_meant(tmp_path: Path) -> None:
    with settled_service(tmp_path, 45) as (service, app):
        asked = opened_gate(service, app)
        for wrong in ("shop.order_00033", "shop.orders_00033x"):
            with pytest.raises(ConfigError) as told:
                asked.decide([wrong], service.clock(), Stage.MIRROR)

            names = str(told.value).removeprefix(f"no table {wrong!r}; known: ").split(", ")
            assert names[0] == "shop.orders_00033"
            assert names[-1].endswith(" and 35 more")
            assert len(names) == 10


def mirrors(app: App) -> list[Sample[MirrorPosition]]:
    """Samples of the newest look."""
    return [one for one in app.observers.watcher._look.mirrors.values() if isinstance(one, Sample)]


def opened_gate(service: Service, app: App) -> Gate:
    """As the service opens it."""
    zone, clock = service.config.time_zone, service.clock
    its = app.observers
    return Gate(its.watcher, its.roster, its.assessor, its.recorder, zone, clock)
