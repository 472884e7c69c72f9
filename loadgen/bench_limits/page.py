"""The sections of docs/benchmarks.md: what was measured, on what, how, and the table."""

import os
import platform
from importlib.util import find_spec
from pathlib import Path

from loadgen.real.jars import VERSION

COMMAND = "make bench-limits"
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")

_PUBLISH = """\
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

_DISPATCH = """\
## Dispatch limits: the broker's own, and Sluice's

Made by `{command}`, which writes this section itself. The same backlog is drained straight from a real Pulsar {pulsar}
broker whose own dispatch limit is set, and through Sluice from the same broker without one, by turns, in one run.

{table}

Measured on {machine}.

How it is measured: limits are set by the same REST call (`POST /admin/v2/namespaces/…/dispatchRate`) at the broker or
at Sluice, a resource group by REST at the broker and in Sluice's configuration file. Every topic is fresh; its backlog
is stored for a Shared subscription before any consumer comes, and outlasts the measuring unless the limit is not kept.
Consumers are official Python clients that take and acknowledge each message as it comes, receiver queue 1000 unless
said otherwise, messages of 100 bytes; of larger ones the payload counts. Arrivals are timed where the client hands them
over, in the process of all consumers; seconds start at the first one. (A second of the broker is one lump: one that
comes a little early or late falls into the neighbouring second, and the worst second is off by a whole one.)

The longest time without a delivery is the one between two arrivals, or from the last one to the end. Messages and
permits are there all the time, so what a token takes at that limit is in it. The standstills of the consumers' process
are not: it is to look at its consumers every 5 ms, and by how long it was late nobody was there to see an arrival.
Whatever else the machine delays, Sluice too, counts against both. Latencies are from the send, at the broker
itself, to the arrival, both in one process. Numbers are medians, with (least to most) where several were measured; a
goal is met or missed by the median as printed."""

_SECTIONS = {"publish": _PUBLISH, "dispatch": _DISPATCH}


def section(about: str, table: str) -> str:
    """The whole section about `publish` or `dispatch`."""
    return _SECTIONS[about].format(command=COMMAND, pulsar=VERSION, table=table, machine=machine())


def machine() -> str:
    """What everything ran on, and in which form Sluice did."""
    form = "compiled" if is_compiled() else "interpreted"
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {platform.machine()}, {python}{congestion()}, Sluice's hot modules {form}"


def congestion() -> str:
    """How TCP decides when to send (one that paces costs all proxies frames/s); nothing where nobody says."""
    try:
        return f", TCP's congestion control {_CONGESTION.read_text(encoding='ascii').strip()}"
    except OSError:
        return ""


def is_compiled() -> bool:
    """Whether the frame walk is machine code here."""
    found = find_spec("protocol.walk")
    return found is not None and str(found.origin).endswith(".so")
