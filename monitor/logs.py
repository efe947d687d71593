"""Structured logs: JSON for machines, colours for a terminal; the run's id on every line.

Libraries log through the standard library; their lines go the same way.
"""

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
