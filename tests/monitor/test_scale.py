"""What does a watching round ask?  No more of the store for many tables than for few.

Time is never looked at: what is counted are questions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import event

from bench.kit.service import Service
from monitor.app import App
from monitor.gate import Gate
from pipeline.model import Stage


@contextmanager
def settled(folder: Path, size: int) -> Iterator[tuple[Service, App]]:
    """A service that has certified yesterday, with nothing new to tell."""
    service = Service(folder / str(size), size)
    with service.life() as app:
        for _ in range(3):
            service.round()
            app.cycle.watch()
            app.census.ask()
            app.retention.ask()
        yield service, app


@contextmanager
def statements(app: App) -> Iterator[list[str]]:
    """What the store is asked meanwhile."""
    asked = list[str]()
    engine = app.store.database.engine

    def note(*said: object) -> None:
        asked.append(str(said[2]))

    event.listen(engine, "before_cursor_execute", note)
    yield asked
    event.remove(engine, "before_cursor_execute", note)


def round_of(folder: Path, size: int) -> list[str]:
    with settled(folder, size) as (service, app):
        service.round()
        with statements(app) as asked:
            app.cycle.watch()
    return asked


def test_a_round_asks_the_store_as_much_for_many_tables_as_for_few(tmp_path: Path) -> None:
    few, many = round_of(tmp_path, 3), round_of(tmp_path, 45)

    assert many == few


def test_yesterday_is_certified_by_few_transactions(tmp_path: Path) -> None:
    service = Service(tmp_path, 45)
    with service.life() as app:
        service.round()
        app.cycle.watch()
        app.census.ask()
        service.round()
        with statements(app) as asked:
            app.cycle.watch()

        certified = [
            table
            for table in service.tables
            if app.store.certificates.newest(table, Stage.MIRROR, app.current.board.cut)
        ]

    assert len(certified) == 45
    assert len([text for text in asked if text.startswith("INSERT INTO certificates")]) == 3


def test_a_second_question_of_a_table_asks_the_store_for_nothing(tmp_path: Path) -> None:
    with settled(tmp_path, 3) as (service, app):
        gate = Gate(
            app.watcher, app.roster, app.assessor, app.recorder, service.config.time_zone,
            service.clock,
        )  # fmt: skip
        cut = gate.cut("2026-03-30")
        gate.decide([service.tables[1]], cut, Stage.MIRROR)
        with statements(app) as asked:
            gate.decide([service.tables[1]], cut, Stage.MIRROR)

    assert asked == []
