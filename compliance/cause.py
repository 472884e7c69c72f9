"""One line on what an error of Spark's comes from, and not on how it came to be told."""

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException

_TRACEBACK = "Traceback (most recent call last):"
_CALL_OF_JAVA = ": An error occurred while calling "
_CAUSED = "Caused by: "
_SAYS_NOTHING = (
    "Exception thrown in awaitResult",
    "Job aborted due to stage failure",
    "Encountered error while reading",
)
"""What Spark says of the causes below; the innermost of these has the reason."""
_READING = re.compile(r"while reading file (\S+)\.(?:\s|$)")


def cause(error: Exception) -> str:
    """The cause, as Python or Java put it; with the file at which it came up, where that is not in it."""
    said = _of_java(error) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line for line in said.splitlines() if line.strip()]
    if _TRACEBACK in said:
        lines = _below_traceback(lines) or lines
    elif isinstance(error, StreamingQueryException):
        lines = [line for line in lines if line.startswith(_CAUSED.strip())] or lines
    return _innermost(lines) if lines else type(error).__name__


def _of_java(error: Py4JJavaError) -> str:
    # Py4J's own first line names an object number, Java's names the cause.
    said = str(error.java_exception.toString())
    return f"{said}\n{error}" if _says_nothing(said) else said


def _below_traceback(lines: list[str]) -> list[str]:
    """What a batch fails at is raised in Python, which Java calls, and tells with all that was called."""
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


def _says_nothing(said: str) -> bool:
    return any(words in said for words in _SAYS_NOTHING)
