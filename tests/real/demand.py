"""Producers that go on in the background until their block ends."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence

from tests.real.traffic import Sender, payload
from tests.waiting import wait_for


@contextlib.contextmanager
def publishing(*senders: Sender, per_s: float | None = None, pending: int = 100) -> Iterator[None]:
    """Each sender publishes at a steady pace, or (None) as much as it can with `pending` messages without receipt."""
    ended = threading.Event()
    run = _greedy if per_s is None else _paced
    demand = pending if per_s is None else per_s
    threads = [threading.Thread(target=run, args=(sender, demand, ended)) for sender in senders]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def wait_for_more(senders: Sequence[Sender], more: int = 100, timeout_s: float = 60) -> None:
    """Return when each sender has got that many receipts from now on."""
    wanted = [len(sender.sent) + more for sender in senders]
    wait_for(
        lambda: all(len(sender.sent) >= count for sender, count in zip(senders, wanted, strict=True)),
        timeout_s,
        lambda: f"not {more} more receipts for each sender",
        pause_s=0.05,
    )


def _greedy(sender: Sender, pending: float, ended: threading.Event) -> None:
    for index in itertools.count():
        while index - len(sender.sent) - len(sender.failed) >= pending:
            if ended.wait(0.005):
                return
        if ended.is_set():
            return
        sender.send_async(payload(sender.name, index))


def _paced(sender: Sender, per_s: float, ended: threading.Event) -> None:
    begin = time.monotonic()
    for index in itertools.count():
        if ended.wait(max(0.0, begin + index / per_s - time.monotonic())):
            return
        sender.send_async(payload(sender.name, index))
