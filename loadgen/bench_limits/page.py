"""The section of docs/benchmarks.md: what was measured, on what, how, and the table."""

import os
import platform
from importlib.util import find_spec

from loadgen.real.pom import VERSION

COMMAND = "make bench-limits"

_SECTION = """\
## Publish limits: the broker's own, and Sluice's

Made by `{command}`, which writes this section itself. The same load goes straight to a real Pulsar {pulsar} broker
whose own publish limit is set, and through Sluice to the same broker without one, by turns, in one run.

{table}

Measured on {machine}.

How it is measured: limits are set by the same REST call (`POST /admin/v2/namespaces/…/publishRate`) at the broker or at
Sluice; every topic is fresh and alone in its namespace. Publishers are official Python clients in a process of their
own, messages of 100 bytes; each producer's first message, and 2 s of rest after it, come before the measuring. What
passed is counted by a consumer of the broker itself, in another process, seconds starting at the first arrival;
latencies are from the client's send to its receipt, at a steady pace whatever comes back. Connections are the broker's:
one through Sluice ends when its client's ends. Numbers are medians, with (least to most) where several were measured;
a goal is met or missed by the median as printed. Broker, clients and Sluice all share this machine: what it delays
counts against both. How much that was, the standstills of the publishers tell, who are to look at their lanes every
5 ms. (While Sluice itself stands still for longer than its burst lasts, 0.1 s, what it would have passed is lost.)"""


def section(table: str) -> str:
    """The whole section."""
    return _SECTION.format(command=COMMAND, pulsar=VERSION, table=table, machine=machine())


def machine() -> str:
    """What everything ran on, and in which form Sluice did."""
    form = "compiled" if is_compiled() else "interpreted"
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {platform.machine()}, {python}, Sluice's hot modules {form}"


def is_compiled() -> bool:
    """Whether the frame walk is machine code here."""
    found = find_spec("protocol.walk")
    return found is not None and str(found.origin).endswith(".so")
