"""The data path's section of docs/benchmarks.md."""

from collections.abc import Mapping

from loadgen.bench_limits.page import machine

_SECTION = """\
## The data path: Sluice beside proxies that read nothing

Made by `make bench`, which writes this section itself. The same frames go through each proxy in turn, all of them
running, round by round in one run; Sluice as it is deployed: metrics and access log on, each stream within limits for
messages and bytes that it does not reach.

{table}

Measured on {machine}. Absolute numbers are this machine's, of which sender, proxy and sink have a share each; what
can be claimed are ratios. A ratio is the median over all rounds of the ratio within a round; other numbers are
medians, with (least to most). A goal is met or missed by the number as printed, and missed if a
round failed.

{notes}

How it is measured: sender and sink are one C file (`loadgen/bench/ends.c`), compiled when the benchmark begins;
lookups, handshakes, PRODUCER and SUBSCRIBE are real ones, so that any Pulsar proxy can be put in the middle. Each
proxy's first round is thrown away: a JVM is slow at first. The sender writes as fast as it can for some seconds, or
at a steady pace, and closes each connection right behind the last write; the sink counts whole frames up to the end
of each connection (where it is to be faster than everybody, it looks at the first frame and lets the kernel throw
away the rest, whose bytes it counts: that contents arrive whole, the other rows and the tests tell). CPU is what the
kernel counts of the proxy's process, all threads together. HAProxy runs in TCP mode with one thread; the official
proxy, with default threads, forwards by splicing (its default), or parses each frame (`proxyLogLevel=1`); the bare
forwarder is {forwarder} lines of uvloop (`loadgen/bench/peers/forwarder.py`). Sluice runs under `SCHED_BATCH`, as it is
deployed, and its peers as they come; what that policy gives them, [operating.md](operating.md#sharing-cores) tells. A
connection's SENDs are laid out alike, as one client's are; what others cost, [performance.md](performance.md) tells.

Held streams are Sluice's alone: it starts anew with one limit over all topics, every producer of every connection
offers as much as is taken, and after a second the sink counts what arrives. The loop's lag is how late Sluice's timers
fired, from the histogram in its `/metrics`: a bound of it, so the true p99 is no higher. Memory is what its resident
set has grown by since each stream had passed one entry, unheld, of what it says it holds: both at their most
(`sluice_hold_budget_most_bytes`, and the kernel's own high-water mark), for what is held goes up and down. The line
below it counts from before these entries: the buffer that is read into, and what counts and logs 1,000 streams.

With a real broker, Pulsar's standalone of the same jars, one pulsar-perf produces and another one consumes it at the
same time, both through the peer; CPU is the peer's from before they connect until the last message is consumed.
{absent}"""


def section(table: str, notes: list[str], absent: Mapping[str, str], forwarder_lines: int) -> str:
    """The whole section; `absent` says of peers why they are not there."""
    missing = "".join(f"\nNot measured: {name}: {why}." for name, why in absent.items())
    said = "\n".join(f"- {note}" for note in notes) or "Nobody lost a frame."
    return _SECTION.format(table=table, machine=machine(), notes=said, absent=missing, forwarder=forwarder_lines)
