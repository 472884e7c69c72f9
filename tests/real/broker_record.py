"""What brokers took, entry by entry, by their own clocks; and whether that obeys a limit that proxies hold together.

The broker puts a time before each entry as it takes it, and gives it to a client that asks for it with the entry
(`SHOWN`). So nothing that happens to the reader blurs a record, and it is read when all is over.
"""

import bisect
import contextlib
import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from adminrest.client import topic_path
from protocol.commands import encode, split
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandConnect,
    CommandFlow,
    CommandPong,
    CommandSubscribe,
    MessageMetadata,
)
from tests.real.pulsar_rest import PulsarRest
from tests.real.raw_client import dialled

SHOWN = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,"
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}
"""What the brokers' configuration needs for it."""

KEEPER = "keeps all"
"""A subscription that acknowledges nothing: without one the broker may throw away what it took."""

TICK_S = 0.001
"""The broker's clock tells milliseconds: two entries are nearer by up to so much than their times say."""
PERIOD_S = 0.01
"""Between two probes, and between two looks at what a process waited."""

RUN_S = 0.02
"""What a process may do itself between deciding that entries pass and sending them: a turn of its loop."""

BURST_S = 0.1
"""What a limiter holds is a tenth of a second's worth; so long it may be kept from its work and lose nothing."""
_LITTLE = 1e-3
"""Of a token: what is lost by reckoning in floating point."""
_PERMITS = 1000
_U16, _U32 = Struct(">H"), Struct(">I")
_CHECKSUM, _BROKER_ENTRY = 0x0E01, 0x0E02


class Entry(NamedTuple):
    """One entry, as its broker took it.

    Attributes:
        at: Seconds since 1970, to the millisecond.
        on: The broker's number.
        producer: The name of who sent it.
        messages: In it.
        payload: What it holds.
    """

    at: float
    on: int
    producer: str
    messages: int
    payload: bytes


def read_record(rest: PulsarRest, service_url: str, topic: str, on: int) -> list[Entry]:
    """All entries of a topic that has a `KEEPER`, in its order, from the broker that owns it, which has this number."""
    ledgers = rest.get_json(f"/admin/v2/{topic_path(topic)}/internalStats")
    expected = int(ledgers["numberOfEntries"])
    entries: list[Entry] = []
    cutter = FrameCutter(2**31)
    with dialled(service_url) as connection:
        connect = CommandConnect(client_version="record", protocol_version=20, auth_method_name="none")
        connect.feature_flags.supports_broker_entry_metadata = True
        connection.sendall(encode(connect))
        subscribe = CommandSubscribe(
            topic=topic, subscription=KEEPER, sub_type=CommandSubscribe.Exclusive, consumer_id=1, request_id=1
        )
        connection.sendall(encode(subscribe))
        granted, is_subscribed = 0, False
        while len(entries) < expected:
            try:
                data = connection.recv(1 << 20)
            except TimeoutError:
                data = b""
            assert data, f"{topic}: the broker gave {len(entries)} of {expected} entries"
            for frame in cutter.feed(data):
                command, behind = split(frame)
                assert command.type != BaseCommand.ERROR, f"{topic}: {command.error.message}"
                if command.type == BaseCommand.PING:
                    connection.sendall(encode(CommandPong()))
                if command.type == BaseCommand.MESSAGE:
                    entries.append(_entry(behind, on))
                is_subscribed |= command.type == BaseCommand.SUCCESS  # what is granted before is lost
            if is_subscribed and granted - len(entries) < _PERMITS:
                connection.sendall(encode(CommandFlow(consumer_id=1, message_permits=2 * _PERMITS)))
                granted += 2 * _PERMITS
    return entries


def _entry(behind: bytes, on: int) -> Entry:
    assert _U16.unpack_from(behind)[0] == _BROKER_ENTRY, "the broker tells no time of the entry"
    size = _U32.unpack_from(behind, 2)[0]
    stamped = BrokerEntryMetadata.FromString(behind[6 : 6 + size])
    start = 6 + size
    if _U16.unpack_from(behind, start)[0] == _CHECKSUM:
        start += 6
    size = _U32.unpack_from(behind, start)[0]
    metadata = MessageMetadata.FromString(behind[start + 4 : start + 4 + size])
    payload = behind[start + 4 + size :]
    messages = max(1, metadata.num_messages_in_batch)
    return Entry(stamped.broker_timestamp / 1000, on, metadata.producer_name, messages, payload)


