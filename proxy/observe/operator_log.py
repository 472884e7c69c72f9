"""The operator's log: few lines, JSON on stderr (or text on a terminal).

An event that any client can cause is logged once in a while, with the number of times that it happened: a client that
floods the proxy must not flood its log. While clients are served a thread writes the lines (`lines_by_thread`), as
whoever reads them may stand still: a log driver, or `tee` with a full disk.
"""

import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TextIO

import structlog
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError
from structlog.typing import EventDict

from protocol.printable import printable
from proxy.config.sections import OperatorLog
from proxy.counters import Counters
from proxy.observe.line_queue import END_S, LineQueue

MOST_TEXT = 5000
"""Most characters of one value of a line: room for a name of 4,096 in its sentence, or the end of a traceback."""


_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR, "exception": logging.ERROR}


class _Output:
    """Writes lines to standard error: at once, or by a thread while there is a queue."""

    def __init__(self) -> None:
        self.file: TextIO = sys.stderr
        self.queue: LineQueue | None = None
        self.lost_before = 0

    def write(self, line: str) -> None:
        queue = self.queue  # another thread may end it
        if queue is None:
            self.file.write(line + "\n")
            self.file.flush()
        else:
            queue.write(self.encoded(line))

    def encoded(self, line: str) -> bytes:
        return f"{line}\n".encode(self.file.encoding or "utf-8", "backslashreplace")


_output = _Output()


class _Logger:
    """A logger of structlog, whose methods get whole lines."""

    def msg(self, line: str) -> None:
        _output.write(line)

    debug = info = warning = error = critical = exception = msg


def lines_lost() -> int:
    """Return the number of lines of this process that standard error did not take."""
    return _output.lost_before + (0 if _output.queue is None else _output.queue.lost)


@contextmanager
def lines_by_thread(end_s: float = END_S) -> Iterator[None]:
    """Have a thread write all lines while the block lasts, then write those that wait.

    Args:
        end_s: Seconds in which they must be written at the end; if they are not, all further lines are lost.
    """
    try:
        descriptor = _output.file.fileno()
    except (OSError, ValueError):  # it is no file of the system's
        yield
        return
    _output.file.flush()
    queue = _output.queue = LineQueue(descriptor, _loss_line)
    try:
        with _reports_as_lines():
            yield
    finally:
        if queue.close(end_s):
            _output.queue = None
            queue.write_left(end_s)
            _output.lost_before += queue.lost


@contextmanager
def _reports_as_lines() -> Iterator[None]:
    """Make lines of what libraries and Python report, which Python would write itself, and wait for standard error.

    These are records of `logging`, warnings, errors where no caller is (`__del__`), and ends of threads by an error.
    """
    lines, of_python = _LibraryLines(logging.WARNING), logging.getLogger("python")

    def log_unraisable(error: "sys.UnraisableHookArgs") -> None:
        cause = None if error.exc_value is None else (error.exc_type, error.exc_value, error.exc_traceback)
        of_python.error("%s: %r", error.err_msg or "Exception ignored in", error.object, exc_info=cause)

    def log_end(end: threading.ExceptHookArgs) -> None:
        if end.exc_value is not None and not isinstance(end.exc_value, SystemExit):
            cause = end.exc_type, end.exc_value, end.exc_traceback
            of_python.error("Exception in thread %s", end.thread and end.thread.name, exc_info=cause)

    hooks = sys.unraisablehook, threading.excepthook
    logging.getLogger().addHandler(lines)
    logging.captureWarnings(True)
    sys.unraisablehook, threading.excepthook = log_unraisable, log_end
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = hooks
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(lines)


async def lines_written(within_s: float = 1.0) -> None:
    """Return when all lines so far are written, or after that time: before other processes are told what they say."""
    if _output.queue is None:
        return
    loop, written = asyncio.get_running_loop(), asyncio.Event()

    def announce() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(written.set)

    _output.queue.then(announce)
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await written.wait()


class _LibraryLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().error(
            "reported by a library", library=record.name, error=_text_of(record), exc_info=record.exc_info
        )


