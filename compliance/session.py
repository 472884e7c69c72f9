"""The Spark session of this process, rows of its own as a data frame, and in a line what went wrong in it.

`createDataFrame` would have Python workers started to hand rows over, on every executor: seconds for a few rows, and
executors need no Python for anything else.
"""

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compliance.java import find_java
from compliance.log_folder import on_this_machine

# Every batch of the stream has few rows a partition; 200, Spark's default, costs three times the time here.
SHUFFLE_PARTITIONS = 2
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Each query has its plan written out for the user interface.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
    # Code generated for rows this wide is longer than what the virtual machine compiles: whole, it would be
    # interpreted; in pieces it is compiled.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # What a Python worker gets at once: 10,000 lines, but no more than this, however long they are.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),
    # PySpark reports the source line of each column to Java, where nothing reads it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # What filters imply is worked out for every column: minutes, for a row this wide, and nothing is gained.
    "spark.sql.constraintPropagation.enabled": "false",
}
_LOCAL_SETTINGS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    # Spark must also start on a machine whose own name does not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextlib.contextmanager
def spark_session(
    log: Path, more: Mapping[str, str] = MappingProxyType({}), *, is_quiet: bool = False
) -> Iterator[SparkSession]:
    """Start a session that is stopped at the end; Spark's own chatter goes to a file.

    Args:
        log: Where the standard error of the Java process goes.
        more: Settings of the user's own, which come before ours.
        is_quiet: Do not say that a Java is passed over.

    Raises:
        JavaNotFoundError: If no Java can be found. (Not under `spark-submit`, which has started one.)
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = _SETTINGS if submitted else _SETTINGS | _LOCAL_SETTINGS
    if not submitted:
        os.environ["JAVA_HOME"] = str(find_java() if is_quiet else find_java(_note))
        # Spark's workers would take whatever `python3` is on PATH.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("sluice").config(map={**settings, **more})
    with contextlib.nullcontext() if submitted else _standard_error_to(log):
        session = builder.getOrCreate()
    _quiet(session)
    _keep_classes(session)
    try:
        yield session
    finally:
        # Where Java is gone, PySpark warns in two lines of what the caller reports in one.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            session.stop()


@contextlib.contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give a session other settings for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def _note(words: str) -> None:
    print(f"sluice: {words}", file=sys.stderr)  # noqa: T201 - who set it waits for the command's answer


def _quiet(session: SparkSession) -> None:
    """Python workers report to a server of this process: where Java dies, that it says so helps no operator."""

    def say_nothing(request: object, client_address: object) -> None: ...

    session.sparkContext._accumulatorServer.handle_error = say_nothing  # type: ignore[method-assign]  # noqa: SLF001


_CLASSES = ("PythonUtils", "functions", "org.apache.spark.sql.functions")


def _keep_classes(session: SparkSession) -> None:
    """PySpark asks Java for them by name at each column, and Java searches all jars for some each time."""
    java = session.sparkContext._jvm  # noqa: SLF001
    for name in _CLASSES:
        setattr(java, name, getattr(java, name))


@contextlib.contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Processes started inside inherit the file as their standard error."""
    kept = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_TRACEBACK = "Traceback (most recent call last):"
_CALL_OF_JAVA = ": An error occurred while calling "
_CAUSED = "Caused by: "
_SAYS_NOTHING = (
    "Exception thrown in awaitResult",
    "Job aborted due to stage failure",
    "Encountered error while reading",
)
"""Spark's words around the causes below; the innermost cause has the reason."""
_READING = re.compile(r"while reading file (\S+)\.(?:\s|$)")


def cause(error: Exception) -> str:
    """Return the cause, as Python or Java put it; with the file at which it came up, where that is not in it."""
    text = _of_java(error) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    if _TRACEBACK in text:
        lines = _below_traceback(lines) or lines
    elif isinstance(error, StreamingQueryException):
        lines = [line for line in lines if line.startswith(_CAUSED.strip())] or lines
    return _innermost(lines) if lines else type(error).__name__


def _of_java(error: Py4JJavaError) -> str:
    # Py4J's own first line names an object number, Java's names the cause.
    text = str(error.java_exception.toString())
    return f"{text}\n{error}" if _says_nothing(text) else text


def _below_traceback(lines: list[str]) -> list[str]:
    """Return the error of a batch without the calls that led to it: Python raises it, and Java has called Python."""
    (*_, last) = (number for number, line in enumerate(lines) if _TRACEBACK in line)
    below = [line for line in lines[last + 1 :] if not line.startswith((" ", "\t"))]
    is_javas = bool(below) and _CALL_OF_JAVA in below[0]
    return [line.removeprefix(": ") for line in below[is_javas:]]


def _innermost(lines: list[str]) -> str:
    first = lines[0].strip()
    if not _says_nothing(first):
        return first
    causes = [line.removeprefix(_CAUSED).strip() for line in lines if line.startswith(_CAUSED)]
    if not causes:
        return first
    named = next(filter(None, map(_READING.search, [first, *causes])), None)
    file = named[1] if named else ""
    return causes[-1] if file.removeprefix("file://") in causes[-1] else f"{file}: {causes[-1]}"


def _says_nothing(text: str) -> bool:
    return any(words in text for words in _SAYS_NOTHING)


_ROOM = "make room there"
_RIGHT = "let this user read and write there"
_REMEDIES = {
    "No space left on device": _ROOM,
    "Disk quota exceeded": _ROOM,
    "Permission denied": _RIGHT,
    "Operation not permitted": _RIGHT,
    "Read-only file system": "have it mounted for writing",
    "Relative path in absolute URI": "rename the file: no name that Hadoop reads may have a colon",
}
"""The remedy for an error, by the system's words, which Java and Python pass on. The last words are Hadoop's, of file
names that are legal elsewhere."""
_MAY_READ = "let this user read there"
_LOG = "--access-log"
_UNNAMED = "--out or Spark's own folder (--spark spark.local.dir=DIR)"


def disk_trouble(text: str, folders: Mapping[str, str]) -> str | None:
    """Return a line on an error that a folder causes, with the remedy; None for any other error.

    Args:
        text: The root cause in Java's or Python's words, most often with the file.
        folders: Those that the user named, paths or URLs, by their options.
    """
    remedy = next((remedy for reason, remedy in _REMEDIES.items() if reason in text), None)
    if remedy is None:
        return None
    in_text = [
        (option, folder)
        for option, folder in folders.items()
        if folder and str(on_this_machine(folder) or folder) in text
    ]
    # The longest: one may lie in the other.
    named = max(in_text, key=_length, default=None)
    if named and named[0] == _LOG and remedy == _RIGHT:
        remedy = _MAY_READ
    return f"{' '.join(named) if named else _UNNAMED}: {text}; {remedy}"


def _length(named: tuple[str, str]) -> int:
    return len(named[1])


def local_frame(spark: SparkSession, rows: Sequence[Sequence[object]], types: Mapping[str, str]) -> DataFrame:
    """Return a data frame of rows, few enough for a plan to hold.

    Args:
        spark: The session.
        rows: Values in the order of the columns; of types that JSON has.
        types: Of the columns, as SQL writes them, by name.
    """
    content = msgspec.json.encode([dict(zip(types, row, strict=True)) for row in rows]).decode()
    fields = ",".join(f"`{name}`:{kind}" for name, kind in types.items())
    parsed = F.from_json(F.lit(content), f"array<struct<{fields}>>")
    return spark.range(0, 1, 1, 1).select(F.inline(parsed))
