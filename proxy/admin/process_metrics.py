"""Metrics of the process by the names of Prometheus' client libraries, and the build.

prometheus_client's own collector lists the folder of open files, which takes 50 ms with 20,000 connections.
"""

import os
import platform
import resource
import time
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.runtime import is_compiled

_OF_SELF: Final = Path("/proc/self")


def process_metrics() -> Iterator[Metric]:
    """Yield the metrics; values that the system does not give are left out."""
    build = GaugeMetricFamily(
        "sluice_build_info", "Always 1; the labels name the build", labels=("version", "python", "compiled")
    )
    build.add_metric(_build(), 1)
    yield build
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    yield CounterMetricFamily("process_cpu_seconds", "Time of user and system that the process has used", value=cpu)
    for name, text, value in (
        ("process_start_time_seconds", "When the process started, in seconds since 1970", _started_at()),
        ("process_resident_memory_bytes", "Memory of the process that is in use", _memory(1)),
        ("process_virtual_memory_bytes", "Memory that the process has addresses for", _memory(0)),
        ("process_open_fds", "File descriptors that are open, where Linux 6.2 or later counts them", _descriptors()),
        ("process_max_fds", "File descriptors that may be open", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ):
        gauge = GaugeMetricFamily(name, text, labels=())
        if value is not None:
            gauge.add_metric((), value)
        yield gauge


@cache
def _build() -> tuple[str, str, str]:
    return version("pulsar-sluice"), platform.python_version(), str(is_compiled()).lower()


@cache
def _started_at() -> float | None:
    try:
        after_boot = int((_OF_SELF / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + after_boot
    except OSError:
        return None


def _memory(column: int) -> float | None:
    try:
        return int((_OF_SELF / "statm").read_text().split()[column]) * resource.getpagesize()
    except OSError:
        return None


def _descriptors() -> float | None:
    """Return the number of open descriptors: the size of their folder since Linux 6.2 (proc_pid_fd(5))."""
    try:
        return (_OF_SELF / "fd").stat().st_size or None
    except OSError:
        return None
