"""`sluice load` behind its command line: read, run, write, and say in one line what was wrong."""

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from loadgen.load.clients import ClientError
from loadgen.load.live import LiveLines
from loadgen.load.results import document
from loadgen.load.run import Order, Surroundings, run
from loadgen.load.scenario import ScenarioError, load_scenario

BAD_INPUT = 2
SOMETHING_LOST = 1


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for."""

    scenario: Path
    service_url: str
    verify_url: str | None
    seconds: float
    drain_s: float
    out: Path | None
    """Where the result goes; None for standard output."""
    live: str | None
    """Where the counts on the way go: a file's name, `-` for standard output, None for nowhere."""


def main(request: Request) -> int:
    """Do it; returns the exit code: 0 all well, 1 something was lost, repeated or refused, 2 bad input."""
    try:
        result = _result(request)
    except (ScenarioError, ClientError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}: give a file that can be written")
    for fault in result["faults"]:
        _say(fault)
    return SOMETHING_LOST if result["faults"] else 0


def _result(request: Request) -> dict[str, Any]:
    scenario = load_scenario(request.scenario)
    order = Order(scenario, request.service_url, request.verify_url, request.seconds, request.drain_s)
    with ExitStack() as stack:
        stack.enter_context(_no_collector())
        stdout = stack.enter_context(_own_stdout())
        out = stdout if request.out is None else stack.enter_context(_writable(request.out))
        around = Surroundings()
        if request.live is not None:
            live = stdout if request.live == "-" else stack.enter_context(_writable(Path(request.live)))
            around = Surroundings(progress=LiveLines(live))
        result = document(run(order, around), scenario.limits)
        out.write(json.dumps(result, indent=1) + "\n")
    return result


def _writable(file: Path) -> TextIO:
    return file.open("w", encoding="utf-8")


@contextmanager
def _no_collector() -> Iterator[None]:
    """Nothing here makes cycles, and a full collection stops both ends for 20 ms and more (measured)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _own_stdout() -> Iterator[TextIO]:
    """Standard output for our lines alone: the native client logs to file descriptor 1, which is stderr meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(kept, "w", encoding="utf-8", closefd=False) as out:
            yield out
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _fail(text: str) -> int:
    for line in text.splitlines():
        _say(line)
    return BAD_INPUT


def _say(line: str) -> None:
    sys.stderr.write(f"sluice load: {line}\n")
