"""One line on what an error of Spark's comes from, and not on how it came to be told."""

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException

_TRACEBACK = "Traceback (most recent call last):"
_CALL_OF_JAVA = ": An error occurred while calling "


def cause(error: Exception) -> str:
    """The cause, as Python or Java put it."""
    # Py4J's own first line names an object number, Java's names the cause.
    said = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line for line in said.splitlines() if line.strip()]
    if _TRACEBACK in said:
        lines = _below_traceback(lines) or lines
    elif isinstance(error, StreamingQueryException):
        lines = [line for line in lines if line.startswith("Caused by")] or lines
    return lines[0].strip() if lines else type(error).__name__


def _below_traceback(lines: list[str]) -> list[str]:
    """What a batch fails at is raised in Python, which Java calls, and tells with all that was called."""
    (*_, last) = (number for number, line in enumerate(lines) if _TRACEBACK in line)
    below = [line for line in lines[last + 1 :] if not line.startswith((" ", "\t"))]
    is_javas = bool(below) and _CALL_OF_JAVA in below[0]
    return [line.removeprefix(": ") for line in below[is_javas:]]
