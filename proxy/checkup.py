"""The examination of a running proxy: brokers, certificates, degraded states, descriptors, kernel, disks and limits.

Checkup.findings() ──▶ GET /sluice/doctor ──▶ sluice doctor
"""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from limiter.levels import Setting
from limiter.names import is_pattern
from limiter.policies import InForce, Policies
from limiter.token_bucket import Limit
from protocol.topic_name import parse_topic
from proxy.degraded import DegradedStates
from proxy.descriptors import Shortage
from proxy.server import BACKLOG
from proxy.slices import Slices, Work
from proxy.tls.certificates import SOON_S, Expiry

Severity = Literal["ok", "warning", "problem"]
MOST_LISTED = 20
"""Findings of one kind that are listed; the last line has the number of the others."""
_LITTLE, _VERY_LITTLE = 0.05, 0.01
"""Parts of a disk that are free, below which there is a warning, and a problem."""
OLDEST, NEWEST = (2, 11), (5, 0)
"""Versions of Pulsar, as the README has them."""
CLOCKS_APART_S = 2.0
"""Seconds by which clocks differ where there is a warning. A broker says its time in whole seconds."""
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.[\w.-]{1,30})?")
_PORTS, _QUEUE = Path("/proc/sys/net/ipv4/ip_local_port_range"), Path("/proc/sys/net/core/somaxconn")


class BrokerAnswer(NamedTuple):
    """A broker's answer to a CONNECT.

    Attributes:
        problem: The reason why there is none, or why clients would get none; None: it is sound.
        version: The version that the broker says it has; empty if it says none.
    """

    problem: str | None
    version: str = ""


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        check: The subject: `brokers`, `clock`, `certificates`, `degraded`, `descriptors`, `kernel`, `disk`, `limits`.
        severity: `ok`, `warning` (no client notices it yet) or `problem`.
        text: The state in words.
        remedy: The operator's remedy; empty where there is nothing to do.
    """

    check: str
    severity: Severity
    text: str
    remedy: str = ""


class Checkup:
    """Examines a running proxy.

    Args:
        brokers: Asks each configured broker.
        broker_clock: Returns by how many seconds a broker's clock is ahead, at least; None: there is no way to ask it.
        expiries: Returns the expiries of the certificates in force.
        states: The degraded states.
        shortage: The shortage of file descriptors, if there is one.
        connections: Client connections that may be open, each with one to a broker.
        folders: The folders that the proxy writes into, by key.
        policies: The limits in force.
        slices: Bounds the work in one turn of the loop.
        clock: Seconds since 1970.
    """

    def __init__(  # noqa: PLR0913 - what its Args say
        self,
        *,
        brokers: Callable[[], Awaitable[Mapping[str, BrokerAnswer]]],
        broker_clock: Callable[[], Awaitable[float]] | None,
        expiries: Callable[[], Iterable[Expiry]],
        states: DegradedStates,
        shortage: Shortage | None,
        connections: int,
        folders: Mapping[str, Path],
        policies: Policies,
        slices: Slices,
        clock: Callable[[], float],
    ) -> None:
        self._brokers = brokers
        self._broker_clock = broker_clock
        self._expiries = expiries
        self._states = states
        self._shortage = shortage
        self._connections = connections
        self._folders = folders
        self._policies = policies
        self._slices = slices
        self._clock = clock

    async def findings(self) -> list[Finding]:
        """Return the findings: problems first, then warnings, then checks without one."""
        found = [of_broker(broker, answer) for broker, answer in (await self._brokers()).items()]
        found += [*self._of_certificates(), *self._of_states(), self._of_descriptors()]
        if self._broker_clock is not None:
            found.append(await of_clock(self._broker_clock))
        found += await asyncio.to_thread(lambda: [*kernel(self._connections), *disks(self._folders)])
        unreachable = UnreachableLimits(self._policies)
        await self._slices.done(Work.REQUESTS, unreachable.looking())
        found += unreachable.findings()
        order: tuple[Severity, ...] = ("problem", "warning", "ok")
        return sorted(found, key=lambda finding: order.index(finding.severity))

    def _of_certificates(self) -> list[Finding]:
        found, now = [], self._clock()
        for expiry in self._expiries():
            day = datetime.fromtimestamp(expiry.at, UTC).date()
            remedy = "put a renewed certificate in its place: it is taken without a restart"
            if expiry.at <= now:
                found.append(Finding("certificates", "problem", f"{expiry} expired on {day}", remedy))
            elif expiry.at - now <= SOON_S:
                found.append(Finding("certificates", "warning", f"{expiry} expires on {day}", remedy))
            else:
                found.append(Finding("certificates", "ok", f"{expiry.key} is valid until {day}"))
        return found

    def _of_states(self) -> list[Finding]:
        found = [
            Finding("degraded", "problem", f"{each.state.cause}: {each.state.reason}", each.state.remedy)
            for each in self._states.now()
        ]
        return found or [Finding("degraded", "ok", "all of the configuration is in force")]

    def _of_descriptors(self) -> Finding:
        if self._shortage is None:
            return Finding("descriptors", "ok", "file descriptors suffice for max_connections")
        return Finding("descriptors", "problem", *self._shortage)


def of_broker(broker: str, answer: BrokerAnswer) -> Finding:
    """Look at a broker's answer, and at its version."""
    if answer.problem is not None:
        remedy = "check its address (`broker`), its port and the way to it; clients are passed on to the others"
        return Finding("brokers", "problem", answer.problem, remedy)
    version = _VERSION.search(answer.version)
    if version is None:
        return Finding("brokers", "ok", f"{broker} answers")
    if OLDEST <= (int(version[1]), int(version[2])) <= NEWEST:
        return Finding("brokers", "ok", f"{broker} answers, with Pulsar {version[0]}")
    supported = " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))
    text = f"{broker} has Pulsar {version[0]}; Sluice is tried with {supported}"
    return Finding("brokers", "warning", text, "see the README's table of supported versions, and try it first")


