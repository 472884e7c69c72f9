from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException

from compliance.session import cause

OF_BATCH = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error \
occurred in the user provided function in foreach batch sink. Reason: Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "OSError: [Errno 28] No space left on device: '/out'\n",
            "OSError: [Errno 28] No space left on device: '/out'",
        ),
        (
            (
                "py4j.protocol.Py4JJavaError: An error occurred while calling o265.save.\n"
                ": java.lang.NoSuchMethodError: 'void LogicalRDD'\n\tat org.apache.spark.A.b(A.scala:1)\nCaused by: x\n"
            ),
            "java.lang.NoSuchMethodError: 'void LogicalRDD'",
        ),
        (
            (
                "PythonException: An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
                "  File 'part.py'\nMemoryError: no more\n"
            ),
            "MemoryError: no more",
        ),
        ("", OF_BATCH.splitlines()[0]),
    ],
)
def test_of_a_batch_that_fails_it_is_what_python_raised_or_java_below_it(text, expected):
    assert cause(StreamingQueryException(OF_BATCH + text)) == expected


def test_of_a_stream_it_is_what_java_says_was_the_cause():
    assert cause(StreamingQueryException("[STREAM_FAILED] of\n\nCaused by: the disk\nCaused by: x")) == (
        "Caused by: the disk"
    )
    assert cause(StreamingQueryException("\n[STREAM_FAILED] of")) == "[STREAM_FAILED] of"


def test_of_others_it_is_the_first_line_of_java_or_the_name():
    java: Any = type("Java", (), {"toString": lambda _: "java.lang.Error: no\n\tat A.b", "_target_id": "o1"})()
    assert cause(Py4JJavaError("o1.call", java)) == "java.lang.Error: no"
    assert cause(PySparkException("")) == "PySparkException"


AWAITED = "org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat A.b(A.scala:1)\n"
DENIED = (
    "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading "
    "file file:///log/b.jsonl. File does not exist. SQLSTATE: KD001\n\tat A.b(A.scala:1)\n"
    "Caused by: java.io.FileNotFoundException: /log/b.jsonl (Permission denied)\n\t... 1 more\n"
)
COLON = (
    "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
    "file:///log/a:b.jsonl.  SQLSTATE: KD001\n\tat A.b(A.scala:1)\n"
    "Caused by: java.lang.IllegalArgumentException: java.net.URISyntaxException: Relative path: .a:b.jsonl.crc\n"
    "Caused by: java.net.URISyntaxException: Relative path: .a:b.jsonl.crc\n\t... 1 more\n"
)


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        (DENIED, "java.io.FileNotFoundException: /log/b.jsonl (Permission denied)"),
        (COLON, "file:///log/a:b.jsonl: java.net.URISyntaxException: Relative path: .a:b.jsonl.crc"),
        ("", "org.apache.spark.SparkException: Exception thrown in awaitResult:"),
    ],
)
def test_of_what_says_nothing_it_is_the_innermost_cause_with_the_file(below, expected):
    """As Spark 4.3 says it of a file that may not be read, and of one whose name has a colon."""
    raised = f"py4j.protocol.Py4JJavaError: An error occurred while calling o153.getResult.\n: {AWAITED}{below}"
    assert cause(StreamingQueryException(OF_BATCH + raised)) == expected
    java: Any = type("Java", (), {"toString": lambda _: AWAITED.splitlines()[0], "_target_id": "o1"})()
    assert cause(Told(AWAITED + below, java)) == expected


class Told(Py4JJavaError):
    """An error that has been told its trace, which Py4J would ask Java for."""

    def __init__(self, trace, java):
        super().__init__("o1.call", java)
        self.trace = trace

    def __str__(self):
        return f"An error occurred while calling o1.call.\n: {self.trace}"