def _text_of(record: logging.LogRecord) -> str:
    """Return the text of a record, or what it is made of: no caller gets an error for a record that is wrong."""
    try:
        return record.getMessage().strip()
    except Exception as error:  # noqa: BLE001 - of the library's own objects
        made_of = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        return f"{made_of} (its values do not fit: {type(error).__name__})"


def _loss_line(lines: int) -> bytes:
    """Return the line that says that lines are lost; it is at the highest level, so that each level has it."""
    made: list[str] = []
    log = structlog.wrap_logger(_LineOf(made.append), wrapper_class=structlog.BoundLogger)
    log.error("lines of this log are lost: standard error did not take them", lines=lines)
    return b"".join(map(_output.encoded, made))


class _LineOf:
    """A logger of structlog that calls a function with each line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.error = write


@dataclass(slots=True)
class _Form:
    """The form of all lines, also of loggers that were bound before it changed."""

    process: int | None = None
    level: int = logging.INFO
    is_json: bool = True


_form = _Form()


def set_up_operator_log(process: int | None = None) -> None:
    """Configure the operator's log; to be called once, before the first line.

    Args:
        process: The number of this process, if it is one of several: each line names it.
    """
    _form.process, _output.file = process, sys.stderr
    choose_form(OperatorLog())
    in_columns = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    in_json = structlog.processors.JSONRenderer()

    def rendered(logger: object, method: str, line: EventDict) -> str | bytes:
        return (in_json if _form.is_json else in_columns)(logger, method, line)

    structlog.configure(
        processors=[
            hear_warning,
            _drop_below_level,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _cut_texts,
            _name_process,
            rendered,
        ],
        logger_factory=_Logger,
    )


def choose_form(settings: OperatorLog) -> None:
    """Put level and format in force, from the next line on."""
    _form.level = _LEVELS[settings.level]
    _form.is_json = settings.format == "json" or (settings.format == "auto" and not sys.stderr.isatty())


def _drop_below_level(_logger: object, method: str, line: EventDict) -> EventDict:
    if _LEVELS[method] < _form.level:
        raise structlog.DropEvent
    return line


def _name_process(_logger: object, _method: str, line: EventDict) -> EventDict:
    return line if _form.process is None else {"process": _form.process, **line}


_HEARD = ContextVar[list[str] | None]("heard", default=None)


@contextmanager
def warnings_heard() -> Iterator[list[str]]:
    """Yield a list that gets the warnings which this task and its threads log while the block lasts, a line each."""
    heard: list[str] = []
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


def hear_warning(_logger: object, method: str, line: EventDict) -> EventDict:
    """Give a line about a state that lasts, and not an exception, to `warnings_heard`; a processor of structlog."""
    heard = _HEARD.get()
    if heard is not None and method in {"warning", "error"} and "exc_info" not in line:
        heard.append(_in_words(line))
    return line


def _in_words(line: EventDict) -> str:
    """Return a line about a key or a file as people write it; fields beside these are added by name."""
    rest = {name: str(value) for name, value in line.items()}
    text, key, file = rest.pop("event"), rest.pop("key", ""), rest.pop("file", "")
    reason = rest.pop("reason", "") if file else ""
    if reason and reason.startswith(file):  # it names the file in the folder, and says all
        text = reason
    else:
        text = ": ".join(part for part in (key, file, reason or text) if part) + (f" ({text})" if reason else "")
    details = ", ".join(f"{name}={value}" for name, value in rest.items())
    return f"{text}: {details}" if details else text


def _cut_texts(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Shorten and escape texts, which others may have chosen; of a traceback the end is kept, which has the cause."""
    for name, value in line.items():
        if not isinstance(value, str):
            continue
        if len(value) > MOST_TEXT:
            value = f"… {value[-MOST_TEXT:]}" if name == "exception" else f"{value[:MOST_TEXT]} …"  # noqa: PLW2901
        line[name] = "\n".join(map(printable, value.split("\n"))) if name == "exception" else printable(value)
    return line


class _AsOwnLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().error(
            "admin address: the HTTP library reports an error", error=_text_of(record), exc_info=record.exc_info
        )


def _is_no_clients_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | RequestPayloadError))


