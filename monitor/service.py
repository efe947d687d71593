"""Runs the service: starts its parts in order, watches them, and stops them in time."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import structlog

from monitor.app import App
from monitor.config.model import Config
from monitor.runtime import limit_arenas, prefer_answers
from monitor.spark.supervisor import COMMAND
from monitor.store.store import ServiceStore
from monitor.web.server import HttpServer, raise_open_files
from pipeline.delta.store import open_store
from pipeline.errors import ConfigError, SluiceError, UnreachableError
from pipeline.lease import RENEWED_EVERY, Holder, Lease

REMEMBERED = timedelta(days=40)
SPARK_PATIENCE = timedelta(seconds=8)
JOBS_PATIENCE = timedelta(seconds=3)
LEASE_PATIENCE = timedelta(seconds=2)
LAST_RESORT = 18.0  # seconds from the stop signal to a forced exit, even if a thread hangs
log = structlog.get_logger(__name__)


def run_service(
    config: Config, ready: Callable[[str], object], spark: Sequence[str] = COMMAND
) -> int:
    """Serve until SIGTERM or SIGINT; *ready* is called with the address.

    Returns the exit status: 0 after the stop, 1 if another service took over the lane.

    Raises:
        ConfigError: the port, the store or the lane is in use; nothing was started.
    """
    limit_arenas()
    prefer_answers()
    raise_open_files()
    http = HttpServer(config.http.host, config.http.port)
    app = App(config, ServiceStore.open(config.store, service=True), spark)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: app.stopping.set())
    try:
        lease = _lease(app)
    except ConfigError:
        app.close()
        raise
    if app.stopping.is_set():
        app.close()
        return 0
    held = _Held(app, lease)
    _start(app, http)
    held.start()
    ready(http.address)
    _watch(app, http)
    status = _stop(app, http, held)
    return 1 if held.lost else status


def _lease(app: App) -> Lease:
    """Take and return the lease of the lane; it is not held yet if the lake does not answer.

    Raises:
        ConfigError: another service lands this lane.
    """
    settings = app.config.settings
    holder = Holder.here(str(Path(app.config.store).resolve()), app.clock())
    lease = Lease(open_store(settings.changes), settings.lane, holder)
    try:
        lease.take(app.stopping.wait)
    except UnreachableError as error:
        log.warning("lease_unknown", lane=settings.lane, error=str(error))
    return lease


@dataclass(eq=False)
class _Held:
    """Renews the lease until the service stops; stops the service if another one has the lease."""

    app: App
    lease: Lease
    lost: bool = False
    _spark_ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start to renew, in a separate thread, because the lake may hang."""
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def release(self, within: timedelta) -> None:
        """Release the lease for another service; call after Spark has ended."""
        self._spark_ended.set()
        self._thread.join(within.total_seconds())

    def _renew(self) -> None:
        stopping, lease = self.app.stopping, self.lease
        while not stopping.wait(RENEWED_EVERY.total_seconds()):
            try:
                if lease.number:
                    lease.renew()
                else:
                    lease.take(stopping.wait)
            except ConfigError as error:
                log.critical("the lane has another service; this one stops", error=str(error))
                self.lost = True
                stopping.set()
            except UnreachableError as error:
                log.warning("lease_not_renewed", lane=lease.lane, error=str(error))
        self._spark_ended.wait()
        if not self.lost:
            with suppress(SluiceError):  # otherwise it expires
                lease.release()


def _start(app: App, http: HttpServer) -> None:
    now = app.clock()
    for tick in app.store.ticks.interrupted(now):
        log.warning("tick was interrupted", job=tick.job, planned=tick.planned.isoformat())
    app.observers.clocks.load(app.observers.collectors)
    app.observers.fences.load(app.observers.collectors, now - REMEMBERED, app.observers.clocks.step)
    app.observers.rulings.load(app.store.verdicts)
    app.observers.hold_registry.load()
    app.driver.supervisor.start()
    http.start(app.api())
    app.schedule.start()
    log.info("serving", address=http.address, lake=app.config.lake)


def _watch(app: App, http: HttpServer) -> None:
    while not app.stopping.wait(1.0):
        app.schedule.watch()
        if not http.alive:
            log.critical("the thread of the API has died; the service stops")
            app.stopping.set()


def _stop(app: App, http: HttpServer, held: _Held) -> int:
    """Stop all parts; if a client hangs, the process is ended by force."""
    log.info("stopping")
    resort = threading.Timer(LAST_RESORT, os._exit, [1])
    resort.daemon = True
    resort.start()
    app.schedule.stop()
    app.driver.supervisor.stop(SPARK_PATIENCE)
    held.release(LEASE_PATIENCE)
    http.stop()
    clean = app.schedule.wait(JOBS_PATIENCE)
    app.close()
    log.info("stopped", clean=clean)
    resort.cancel()
    if not clean:
        os._exit(0)  # a thread that waits for a silent server would keep the process alive
    return 0
