"""The official pulsar-perf, from the same jars as the broker."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from loadgen.real.jars import ProcessFailed
from loadgen.real.process import Program, TetheredProcess

OUTSTANDING = 500
"""Messages without a receipt (`-o`)."""
_PERF_CLASS = "org.apache.pulsar.testclient.PulsarPerfTestTool"
# Its histograms alone are 200 MB, before the first message.
_MEMORY = ("-Xms512m", "-Xmx1g")
_CONSUMES, _PRODUCES, _PRODUCED = "Start receiving from", "Created 1 producers", "DONE (reached the maximum number"
_START_S, _SLOWEST = 60.0, 10
_POLL_S = 0.02
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Traffic:
    """The messages that are produced and consumed.

    Attributes:
        rate: Messages a second, at most.
        size: Bytes of each.
        is_batched: As the client does by default.
        messages: How many.
    """

    rate: int
    size: int
    is_batched: bool
    messages: int


def pass_through(service_url: str, topic: str, traffic: Traffic, folder: Path) -> float:
    """Produce and consume the messages at this address; return the messages produced a second.

    Raises:
        RealPulsarError: If one of the two cannot be had, ends with an error or is not done in ten times its time.
    """
    consumer = _start(folder / "consumer", service_url, (*consuming(traffic), topic))
    producer = None
    try:
        _await(consumer, _CONSUMES, _START_S)
        producer = _start(folder / "producer", service_url, (*producing(traffic), topic))
        patience_s = _START_S + _SLOWEST * traffic.messages / traffic.rate
        _await(producer, _PRODUCED, patience_s)
        _await_end(consumer, patience_s)
        took = seconds_between(producer.log_path.read_text(errors="replace"), _PRODUCES, _PRODUCED)
        return traffic.messages / took
    finally:
        # the producer would wait for the next of its reports, up to ten seconds
        for process in (consumer, producer):
            if process is not None:
                process.kill()


def producing(traffic: Traffic) -> tuple[str, ...]:
    """Return the producer's arguments, without address and topic."""
    rate = ("-r", str(traffic.rate), "-m", str(traffic.messages), "-s", str(traffic.size), "-o", str(OUTSTANDING))
    return ("produce", *rate, *(() if traffic.is_batched else ("--disable-batching",)))


def consuming(traffic: Traffic) -> tuple[str, ...]:
    """Return the consumer's arguments, without address and topic."""
    return ("consume", "-m", str(traffic.messages), "-ss", "perf", "-sp", "Earliest")


def seconds_between(log: str, first: str, last: str) -> float:
    """Return the seconds from the line with one text to that with the other, by the time of day they begin with.

    Raises:
        ProcessFailed: If a tool is missing.
    """
    times = []
    for text in (first, last):
        line = re.search(rf"^(\d\d):(\d\d):(\d\d\.\d+).*{re.escape(text)}", log, re.MULTILINE)
        if line is None:
            raise ProcessFailed(f"pulsar-perf did not say: {text}", log[-2000:])
        times.append(int(line[1]) * 3600 + int(line[2]) * 60 + float(line[3]))
    return (times[1] - times[0]) % _DAY_S


def _start(folder: Path, service_url: str, arguments: tuple[str, ...]) -> TetheredProcess:
    folder.mkdir(parents=True)
    config = folder / "client.conf"
    config.write_text(f"brokerServiceUrl={service_url}\n")
    command, *rest = arguments
    program = Program(_PERF_CLASS, (str(config), command, "-u", service_url, *rest), _MEMORY)
    process = TetheredProcess(program.command(folder), folder / "log")
    process.name = f"pulsar-perf {command}"
    return process


def _await(process: TetheredProcess, text: str, longest_s: float) -> None:
    """Until it has said this."""
    deadline = time.monotonic() + longest_s
    while True:
        has_ended = process.exit_code is not None  # looked at first: it may say it and end
        if text in process.log_path.read_text(errors="replace"):
            return
        if has_ended:
            process.check_running()
        _check_time(process, deadline, longest_s)


def _await_end(process: TetheredProcess, longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while process.exit_code is None:
        _check_time(process, deadline, longest_s)
    if process.exit_code:
        process.check_running()


def _check_time(process: TetheredProcess, deadline: float, longest_s: float) -> None:
    if time.monotonic() > deadline:
        raise ProcessFailed(f"{process.name} was not done within {longest_s:g} s", process.last_lines())
    time.sleep(_POLL_S)
