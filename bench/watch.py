"""Measures the service itself at many tables, without a JVM, a lake or a server.

    python -m bench.watch --tables 1 --tables 5000

The parts are those of `sluice run`, over a store that is a real file; lake, collectors and sources
answer at once (`bench/kit/service.py`). Each number of tables is measured in a separate process.
Seconds are CPU seconds. A gate decision and a pause are in wall-clock seconds, because callers wait
for them.
"""

import gc
import http.client
import multiprocessing
import random
import resource
import shutil
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import click

from bench.kit import month
from bench.kit.rounds import under_load
from bench.kit.service import Service
from monitor.app import App
from monitor.runtime import configure_logging, prefer_answers
from monitor.web.server import HttpServer

ROUNDS = 3
CHANGED = 0.1  # share of the tables, in a round
TOUCHED = 10  # partitions of a batch whose checkpoint is measured
WAITING = 200  # callers at the gate
ASKED = 300  # timed decisions at the same time
PACE = 5.0  # seconds between two rounds
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Figures:
    """The costs of one number of tables; sizes in bytes, ``rest`` and ``busy`` are rounds."""

    tables: int
    start: float
    rest: float
    busy: float
    gate: float
    waiting: float
    metrics: float
    metrics_size: int
    page: float
    page_size: int
    mark: int
    memory: int
    end: month.Lived | None

    def figure(self, name: str) -> float | None:
        """Return a figure, or one of the store after the days; None if it ran no days."""
        at = self if hasattr(self, name) else self.end
        return None if at is None else float(getattr(at, name))


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "tables": ("tables", lambda value: f"{value:.0f}"),
    "start": ("start-up to the first board, s of CPU", lambda value: f"{value:.2f}"),
    "rest": ("round, nothing changed, s of CPU", lambda value: f"{value:.3f}"),
    "busy": ("round, 10 % changed, s of CPU", lambda value: f"{value:.3f}"),
    "gate": ("gate, p95, ms", lambda value: f"{value * 1000:.1f}"),
    "waiting": ("200 waiting callers, s of CPU a second", lambda value: f"{value:.2f}"),
    "metrics": ("metrics, s of CPU", lambda value: f"{value:.3f}"),
    "metrics_size": ("metrics, MB", lambda value: f"{value / 1e6:.2f}"),
    "page": ("page, s of CPU", lambda value: f"{value:.3f}"),
    "page_size": ("page, kB", lambda value: f"{value / 1e3:.0f}"),
    "mark": ("mark of ten partitions, kB", lambda value: f"{value / 1e3:.1f}"),
    "memory": ("memory, MiB", lambda value: f"{value / MIB:.0f}"),
    "size": ("store after the days, MB", lambda value: f"{value / 1e6:.0f}"),
    "pause": ("longest pause of pruning, ms", lambda value: f"{value * 1000:.0f}"),
    "pruning": ("pruning a day at once, s of CPU", lambda value: f"{value:.1f}"),
    "hourly": ("pruning an hour later, s of CPU", lambda value: f"{value:.1f}"),
}


@click.command()
@click.option("--tables", "sizes", multiple=True, type=int, default=[1, 100, 1_000, 5_000])
@click.option("--days", default=30, help="Days that the store lives through; 0 leaves them out.")
@click.option("--dir", "folder", default=Path("build/bench/watch"), type=Path)
def main(*, sizes: Sequence[int], days: int, folder: Path) -> None:
    """Measure the service at these numbers of tables, twice as many partitions each."""
    found = []
    for size in sizes:
        home = folder.resolve() / str(size)
        shutil.rmtree(home, ignore_errors=True)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            found.append(alone.submit(measure, home, size, days).result())
        shutil.rmtree(home, ignore_errors=True)
        click.echo(f"  {size} tables measured; {under_load()}")
    for line in told(found):
        click.echo(line)


def told(found: Sequence[Figures]) -> Iterator[str]:
    """Yield a line for each figure: its value at each number of tables, and its growth."""
    for name, (title, text) in COLUMNS.items():
        values = [one.figure(name) for one in found]
        if any(value is None for value in values):
            yield f"  {title:42}  not measured"
            continue
        line = f"  {title:42}" + "".join(
            f"{text(value):>12}" for value in values if value is not None
        )
        yield line if name == "tables" else f"{line}   {slope(found, name)}"


