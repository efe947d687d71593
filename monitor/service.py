"""One life of the service: start in order, watch over the parts, stop in time."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from monitor.app import App, clock
from monitor.arenas import limit_arenas
from monitor.config.model import Config
from monitor.interpreter import prefer_answers
from monitor.spark.supervise import COMMAND
from monitor.store.store import ServiceStore
from monitor.web.server import HttpServer, raise_open_files

REMEMBERED = timedelta(days=40)
SPARK_PATIENCE = timedelta(seconds=8)
JOBS_PATIENCE = timedelta(seconds=3)
LAST_RESORT = 18.0  # seconds from the order to stop until the process ends, whatever still hangs
log = structlog.get_logger(__name__)


def run(config: Config, ready: Callable[[str], object], spark: Sequence[str] = COMMAND) -> int:
    """Serve until SIGTERM or SIGINT; *ready* is told the address; exit status 0 after the stop.

    Raises:
        ConfigError: the port or the store is taken; nothing was started.
    """
    limit_arenas()
    prefer_answers()
    raise_open_files()
    http = HttpServer(config.http.host, config.http.port)
    app = App(config, ServiceStore.open(config.store, service=True), spark)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: app.stopping.set())
    _start(app, http)
    ready(http.address)
    _watch(app, http)
    return _stop(app, http)


def _start(app: App, http: HttpServer) -> None:
    now = clock()
    for tick in app.store.ticks.interrupted(now):
        log.warning("tick was interrupted", job=tick.job, planned=tick.planned.isoformat())
    app.clocks.load(app.collectors)
    app.fences.load(app.collectors, now - REMEMBERED, app.clocks.step)
    app.rulings.load(app.store.verdicts)
    app.standstills.load()
    app.supervisor.start()
    http.start(app.api())
    app.schedule.start()
    log.info("serving", address=http.address, lake=app.config.lake)


def _watch(app: App, http: HttpServer) -> None:
    """Look at timer and API from a thread of neither."""
    while not app.stopping.wait(1.0):
        app.schedule.watch()
        if not http.alive:
            log.critical("the thread of the API has died; the service stops")
            app.stopping.set()


def _stop(app: App, http: HttpServer) -> int:
    """End every part; a client that hangs past all patience ends with the process."""
    log.info("stopping")
    resort = threading.Timer(LAST_RESORT, os._exit, [1])
    resort.daemon = True
    resort.start()
    app.schedule.stop()
    app.supervisor.stop(SPARK_PATIENCE)
    http.stop()
    clean = app.schedule.wait(JOBS_PATIENCE)
    app.close()
    log.info("stopped", clean=clean)
    resort.cancel()
    if not clean:
        os._exit(0)  # a thread that waits for a silent server would keep the process
    return 0
