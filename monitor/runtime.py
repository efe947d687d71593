"""Configures logs, memory arenas and thread scheduling of the service process.

Logs are JSON for machines and coloured text for a terminal. Every line of a monitoring round
carries its run id. Libraries that log through the standard library use the same output.

By default glibc uses up to eight memory arenas per core, and each keeps what its threads have
freed. Measured with 1,000 mirrors whose logs a dozen threads read: 1.3 GB and growing, and 0.8
GB with two arenas.

`prefer_answers` makes threads switch often, so that requests are answered while others compute.
It also makes garbage collection of old objects rare, so a rare job must call `look_through`.
"""

import ctypes
import gc
import logging
import secrets
import sys
from io import StringIO
from typing import TextIO

import structlog
from structlog.contextvars import get_contextvars, merge_contextvars

from monitor.terminal import visible, visible_in

CHATTY = ("apscheduler", "kafka", "httpx", "httpcore", "uvicorn.access", "py4j", "sqlalchemy")


def configure(*, json: bool, level: str = "INFO", stream: TextIO = sys.stderr) -> None:
    """Send everything to *stream*; call once, before the first line."""
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


def new_run() -> str:
    """A short name for one round, for its log lines, verdicts and notices."""
    return secrets.token_hex(4)


def current_run() -> str:
    """The run that this thread is in; empty outside of one."""
    return str(get_contextvars().get("run", ""))


def _rendering(*, json: bool, colours: bool) -> list[structlog.typing.Processor]:
    if json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [_visible, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=_traceback)]


def _visible(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return visible_in(dict(event))


def _traceback(stream: TextIO, error: structlog.typing.ExcInfo) -> None:
    """Without local variables, which the default one prints: rows, secrets."""
    text = StringIO()
    structlog.dev.plain_traceback(text, error)
    stream.write(visible(text.getvalue()))


M_ARENA_MAX = -8  # of glibc's malloc.h
MOST = 2


def limit_arenas() -> bool:
    """Take memory from few pools, from now on; whether this C library knows how to."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_ARENA_MAX, MOST))


SWITCH = 0.0005  # s: an answer takes several turns, and waits for each while a round computes
YOUNG, MIDDLE, OLD = 1_000, 2, 1_000_000  # of 50,000 at once a look took 35 ms


def prefer_answers() -> None:
    """Have threads take turns often, and nobody wait while all that is old is looked through.

    Of thousands of tables that takes half a second, once in each round, in which no thread runs;
    it finds nothing, since what a round leaves behind is in no circle.  See `look_through`.
    """
    sys.setswitchinterval(SWITCH)
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def look_through() -> None:
    """Free what has grown old in a circle; for a job that runs rarely."""
    gc.collect()