# ---- What the machine did meanwhile


class Waits:
    """How long a process has waited for a processor, as the kernel counts it, looked at again and again.

    It does not count while it sleeps, nor while it is stopped. Where nobody counts it, there are no waits.

    Args:
        pid: Of the process; its first thread does the work.
    """

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/schedstat")
        self._at: list[float] = []
        self._waited: list[float] = []

    def look(self, now: float) -> None:
        """Note it, if the process is there."""
        with contextlib.suppress(OSError):
            self._waited.append(int(self._path.read_text().split()[1]) / 1e9)
            self._at.append(now)

    def at(self, when: float) -> float:
        """How long the process may have been kept from what it was about to do at a time: all its waits back to where
        it did something else for more than `RUN_S`. The kernel counts a wait when it has ended, so by the next look.
        """
        last = min(bisect.bisect_left(self._at, when), len(self._at) - 1)
        kept = 0.0
        for first in range(last - 1, -1, -1):
            waited = self._waited[last] - self._waited[first]
            if waited < self._at[last] - self._at[first] - RUN_S:
                break
            kept = waited
        return kept

    def lost_s(self, begin: float, end: float) -> float:
        """How long the process waited in a time, beyond what a burst makes good in each wait."""
        ends = range(max(1, bisect.bisect_left(self._at, begin)), bisect.bisect_left(self._at, end))
        return sum(max(0.0, self._waited[index] - self._waited[index - 1] - BURST_S) for index in ends)


