"""A process of its own that publishes one trial's load: `python -m bench.limits.publisher FOLDER`."""

import gc
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.limits.trial import (
    MESSAGE_BYTES,
    LaneOrder,
    LaneResult,
    Result,
    TrialOrder,
    began_file,
    order_file,
    read,
    result_file,
    write,
)
from loadgen.load.clients import ClientError, Clients
from loadgen.load.offering import Lane, MessageOrigin, Sender

TICK_S = 0.005
WARM_UP = 2**32 - 1
"""Carried by each producer's first message: a broker's first write to a topic takes its time."""
WARM_UP_WAIT_S = 10.0
WARM_UP_REST_S = 2.0
"""Pause after it, so that a limit of one a second is back at its full burst."""
HEAD_START_S = 0.3
"""From the announcement of second 0 until then."""

_Place = tuple[str, str]
"""Client and topic: one producer."""


class PacedLane:
    """Offers one lane's messages when they are due."""

    def __init__(self, order: LaneOrder, lane: Lane) -> None:
        self._order = order
        self.lane = lane

    def offer_due(self, at_s: float) -> None:
        """Offer the messages that are due at `at_s`, until the producer's queue is full."""
        order = self._order
        if not order.begin_s <= at_s < order.end_s:
            return
        due = int(order.rate * (at_s - order.begin_s)) + 1
        while self.lane.offered < min(due, order.most or due) and self.lane.offer():
            pass

    def result(self) -> LaneResult:
        """Return what became of the messages so far."""
        lane = self.lane
        return LaneResult(lane.origin.producer, list(lane.latencies), lane.on_their_way, dict(lane.errors))


def publish(order: TrialOrder, senders: Mapping[_Place, Sender], began: float) -> Result:
    """Offer all lanes from `began` on, wait for their receipts, and return the result."""
    lanes = [PacedLane(lane, Lane(_origin(order, lane), senders[_place(lane)], time.monotonic)) for lane in order.lanes]
    end = began + max(lane.end_s for lane in order.lanes)
    last, longest_pause_s = time.monotonic(), 0.0
    while (now := time.monotonic()) < end:
        last, longest_pause_s = now, max(longest_pause_s, now - last)
        for lane in lanes:
            lane.offer_due(now - began)
        time.sleep(TICK_S)
    _await_receipts([lane.lane for lane in lanes], order.drain_s)
    return Result([lane.result() for lane in lanes], longest_pause_s)


def main() -> int:
    """Do what the folder's order says; returns the exit code."""
    gc.disable()  # a full collection stops the client's callbacks for 20 ms and more (measured)
    folder = Path(sys.argv[1])
    order = read(order_file(folder), TrialOrder)
    try:
        with Clients(order.service_url) as clients:
            senders = _senders(clients, order.lanes)
            _warm_up(order, senders)
            began = time.monotonic() + HEAD_START_S
            write(began_file(folder), began)
            write(result_file(folder), publish(order, senders, began))
    except ClientError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _senders(clients: Clients, lanes: Sequence[LaneOrder]) -> dict[_Place, Sender]:
    pending: dict[_Place, int] = {}
    for lane in lanes:
        pending[_place(lane)] = pending.get(_place(lane), 0) + lane.pending
    batch = {_place(lane): lane.batch for lane in lanes}
    return {place: clients.sender(*place, most, batch[place]) for place, most in pending.items()}


def _warm_up(order: TrialOrder, senders: Mapping[_Place, Sender]) -> None:
    origin = partial(MessageOrigin, order.run, WARM_UP, MESSAGE_BYTES)
    lanes = [Lane(origin(1), sender, time.monotonic) for sender in senders.values()]
    for lane in lanes:
        lane.offer()
    _await_receipts(lanes, WARM_UP_WAIT_S)
    time.sleep(WARM_UP_REST_S)


def _await_receipts(lanes: Sequence[Lane], longest_s: float) -> None:
    until = time.monotonic() + longest_s
    while any(lane.on_their_way for lane in lanes) and time.monotonic() < until:
        time.sleep(TICK_S)


def _origin(order: TrialOrder, lane: LaneOrder) -> MessageOrigin:
    return MessageOrigin(order.run, lane.index, MESSAGE_BYTES, lane.pending)


def _place(lane: LaneOrder) -> _Place:
    return lane.client, lane.topic


if __name__ == "__main__":
    sys.exit(main())
