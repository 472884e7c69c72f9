"""The operator's log: few lines, JSON on stderr (or text on a terminal)."""

import logging
import sys

import structlog
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError


def set_up_operator_log() -> None:
    """Call once, before the first line."""
    is_terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


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