class Probes:
    """How late a broker took messages that nothing limits.

    Args:
        entries: Each holds the time at which it was due.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        # In the order in which they were due, which is that in which they were taken.
        times = sorted((float(entry.payload), entry.at) for entry in entries)
        self._taken = [at for _, at in times]
        self._late = [max(0.0, at - due) for due, at in times]

    def at(self, when: float) -> float:
        """How long an entry may have been on its way that was taken at a time: as long as a probe was by then that was
        on its way at that time, or had just come.
        """
        worst = 0.0
        for index in range(bisect.bisect_left(self._taken, when - PERIOD_S), len(self._taken)):
            due = self._taken[index] - self._late[index]
            if due > when:
                break
            worst = max(worst, min(when - due, self._late[index]))
        return worst

    def lost_s(self, begin: float, end: float) -> float:
        """How long the broker stood still in a time, beyond what a burst makes good in each standstill."""
        lost, before = 0.0, BURST_S
        for at, late in zip(self._taken, self._late, strict=True):
            if begin <= at < end:
                # Behind a standstill come those that were due in it, each less late than the one before.
                lost += max(0.0, late - before)
            before = max(late, BURST_S)
        return lost

    @property
    def worst(self) -> float:
        return max(self._late, default=0.0)


@dataclass(frozen=True)
class Lateness:
    """By how much an entry may have been taken later than it was passed.

    Args:
        probes: Of each broker.
        waits: Of each member, by its name.
    """

    probes: Mapping[int, Probes]
    waits: Mapping[str, Sequence[Waits]]

    def of(self, entry: Entry) -> float:
        """Of one entry: what kept its broker and what kept its member, at most.

        A standstill that is longer than the time between two probes has one in it that was late by all but that time.
        """
        member = entry.producer.partition("/")[0]
        kept = max((waits.at(entry.at) for waits in self.waits.get(member, ())), default=0.0)
        return kept + self.probes[entry.on].at(entry.at) + PERIOD_S

    def lost_s(self, begin: float, end: float) -> float:
        """How long the slowest of the brokers and members stood still in a time, each beyond its bursts."""
        brokers = [each.lost_s(begin, end) for each in self.probes.values()]
        return max(brokers + [waits.lost_s(begin, end) for each in self.waits.values() for waits in each])

    @property
    def worst(self) -> float:
        """The longest standstill of a broker."""
        return max(each.worst for each in self.probes.values())


@dataclass(frozen=True)
class SinceBegun:
    """Entries that may have been passed at any time since then."""

    began: float

    def of(self, entry: Entry) -> float:
        """Of one entry: all of the time."""
        return max(0.0, entry.at - self.began)


# ---- The bound


@dataclass(frozen=True)
class Step:
    """A limit from a time on.

    Attributes:
        since: Seconds since 1970.
        rate: Messages per second.
        burst_s: The seconds' worth that a limiter holds.
    """

    since: float
    rate: float
    burst_s: float = BURST_S

    @property
    def burst(self) -> float:
        """What a limiter holds."""
        return max(1.0, self.rate * self.burst_s)


@dataclass(frozen=True)
class Held:
    """P8: what members together may pass in any interval: `burst + rate · seconds + an entry each`.

    Args:
        steps: The limit; the first one holds from the beginning.
        members: How many there are.
        entry: Messages of the largest entry.
    """

    steps: Sequence[Step]
    members: int
    entry: int = 1

    @classmethod
    def always(cls, rate: float, members: int) -> "Held":
        """A limit that does not change."""
        return cls([Step(0.0, rate)], members)

    def excess_since(self, began: float, entries: Sequence[Entry]) -> float:
        """The same of all intervals that begin at `began`: whatever is slow only delays entries, and breaks none."""
        return self.worst_excess(entries, SinceBegun(began))

    def worst_excess(self, entries: Sequence[Entry], lateness: "Lateness | SinceBegun | None" = None) -> float:
        """How many messages above the bound the worst interval is; at most 0 if none is above.

        An entry was passed at the latest when it was taken, and earlier by no more than its lateness and a tick of the
        broker's clock. So the bound is kept if each entry can be given a time in between such that a bucket, of what
        may pass at once, has tokens for all. There is no other slack; without `lateness` there is only the tick. The
        bucket gives an entry its tokens as late as it may, or when they would be lost as it is full: so none could be
        spared for another one. What it lacks is what is above the bound.

        Time is counted in tokens earned.
        """
        earned = _Earned(self.steps)
        late = lateness.of if lateness else lambda _: 0.0
        passed = sorted(
            (earned.until(entry.at - late(entry) - TICK_S), earned.until(entry.at), entry.messages) for entry in entries
        )
        waiting: list[tuple[float, int]] = []  # when they were taken, and messages
        now, following, worst = passed[0][0], 0, -math.inf
        tokens = room = earned.burst(now) + self.members * self.entry
        while waiting or following < len(passed):
            while following < len(passed) and passed[following][0] <= now:
                heapq.heappush(waiting, passed[following][1:])
                following += 1
            if waiting and (waiting[0][0] <= now or tokens > room - _LITTLE):
                tokens -= heapq.heappop(waiting)[1]
                worst = max(worst, -tokens)
                continue
            then = passed[following][0] if following < len(passed) else math.inf
            if waiting:
                then = min(then, waiting[0][0], now + room - tokens)
            room = earned.burst(then) + self.members * self.entry
            tokens, now = min(room, tokens + then - now), then
        return worst


class _Earned:
    """The tokens that a limit gives up to any time, from its first step on."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._since = [step.since for step in steps]
        widths = [later.since - step.since for step, later in itertools.pairwise(steps)]
        earned = (width * step.rate for width, step in zip(widths, steps, strict=False))
        self._before = list(itertools.accumulate(earned, initial=0.0))

    def until(self, when: float) -> float:
        index = max(0, bisect.bisect_right(self._since, when) - 1)
        return self._before[index] + (when - self._since[index]) * self._steps[index].rate

    def burst(self, earned: float) -> float:
        """The burst when so many tokens are earned."""
        return self._steps[max(0, bisect.bisect_right(self._before, earned) - 1)].burst


# ---- Figures

WINDOW_S = 0.5
"""Two cycles: over so long a rate is seen."""


def rate_in(entries: Iterable[Entry], begin: float, seconds: float) -> float:
    """Messages per second in [begin, begin + seconds)."""
    return sum(entry.messages for entry in entries if begin <= entry.at < begin + seconds) / seconds


def seconds_until(entries: Sequence[Entry], begin: float, rate: float, window_s: float = WINDOW_S) -> float:
    """How long after `begin` a window begins in which `rate` is passed; infinite if none does.

    Windows begin at each entry: with the first one behind a gap.
    """
    times = [entry.at for entry in sorted(entries)]
    needed = rate * window_s
    for index in range(bisect.bisect_left(times, begin), len(times)):
        end = bisect.bisect_left(times, times[index] + window_s)
        if end - index >= needed:
            return times[index] - begin
    return float("inf")
