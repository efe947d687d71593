"""Configures logs, memory arenas and thread scheduling of the service process.

Logs are JSON for machines and coloured text for a terminal. Every line of a monitoring round
has its run id. Libraries that log through the standard library use the same output.

By default glibc uses up to eight memory arenas per core, and each keeps the memory that its threads
have freed. Measured with 1,000 mirrors whose logs a dozen threads read: 1.3 GB and growing, and 0.8
GB with two arenas.

`prefer_answers` makes threads switch often, so that requests are answered while others compute.
It also makes garbage collection of old objects rare, so a rare job must call `collect_garbage`.

`RequestPriority` gives requests priority over a monitoring round. Python runs one thread at a
time, so without priority a request would wait repeatedly while a round computes. Long computations
yield between two items. In total they wait no longer than they work, so a round takes at most twice
as long, however many requests arrive.
"""

import ctypes
import gc
import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from typing import TextIO

import structlog
from structlog.contextvars import get_contextvars, merge_contextvars

from monitor.display_text import escape_control_characters, visible_in

CHATTY = ("apscheduler", "kafka", "httpx", "httpcore", "uvicorn.access", "py4j", "sqlalchemy")


def configure_logging(*, json: bool, level: str = "INFO", stream: TextIO = sys.stderr) -> None:
    """Write all logs to *stream*; call once, before the first log line."""
    shared: list[structlog.typing.Processor] = [
        merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(json=json, colours=stream.isatty()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)


def utc_now() -> datetime:
    """Return the time by the clock of the service: timezone-aware, UTC."""
    return datetime.now(UTC)


def new_run() -> str:
    """Return a short id for one round, used in its log lines, verdicts and notices."""
    return secrets.token_hex(4)


def current_run() -> str:
    """Return the run id of this thread; empty outside a run."""
    return str(get_contextvars().get("run", ""))


def _rendering(*, json: bool, colours: bool) -> list[structlog.typing.Processor]:
    if json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [_visible, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=_traceback)]


def _visible(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return visible_in(dict(event))


def _traceback(stream: TextIO, error: structlog.typing.ExcInfo) -> None:
    """Write a traceback without local variables, which may contain rows or secrets."""
    text = StringIO()
    structlog.dev.plain_traceback(text, error)
    stream.write(escape_control_characters(text.getvalue()))


M_ARENA_MAX = -8  # from malloc.h of glibc
MOST = 2


def limit_arenas() -> bool:
    """Limit the memory arenas to `MOST`; return whether the C library supports it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_ARENA_MAX, MOST))


SWITCH = 0.0005  # s: an answer needs several thread switches while a round computes
YOUNG, MIDDLE, OLD = 1_000, 2, 1_000_000  # with 50,000 young objects, one collection took 35 ms


def prefer_answers() -> None:
    """Make threads switch often, and garbage collection of old objects rare.

    With thousands of tables, such a collection stops all threads for half a second in each round.
    It finds nothing, because a round leaves no reference cycles behind.  See `collect_garbage`.
    """
    sys.setswitchinterval(SWITCH)
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def collect_garbage() -> None:
    """Collect old objects in reference cycles; for a job that runs rarely."""
    gc.collect()


MOST_WAIT = 0.1  # s: longest wait at once; it is limited by the work done before


@dataclass(eq=False)
class RequestPriority:
    """Gives requests priority over long computations; see the module's docstring."""

    clock: Callable[[], float] = time.monotonic
    _asking: int = 0
    _credit: float = MOST_WAIT
    _since: float | None = None
    _lock: threading.Condition = field(default_factory=threading.Condition)

    @property
    def asked(self) -> bool:
        """Whether a request is being answered now, so that long computations should yield."""
        return self._asking > 0

    @contextmanager
    def foreground(self) -> Iterator[None]:
        """Have priority over every computation that calls `give`."""
        with self._lock:
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                if not self._asking:
                    self._lock.notify_all()

    def give(self) -> None:
        """Wait until no request is being answered, within the limit."""
        if not self._asking:
            return
        with self._lock:
            began = self.clock()
            worked = MOST_WAIT if self._since is None else began - self._since
            self._credit = min(self._credit + worked, MOST_WAIT)
            self._lock.wait_for(lambda: not self._asking, self._credit)
            self._since = self.clock()
            self._credit = max(self._credit - (self._since - began), 0.0)
