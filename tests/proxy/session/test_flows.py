"""What a consumer asks for: passed on as it came, in parts, held back, or not at all."""

from functools import partial

import pytest

from limiter.activity import ActivityJournal
from limiter.limiter import Stream, StreamName
from limiter.permits import CreditWindow, Permits
from limiter.scheduler import Scheduler
from limiter.usage import StreamUsage
from protocol.commands import SIZES, command_in
from protocol.flow import MOST_PERMITS
from protocol.frames import MESSAGE, MalformedFrame
from proxy.budgets import Budget, Claim, Pool, Share, SharedBudget
from proxy.counters import Counters
from proxy.session.data_path import DataPath, FrameWriter, HeldMemory
from proxy.session.transport import Throttled
from tests.proxy.wire import flow
from tests.proxy.written import Written


class Client:
    """Its consumer 7, within these limits, and what goes to the broker for it."""

    def __init__(self, *meters: CreditWindow) -> None:
        self.broker = Written()
        self.stream = Stream(
            StreamName("dispatch", "acme", "shop", "orders", 7), (), lambda _stream, _entry: None, is_accepted=True
        )
        self.usage = StreamUsage()
        budget = Budget(10**9, lambda _is_full: None)
        share = Share(SharedBudget(10**9, lambda *_over: None, lambda: None), lambda _is_over: None)
        self.path = DataPath(
            MESSAGE,
            10_000,
            Throttled(),
            FrameWriter(self.broker),
            HeldMemory(budget, share, Claim(Pool(10**9, 10**9), "")),
            Scheduler(lambda *_wake: None, ActivityJournal()),
            lambda _kind, _command, frame: frame,
            Counters(),
            lambda: 0,
        )
        self.path.streams[7] = self.stream
        self.permits = Permits(self.usage, partial(self.path.grant, 7), lambda: None)
        self.permits.rewire(meters)
        self.stream.permits = self.permits

    def says(self, frame: bytes) -> list[bytes]:
        """What goes to the broker."""
        before = len(self.broker.parts)
        passes = self.path.ask(command_in(frame), frame)
        return [*self.broker.parts[before:], *([] if passes is None else [passes])]

    def got(self, messages: int) -> None:
        """One entry."""
        self.permits.crossed(1, messages, 100 * messages)


def framed(command: bytes) -> bytes:
    return SIZES.pack(len(command) + 4, len(command)) + command


def test_what_nobody_limits_passes_as_it_came() -> None:
    client = Client()
    assert client.says(flow(1000)) == [flow(1000)]
    assert (client.usage.permits_asked, client.usage.permits_granted) == (1000, 1000)


def test_what_there_is_room_for_passes_as_it_came() -> None:
    client = Client(CreditWindow(1000), CreditWindow(10**6, "bytes"))
    client.says(flow(2))
    client.got(1)
    client.got(1)
    client.says(flow(10))
    assert client.says(flow(500)) == [flow(500)]
    assert (client.usage.permits_asked, client.usage.permits_granted, client.permits.at_broker) == (512, 512, 510)


def test_what_there_is_no_room_for_is_given_in_portions() -> None:
    client = Client(CreditWindow(100))
    client.says(flow(2))
    client.got(1)
    assert client.says(flow(500)) == [flow(99)], "one is at the broker already"
    assert client.says(flow(500)) == []
    assert (client.permits.at_broker, client.permits.asked) == (100, 901)


@pytest.mark.parametrize("is_limited", [False, True])
def test_more_than_a_broker_can_count_goes_in_parts(*, is_limited: bool) -> None:
    client = Client(*([CreditWindow(10**12)] if is_limited else []))
    client.says(flow(2))
    client.got(1)
    assert client.says(flow(2**32 - 1)) == [flow(MOST_PERMITS), flow(MOST_PERMITS), flow(1)]
    assert client.permits.at_broker == 2**32


def test_a_flow_of_none_stays_here() -> None:
    assert Client().says(flow(0)) == []


def test_who_asked_to_be_closed_asks_for_nothing() -> None:
    client = Client()
    client.stream.is_accepted = False
    assert client.says(flow(10)) == []
    assert client.usage.permits_asked == 0


def test_a_flow_of_a_consumer_that_is_not_known_goes_nowhere() -> None:
    client = Client()
    assert client.says(flow(10, consumer_id=8)) == []
    assert client.usage.permits_asked == 0


def test_a_flow_in_an_unusual_form_counts_as_any() -> None:
    client = Client()
    backwards = framed(b"\x5a\x04\x10\x05\x08\x07\x08\x0b")
    assert client.says(backwards) == [flow(5)]
    assert client.usage.permits_asked == 5


def test_a_flow_that_is_none_breaks_the_protocol() -> None:
    with pytest.raises(MalformedFrame):
        Client().says(framed(b"\x08\x0b"))