async def of_clock(broker_clock: Callable[[], Awaitable[float]]) -> Finding:
    """Compare this machine's clock with a broker's."""
    try:
        ahead_s = await broker_clock()
    except OSError as error:
        return Finding("clock", "warning", f"the broker's clock is not known: {error}", "see admin_forward.url")
    if abs(ahead_s) < CLOCKS_APART_S:
        return Finding("clock", "ok", f"the clocks of this machine and of the broker agree within {CLOCKS_APART_S:g} s")
    side = "ahead of" if ahead_s > 0 else "behind"
    text = f"the broker's clock is {abs(ahead_s):.0f} s {side} this machine's: tokens and certificates may be refused"
    return Finding("clock", "warning", text, "let both machines follow NTP")


def kernel(connections: int, ports: Path = _PORTS, queue: Path = _QUEUE) -> Iterator[Finding]:
    """Compare the kernel's settings with the needs of so many connections.

    Args:
        connections: Client connections that may be open; each has one to a broker, from a port of its own.
        ports: The kernel's file with the range of these ports.
        queue: The kernel's file with the bound of queues of new connections.
    """
    try:
        first, last = map(int, ports.read_text().split())
        most_queued = int(queue.read_text())
    except (OSError, ValueError):
        return  # no Linux
    there = last - first + 1
    if there < connections:
        yield Finding(
            "kernel",
            "warning",
            f"{there} local ports are for connections to one broker's address, max_connections is {connections}",
            "widen net.ipv4.ip_local_port_range, or name several brokers",
        )
    else:
        yield Finding("kernel", "ok", f"{there} local ports suffice for max_connections")
    if most_queued < BACKLOG:
        yield Finding(
            "kernel",
            "warning",
            f"at most {most_queued} new connections wait to be accepted: when all clients come at once, some wait a "
            "second or more",
            f"set net.core.somaxconn to {BACKLOG}",
        )
    else:
        yield Finding("kernel", "ok", f"{most_queued} new connections may wait to be accepted")


def disks(folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Look at the free space of the disks with these folders, given by the keys that name them."""
    for key, folder in folders.items():
        try:
            space = shutil.disk_usage(folder)
        except OSError as error:
            yield Finding("disk", "problem", f"{key}: {folder}: {error.strerror}", "make the folder readable")
            continue
        free = space.free / max(1, space.total)
        severity: Severity = "ok" if free >= _LITTLE else "warning" if free >= _VERY_LITTLE else "problem"
        remedy = "" if severity == "ok" else "make room, or bound the log (access_log.retain_size)"
        yield Finding("disk", severity, f"{key}: {free:.0%} of the disk of {folder} is free", remedy)


class UnreachableLimits:
    """Limits that no stream can reach, as one of a wider level, which holds at the same time, is lower.

    Args:
        policies: The limits in force.
    """

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._found = set[tuple[str, str, str, str]]()
        self._texts: list[str] = []
        """Of the first ones that were found."""

    def looking(self) -> Iterator[None]:
        """Look at each limit of a topic and of a namespace, a unit of work in each step."""
        for direction in ("publish", "dispatch"):
            for setting in (Setting.NAMESPACE, Setting.TOPIC_OF_NAMESPACE, Setting.PARTITIONED_TOPIC, Setting.TOPIC):
                for name in list(self._policies.by_name(direction, setting)):
                    if not is_pattern(name):
                        topic = name if "://" in name else f"persistent://{name}/any"
                        self._compare(self._policies.in_force(direction, parse_topic(topic)))
                    yield

    def findings(self) -> list[Finding]:
        """Return a finding for each limit, up to `MOST_LISTED`."""
        remedy = "lower it, or raise the wider one; `sluice explain TOPIC` shows all that hold for a topic"
        found = [Finding("limits", "warning", text, remedy) for text in self._texts]
        if others := len(self._found) - len(self._texts):
            found.append(Finding("limits", "warning", f"{others} further limits like these", remedy))
        return found or [Finding("limits", "ok", "no limit is above one of a wider level")]

    def _compare(self, limits: tuple[InForce, ...]) -> None:
        for place, inner in enumerate(limits):
            for outer in limits[:place]:
                if outer.limit.mode != "observe":
                    self._compare_two(inner, outer)

    def _compare_two(self, inner: InForce, outer: InForce) -> None:
        scope = inner.scope
        for unit, rate, bound in _rates(inner.limit, outer.limit):
            key = scope.direction, scope.level, scope.name, unit
            if rate <= bound or key in self._found:
                continue
            self._found.add(key)
            if len(self._texts) < MOST_LISTED:
                self._texts.append(
                    f"{scope.direction} limit of {_words(inner)}, {rate:g} {unit}/s, is above that of "
                    f"{_words(outer)}, {bound:g} {unit}/s"
                )


def _rates(inner: Limit, outer: Limit) -> Iterator[tuple[str, float, float]]:
    """Yield the unit and both rates where both limit it."""
    for unit, rate, bound in (("messages", inner.messages, outer.messages), ("bytes", inner.size, outer.size)):
        if rate is not None and bound is not None:
            yield unit, rate.per_second, bound.per_second


def _words(limit: InForce) -> str:
    return f"{limit.scope.level.replace('_', ' ')} {limit.scope.name}".strip()
