"""The kernel's counts of a process, all its threads together, and Sluice's own metrics. Linux only."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from adminrest.client import AdminClient

PROC = Path("/proc")
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Used:
    """The CPU time of a process.

    Attributes:
        cpu_s: Seconds of a CPU.
        wake_ups: Times at which a thread had been waiting and went on.
    """

    cpu_s: float
    wake_ups: int


def used(pid: int, proc: Path = PROC) -> Used:
    """Read what the process has used so far.

    Threads that have ended do not count; no measured process ends threads.
    """
    tasks = list((proc / str(pid) / "task").iterdir())
    cpu_ns = sum(cpu_of(_text(task / "schedstat")) for task in tasks)
    return Used(cpu_ns / _NS, sum(field_of(_text(task / "status"), "voluntary_ctxt_switches") for task in tasks))


def children(pid: int, proc: Path = PROC) -> list[int]:
    """Return the processes that a process has started and that are still there."""
    tasks = (proc / str(pid) / "task").iterdir()
    return [int(child) for task in tasks for child in _text(task / "children").split()]


def is_runnable(pid: int, proc: Path = PROC) -> bool:
    """Return whether a thread of the process runs, or would if others left it a CPU."""
    states = (_text(task / "status").partition("State:")[2].lstrip() for task in (proc / str(pid) / "task").iterdir())
    return any(state.startswith("R") for state in states)


def resident_bytes(pid: int, proc: Path = PROC) -> int:
    """Memory of the process that is in RAM."""
    return field_of(_text(proc / str(pid) / "status"), "VmRSS") * 1024


def forget_peak(pid: int, proc: Path = PROC) -> None:
    """Reset the kernel's high-water mark: from now on `peak_bytes` is the most since now."""
    (proc / str(pid) / "clear_refs").write_text("5", encoding="ascii")


def peak_bytes(pid: int, proc: Path = PROC) -> int:
    """The most memory of the process that was in RAM at once."""
    return field_of(_text(proc / str(pid) / "status"), "VmHWM") * 1024


def cpu_of(schedstat: str) -> int:
    """Nanoseconds on a CPU; empty (the thread has just ended): 0."""
    return int(schedstat.split(maxsplit=1)[0]) if schedstat else 0


def field_of(status: str, name: str) -> int:
    """A number of `/proc/…/status`; 0 if it is not there."""
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


LATENESS = "sluice_timer_lateness_seconds_bucket"


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of Sluice's metrics.

    Attributes:
        values: By the sample's name, summed over all labels.
        timers: The number of timers that fired no later than each bound, in seconds.
    """

    values: Mapping[str, float]
    timers: Mapping[float, float]


def scrape(port: int) -> Scrape:
    """Ask the admin address of this port.

    Raises:
        AdminError: If the address does not answer.
    """
    return parsed(AdminClient(f"http://127.0.0.1:{port}").get("/metrics").decode())


def parsed(text: str) -> Scrape:
    """Parse a text in Prometheus' format."""
    values: dict[str, float] = {}
    timers: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == LATENESS:
                timers[float(sample.labels["le"])] = sample.value
            else:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return Scrape(values, timers)


def lateness(before: Scrape, after: Scrape, share: float) -> float:
    """The least bound, in seconds, that this share of the timers between two readings kept; `inf` above the last one.

    This is the upper bound of the bucket that holds the quantile. Without any timer: 0.
    """
    fired = {bound: count - before.timers.get(bound, 0.0) for bound, count in after.timers.items()}
    wanted = share * fired.get(math.inf, 0.0)
    return min((bound for bound, count in fired.items() if count >= wanted), default=0.0) if wanted else 0.0
