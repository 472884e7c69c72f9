"""The arrivals of a limited topic at a consumer of the broker itself, while processes that pass it on come and go."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

import pulsar

from tests.real.broker_record import PERIOD_S, Entry, Held, Lateness, Probes, Waits
from tests.real.traffic import quiet_client
from tests.waiting import wait_for


class ReceivingEnd:
    """A consumer, and probes beside it that nothing limits: they show what delays arrivals in each moment.

    Args:
        broker_url: The service URL of the broker.
        topic: The topic with a limit.
        pids: Returns the ids of the processes that pass its messages on, of those that have ended as well.

    Attributes:
        arrivals: The arrivals, in their order.
    """

    def __init__(self, broker_url: str, topic: str, pids: Callable[[], Iterable[int]]) -> None:
        self.arrivals: list[Entry] = []
        self._pids = pids
        self._probes: list[Entry] = []
        self._waits: dict[int, Waits] = {}
        self._ended = threading.Event()
        self._client = quiet_client(broker_url)
        self._client.subscribe(topic, "receiving end", message_listener=self._noting(self.arrivals))
        self._client.subscribe(f"{topic}-probes", "receiving end", message_listener=self._noting(self._probes))
        self._prober = self._client.create_producer(f"{topic}-probes", send_timeout_millis=0, max_pending_messages=0)
        self._began = time.time()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def wait_for_more(self, count: int, explanation: Callable[[], object] = lambda: "") -> None:
        """Return when so many more messages have arrived."""
        wanted = len(self.arrivals) + count
        wait_for(lambda: len(self.arrivals) >= wanted, evidence=explanation)

    def rest(self, seconds: float) -> None:
        """Return when no message has arrived for so long, so that the bucket of its limit is full."""
        at = time.time()
        while (left := max([at, *(each.at for each in self.arrivals[-1:])]) + seconds - time.time()) > 0:
            time.sleep(left)

    def excess(self, held: Held) -> float:
        """Return the messages above a bound in the worst interval; at most 0 if it is kept.

        An arrival was late by no more than a probe of that time, and than its process waited for a processor.
        """
        arrivals = list(self.arrivals)
        late = Lateness({0: Probes(list(self._probes))}, {"": list(self._waits.values())})
        return max(held.worst_excess(arrivals, late), self.excess_since_begin(held))

    def excess_since_begin(self, held: Held) -> float:
        """Return the same of all intervals that begin with the block: it depends on no delay."""
        return held.excess_since(self._began, list(self.arrivals))

    @staticmethod
    def _noting(entries: list[Entry]) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
        def note(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            entries.append(Entry(time.time(), 0, "", 1, message.data()))
            consumer.acknowledge(message)

        return note

    def _watch(self) -> None:
        due = time.time()
        while not self._ended.wait(max(0.0, due - time.time())):
            self._prober.send_async(repr(due).encode(), lambda *_: None)
            for pid in self._pids():
                self._waits.setdefault(pid, Waits(pid)).look(time.time())
            due += PERIOD_S
