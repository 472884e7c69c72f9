"""The examination of a running proxy: what it needs of brokers, other members and its machine, and its limits.

Checkup.findings() ──▶ GET /sluice/doctor ──▶ sluice doctor
"""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from fleet.member import FleetMember
from fleet.messages import VersionSet
from limiter.policies import Policies
from proxy.degraded import DegradedStates
from proxy.descriptors import Shortage
from proxy.file_calls import LOOK_S, FileCallError, FileCalls
from proxy.server import BACKLOG
from proxy.slices import Slices, Work
from proxy.tls.certificates import SOON_S, Expiry
from proxy.unreachable_limits import UnreachableLimits

Severity = Literal["ok", "warning", "problem"]
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
        check: The subject: `brokers`, `clock`, `certificates`, `degraded`, `descriptors`, `kernel`, `disk`, `folder`,
            `versions`, `limits`.
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
        broker_clocks: Returns by how many seconds each broker's clock is ahead, at least, or why that is not known;
            None: there is no way to ask them.
        expiries: Returns the expiries of the certificates in force.
        states: The degraded states.
        shortage: The shortage of file descriptors, if there is one.
        connections: Client connections that may be open, each with one to a broker.
        folders: The folders that the proxy writes into, by key.
        member: This member of a fleet; None: the proxy is in none.
        shared: Levels whose limits the members of that fleet share; empty without one.
        policies: The limits in force.
        slices: Bounds the work in one turn of the loop.
        clock: Seconds since 1970.
    """

    def __init__(  # noqa: PLR0913 - what its Args say
        self,
        *,
        brokers: Callable[[], Awaitable[Mapping[str, BrokerAnswer]]],
        broker_clocks: Callable[[], Awaitable[Mapping[str, float | str]]] | None,
        expiries: Callable[[], Iterable[Expiry]],
        states: DegradedStates,
        shortage: Shortage | None,
        connections: int,
        folders: Mapping[str, Path],
        member: FleetMember | None,
        shared: frozenset[str],
        policies: Policies,
        slices: Slices,
        clock: Callable[[], float],
    ) -> None:
        self._brokers = brokers
        self._broker_clocks = broker_clocks
        self._expiries = expiries
        self._states = states
        self._shortage = shortage
        self._connections = connections
        self._folders = folders
        self._member = member
        self._shared = shared
        self._policies = policies
        self._slices = slices
        self._clock = clock
        self._calls = FileCalls()

    async def findings(self) -> list[Finding]:
        """Return the findings: problems first, then warnings, then checks without one."""
        answers, ahead_s = await asyncio.gather(self._brokers(), self._clocks())
        findings = [of_broker(broker, answer) for broker, answer in answers.items()]
        findings += [*self._of_certificates(), *self._of_states(), self._of_descriptors(), *of_clocks(ahead_s)]
        if self._member is not None:
            findings.append(of_versions(self._member))
        findings += await self._of_machine()
        unreachable = UnreachableLimits(self._policies, self._shared, self._members())
        await self._slices.done(Work.REQUESTS, unreachable.looking())
        findings += of_limits(unreachable)
        order: tuple[Severity, ...] = ("problem", "warning", "ok")
        return sorted(findings, key=lambda finding: order.index(finding.severity))

    def _members(self) -> int:
        return 1 if self._member is None else self._member.members or self._member.settings.expected

    async def _clocks(self) -> Mapping[str, float | str] | None:
        return None if self._broker_clocks is None else await self._broker_clocks()

    async def _of_machine(self) -> list[Finding]:
        findings = list(kernel(self._connections))
        for each in await asyncio.gather(*map(self._of_folder, self._folders)):
            findings += each
        return findings

    async def _of_folder(self, key: str) -> list[Finding]:
        alone = {key: self._folders[key]}
        try:
            return await self._calls.run(key, lambda: [*disks(alone), *writable(alone)], LOOK_S)
        except FileCallError as error:
            remedy = "see whether the server of this mount runs, and whether this machine reaches it"
            return [Finding("folder", "problem", f"{key}: {alone[key]}: {error}", remedy)]

    def _of_certificates(self) -> list[Finding]:
        findings, now = [], self._clock()
        for expiry in self._expiries():
            day = datetime.fromtimestamp(expiry.at, UTC).date()
            remedy = "put a renewed certificate in its place: it is taken without a restart"
            if expiry.at <= now:
                findings.append(Finding("certificates", "problem", f"{expiry} expired on {day}", remedy))
            elif expiry.at - now <= SOON_S:
                findings.append(Finding("certificates", "warning", f"{expiry} expires on {day}", remedy))
            else:
                findings.append(Finding("certificates", "ok", f"{expiry.key} is valid until {day}"))
        return findings

    def _of_states(self) -> list[Finding]:
        findings = [
            Finding("degraded", "problem", f"{each.state.cause}: {each.state.reason}", each.state.remedy)
            for each in self._states.now()
        ]
        return findings or [Finding("degraded", "ok", "all of the configuration is in force")]

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


def of_clocks(ahead_s: Mapping[str, float | str] | None) -> Iterator[Finding]:
    """Compare this machine's clock with those of brokers, by `Checkup`'s `broker_clocks`; None: they were not asked."""
    if ahead_s is None:
        text = "the brokers' clocks were not asked: brokers say their time by their web services alone"
        yield Finding(
            "clock", "warning", text, "name a broker's web service in admin_forward.url, or look at NTP there"
        )
        return
    for broker, known in ahead_s.items():
        if isinstance(known, str):
            text, remedy = (
                f"the clock of {broker} is not known: {known}",
                "see admin_forward.url, admin_forward.brokers",
            )
            yield Finding("clock", "warning", text, remedy)
        elif abs(known) < CLOCKS_APART_S:
            text = f"the clocks of this machine and of {broker} agree within {CLOCKS_APART_S:g} s"
            yield Finding("clock", "ok", text)
        else:
            side = "ahead of" if known > 0 else "behind"
            apart = f"the clock of {broker} is {abs(known):.0f} s {side} this machine's"
            text = f"{apart}: tokens and certificates may be refused"
            yield Finding("clock", "warning", text, "let both machines follow NTP")


def of_versions(member: FleetMember) -> Finding:
    """Compare the versions of Sluice that the members of a fleet run, as its coordinator has reported them."""
    remedy = "let all members run one version (docs/how-to/upgrade.md)"
    if member.epoch == 0:
        text = "the versions of the fleet's members are not known: no coordinator is heard"
        return Finding("versions", "warning", text, "see `sluice fleet`")
    if member.version_sets:
        sets = "; ".join(map(described_versions, member.version_sets))
        return Finding("versions", "warning", f"members run different versions of Sluice: {sets}", remedy)
    return Finding("versions", "ok", f"all {member.members} members run Sluice {member.version}")


def described_versions(versions: VersionSet) -> str:
    """Return a version and its members for people: `0.2.0 in a, b and 3 more`."""
    unnamed = versions.members - len(versions.names)
    more = f" and {unnamed} more" if unnamed else ""
    return f"{versions.version or 'unknown'} in {', '.join(versions.names)}{more}"


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
    except (OSError, ValueError) as error:
        text = f"the kernel's settings are not readable: {error}"
        remedy = (
            "let the process see /proc/sys (systemd: ProcSubset=all), or look at net.ipv4.ip_local_port_range and "
            "net.core.somaxconn by sysctl"
        )
        yield Finding("kernel", "warning", text, remedy)
        return
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


def writable(folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Make a file in each of these folders, given by the keys that name them, and remove it."""
    for key, folder in folders.items():
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                file.write(b"\0")
        except OSError as error:
            text = f"{key}: no file can be made in {folder}: {error.strerror}"
            remedy = "let the user of the process write there (systemd: ReadWritePaths=; in a container, a volume)"
            yield Finding("folder", "problem", text, remedy)
        else:
            yield Finding("folder", "ok", f"{key}: files can be made in {folder}")


def of_limits(unreachable: UnreachableLimits) -> list[Finding]:
    """Return a finding for each limit that no stream can reach, up to `MOST_LISTED`."""
    remedy = "lower it, or raise the wider one; `sluice explain TOPIC` shows all that hold for a topic"
    findings = [Finding("limits", "warning", text, remedy) for text in unreachable.texts]
    if others := unreachable.number - len(unreachable.texts):
        findings.append(Finding("limits", "warning", f"{others} further limits like these", remedy))
    return findings or [Finding("limits", "ok", "no limit is above one of a wider level")]
