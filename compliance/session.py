"""The Spark session: `local[*]` on any machine, whatever `spark-submit` says elsewhere."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from compliance.java import find_java

# Every batch of the stream has few rows a partition; 200, Spark's default, costs three times the time here.
SHUFFLE_PARTITIONS = 2
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
    # Code generated for rows this wide is longer than what the virtual machine compiles: whole, it would be
    # interpreted; in pieces it is compiled.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # What a Python worker gets at once: 10,000 lines, but no more than this, however long they are.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),
    # What filters imply is worked out for every column: minutes, for a row this wide, and nothing is gained.
    "spark.sql.constraintPropagation.enabled": "false",
}
_LOCAL_SETTINGS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    # It must start on a machine whose own name does not resolve, too.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextlib.contextmanager
def spark_session(log: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """A session that is stopped at the end; Spark's own chatter goes to a file.

    Args:
        log: Where the standard error of the Java process goes.
        more: Settings of the user's own, which come before ours.

    Raises:
        JavaNotFoundError: If no Java can be found. (Not under `spark-submit`, which has started one.)
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = _SETTINGS if submitted else _SETTINGS | _LOCAL_SETTINGS
    if not submitted:
        os.environ["JAVA_HOME"] = str(find_java(_tell))
        # Spark's workers would take whatever `python3` is on PATH.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("sluice").config(map={**settings, **more})
    with contextlib.nullcontext() if submitted else _standard_error_to(log):
        session = builder.getOrCreate()
    _quiet(session)
    try:
        yield session
    finally:
        session.stop()


def _tell(words: str) -> None:
    print(f"sluice: {words}", file=sys.stderr)  # noqa: T201 - who set it waits for the command's answer


def _quiet(session: SparkSession) -> None:
    """Python workers report to a server of this process: where Java dies, that it says so helps no operator."""

    def say_nothing(request: object, client_address: object) -> None: ...

    session.sparkContext._accumulatorServer.handle_error = say_nothing  # type: ignore[method-assign]  # noqa: SLF001


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
