"""The sending end's book: messages offered at the scenario's pace, never one waiting behind another topic's.

A producer's pending queue is bounded. A message that finds it full is not offered at all and counted, so that a
throttled producer never holds up a paced one.
"""

import threading
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadgen.load.payload import Stamp, make_payload
from loadgen.load.scenario import TopicLoad, wanted_by

Clock = Callable[[], float]
Settle = Callable[[str], None]
"""Called once a message is settled: with "" for a receipt, else with the error's name; from any thread."""


class SendError(Exception):
    """The client refused a message at once; the text is the error's name."""


class Sender(Protocol):
    """One producer of a real client (or of a test)."""

    def send(self, payload: bytes, settle: Settle) -> None:
        """Hand the message to the client, which must not block.

        Raises:
            SendError: If it is refused at once; `settle` is not called then.
        """


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """The properties that all messages of one producer share."""

    run: bytes
    producer: int
    message_bytes: int
    pending: int
    """Most messages on their way."""


class Lane:
    """One producer: its messages offered, receipts, and messages in flight."""

    def __init__(self, origin: MessageOrigin, sender: Sender, clock: Clock) -> None:
        self.origin = origin
        self._sender = sender
        self._clock = clock
        self._lock = threading.Lock()
        self.offered = 0
        self.receipts = 0
        self.errors: Counter[str] = Counter()
        self.latencies = array("d")
        """Seconds from offer to receipt, one for each receipt."""

    @property
    def on_their_way(self) -> int:
        """Messages offered that are neither receipted nor failed."""
        return self.offered - self.receipts - self.errors.total()

    def offer(self) -> bool:
        """Offer the next message; False if the producer's queue is full."""
        if self.on_their_way >= self.origin.pending:
            return False
        stamp = Stamp(self.origin.run, self.origin.producer, self.offered)
        payload = make_payload(stamp, self.origin.message_bytes)
        self.offered += 1
        began = self._clock()
        try:
            self._sender.send(payload, lambda error: self._settle(began, error))
        except SendError as error:
            self._settle(began, str(error))
        return True

    def _settle(self, began: float, error: str) -> None:
        with self._lock:
            if error:
                self.errors[error] += 1
                return
            self.receipts += 1
            self.latencies.append(self._clock() - began)


class TopicOffer:
    """The producers of one topic and the pace dealt out over them in turn."""

    def __init__(self, load: TopicLoad, lanes: Sequence[Lane]) -> None:
        self.load = load
        self.lanes = lanes
        self._paced = 0
        self._beyond_pattern = 0
        self.refused_by_client_queue = 0

    @property
    def on_their_way(self) -> int:
        """Messages of all its producers without receipt or error."""
        return sum(lane.on_their_way for lane in self.lanes)

    def offer_first(self) -> None:
        """Offer one message of each producer, beyond what the pattern wants."""
        for lane in self.lanes:
            lane.offer()
        self._beyond_pattern = len(self.lanes)

    @property
    def wanted(self) -> int:
        """Messages due so far: those of the pattern and the first ones."""
        return self._paced + self._beyond_pattern

    def offer_due(self, elapsed_s: float) -> None:
        """Offer what the pattern wants offered by now and has not been yet."""
        for _ in range(wanted_by(self.load.pattern, elapsed_s) - self._paced):
            lane = self.lanes[self._paced % len(self.lanes)]
            self._paced += 1
            if not lane.offer():
                self.refused_by_client_queue += 1