def admin_logger() -> logging.Logger:
    """Return the logger for aiohttp, whose errors become lines of the operator's log.

    A request that is no HTTP, too long or broken is answered and not logged: any client could fill the log.
    """
    logger = logging.Logger("admin", logging.WARNING)  # noqa: LOG001 - with no parent, which would print it too
    logger.addHandler(_AsOwnLines())
    logger.addFilter(_is_no_clients_fault)
    return logger


INTERVAL_NS = 10_000_000_000
"""Time between two lines about the same event."""
MOST_KNOWN = 100
"""Most clients with lines of their own within that time; the events of others are summed up."""


class ThrottledLog:
    """Decides when a line is due, and how many occurrences it counts.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._logged_at: dict[tuple[str, str], int] = {}
        """In order of the last lines, the oldest first."""
        self._since: Counter[tuple[str, str]] = Counter()

    def due(self, event: str, owner: str = "") -> int:
        """Count an event; return how often it happened since its last line, or 0 if no line is due.

        Args:
            event: The event, one of a few.
            owner: The client or tenant of the event, which has lines of its own as long as there are not too many.
        """
        now = self._clock()
        key = self._key(event, owner, now)
        self._since[key] += 1
        logged_at = self._logged_at.get(key)
        if logged_at is not None and now - logged_at < INTERVAL_NS:
            return 0
        self._logged_at.pop(key, None)
        self._logged_at[key] = now
        return self._since.pop(key)

    def _key(self, event: str, owner: str, now: int) -> tuple[str, str]:
        key = event, owner
        if not owner or key in self._logged_at:
            return key
        while len(self._logged_at) >= MOST_KNOWN:
            oldest = next(iter(self._logged_at))
            if now - self._logged_at[oldest] < INTERVAL_NS:
                return event, ""
            del self._logged_at[oldest]
            self._since[oldest[0], ""] += self._since.pop(oldest, 0)
        return key


class AdmissionLog:
    """Logs bounds that refuse, with the number of refusals since the last line.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._lines = ThrottledLog(clock)
        self._log = structlog.get_logger()

    def refused(self, bound: str, message: str, client: str) -> None:
        """Log that a bound, one of a few, refused a client."""
        times = self._lines.due(bound)
        if times:
            self._log.warning("not admitted", bound=bound, detail=message, client=client, refused=times)


class OversizedBatchLog:
    """Logs delivered batches that declare too many messages, with their number since the last line.

    Args:
        counters: Count the batches.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, counters: Counters, clock: Callable[[], int]) -> None:
        self._counters = counters
        self._lines = ThrottledLog(clock)

    def met(self, messages: int, client: str) -> None:
        """Count a batch that was delivered to `client` and may declare `messages` messages, of which fewer count."""
        self._counters.batches_not_believed += 1
        batches = self._lines.due("batch")
        if batches:
            structlog.get_logger().warning(
                "a delivered batch declares more messages than publish.max_batch_messages, "
                "or has too many fields; it counts as that many",
                messages=messages,
                client=client,
                batches=batches,
            )


_MOST_TENANTS = 1000
"""Most tenants over their share whose line is remembered."""


class HoldLog:
    """Logs when a tenant goes over its share, and when it is back: for each warning once.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._lines = ThrottledLog(clock)
        self._is_due: set[str] = set()
        self._log = structlog.get_logger()

    def on_over_share_changed(self, tenant: str, is_over: bool, held: int) -> None:  # noqa: FBT001 - the new state
        """Log that a tenant went over its share of the hold budget, or came back under it."""
        if is_over:
            self._went_over(tenant, held)
        elif tenant in self._is_due:
            self._is_due.discard(tenant)
            self._log.info("hold budget: Sluice reads this tenant's connections again", tenant=tenant, bytes=held)

    def _went_over(self, tenant: str, held: int) -> None:
        if not self._lines.due("over", tenant):
            return
        if len(self._is_due) >= _MOST_TENANTS:
            self._is_due.clear()
        self._is_due.add(tenant)
        self._log.warning(
            "hold budget: this tenant holds as much as is free; Sluice stops reading its connections with held frames",
            tenant=tenant,
            bytes=held,
        )