def slope(found: Sequence[Figures], name: str) -> str:
    """Return the increase per 1,000 tables, from the smallest number measured to the largest."""
    least, most = min(found, key=lambda one: one.tables), max(found, key=lambda one: one.tables)
    if least.tables == most.tables:
        return ""
    first, last = least.figure(name), most.figure(name)
    if first is None or last is None:
        return ""
    return f"+ {COLUMNS[name][1]((last - first) * 1000 / (most.tables - least.tables))} for 1,000"


def measure(folder: Path, size: int, days: int) -> Figures:
    """Measure all figures of one number of tables, in this process."""
    configure_logging(json=True, level="CRITICAL")
    prefer_answers()
    service = Service(folder, size)
    with service.life():
        service.settle()
    started = time.process_time()
    with service.life() as app:  # it remembers what the previous run has stored
        service.round()
        app.cycle.watch()
        start = time.process_time() - started
        app.observers.census.ask()
        app.observers.retention.ask()
        rest = statistics.median(_rounds(service, app, ()))
        busy = statistics.median(_rounds(service, app, service.changing(CHANGED)))
        gate, waiting = _gate(service, app)
        metrics, metrics_size = _served(app, "/metrics")
        page, page_size = _served(app, "/")
        gc.collect()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    touched = service.tables[:TOUCHED]
    mark = len(service.lake.land(touched, partitions=max(1, TOUCHED // len(touched))))
    hour = month.live_hour(folder / "month") if days else None
    end = month.live_days(hour, folder / "days.db", size, days) if hour else None
    return Figures(
        tables=size,
        start=start,
        rest=rest,
        busy=busy,
        gate=gate,
        waiting=waiting,
        metrics=metrics,
        metrics_size=metrics_size,
        page=page,
        page_size=page_size,
        mark=mark,
        memory=memory,
        end=end,
    )


def _rounds(service: Service, app: App, changed: Sequence[str]) -> Iterator[float]:
    for _ in range(ROUNDS):
        service.round(changed)
        started = time.process_time()
        app.cycle.watch()
        yield time.process_time() - started


def _served(app: App, path: str) -> tuple[float, int]:
    """Return CPU and bytes of one answer over HTTP."""
    with _serving(app) as port:
        started = time.process_time()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", path)
        size = len(connection.getresponse().read())
        connection.close()
        return time.process_time() - started, size


def _gate(service: Service, app: App) -> tuple[float, float]:
    """Return the p95 of a decision while callers wait and rounds run, and the callers' CPU."""
    service.clock.flows()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    try:
        with _serving(app) as port:
            child = context.Process(
                target=_callers, args=(port, service.tables, there), daemon=True
            )
            child.start()
            here.recv()  # all wait
            used, since = time.process_time(), time.monotonic()
            time.sleep(PACE)
            waiting = (time.process_time() - used) / (time.monotonic() - since)
            here.send(None)
            while not here.poll(PACE):
                service.round()
                app.cycle.watch()
            spent = here.recv()
            app.stopping.set()  # remaining callers get an answer
            child.join()
    finally:
        app.stopping.clear()
        service.clock.stands()
    return statistics.quantiles(spent, n=20)[-1], waiting


def _callers(port: int, tables: Sequence[str], parent: Connection) -> None:
    """Wait at the gate with many callers, and ask with one more; send each answer's seconds."""
    waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(WAITING)]
    for number, one in enumerate(waiting):
        one.sendall(_request(tables[number % len(tables)], "&wait=290").encode())
    time.sleep(1)
    parent.send(None)
    parent.recv()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    spent, choice = [], random.Random(7)
    for _ in range(ASKED):
        started = time.monotonic()
        connection.request("GET", _path(choice.choice(tables)))
        connection.getresponse().read()
        spent.append(time.monotonic() - started)
        time.sleep(0.03)
    parent.send(spent)
    for one in waiting:
        one.close()


def _path(table: str, more: str = "") -> str:
    return f"/v1/gate?table={table}&cut=2026-03-30{more}"


def _request(table: str, more: str) -> str:
    return f"GET {_path(table, more)} HTTP/1.1\r\nHost: sluice\r\n\r\n"


@contextmanager
def _serving(app: App) -> Iterator[int]:
    server = HttpServer("127.0.0.1", 0)
    server.start(app.api())
    try:
        while not server.answers:
            time.sleep(0.01)
        yield server.port
    finally:
        server.stop()


if __name__ == "__main__":
    main()
