"""The operator's log: few lines, JSON on stderr (or text on a terminal)."""

import logging
import sys

import structlog
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError
from structlog.typing import EventDict

MOST_TEXT = 5000
"""Characters of one value of a line: of a name of 4,096 and what is said of it, of a traceback's end."""


def set_up_operator_log() -> None:
    """Call once, before the first line."""
    is_terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _cut,
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def _cut(_logger: object, _method: str, line: EventDict) -> EventDict:
    """No text that somebody else had a part in makes a line long; what matters of a traceback stands at its end."""
    for name, value in line.items():
        if isinstance(value, str) and len(value) > MOST_TEXT:
            line[name] = f"… {value[-MOST_TEXT:]}" if name == "exception" else f"{value[:MOST_TEXT]} …"
    return line


class _AsOwnLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().error("admin address", error=record.getMessage(), exc_info=record.exc_info)


def _is_no_clients_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | RequestPayloadError))


def admin_logger() -> logging.Logger:
    """For aiohttp: its errors become lines of the operator's log.

    A request that is no HTTP, too long or broken is answered and not logged: anybody could fill the log.
    """
    logger = logging.Logger("admin", logging.WARNING)  # noqa: LOG001 - with no parent, which would print it too
    logger.addHandler(_AsOwnLines())
    logger.addFilter(_is_no_clients_fault)
    return logger
