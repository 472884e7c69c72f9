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
    """Each sender publishes at a pace, or (None) as much as it can, with at most `pending` messages without receipt.

    At the begin it has none.
    """
    ended = threading.Event()
    threads = [threading.Thread(target=_publish, args=(sender, per_s, pending, ended)) for sender in senders]
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


def _publish(sender: Sender, per_s: float | None, pending: int, ended: threading.Event) -> None:
    begin, first = time.monotonic(), len(sender.sent) + len(sender.failed)
    for index in itertools.count(first):
        due = begin if per_s is None else begin + (index - first) / per_s
        if ended.wait(max(0.0, due - time.monotonic())):
            return
        while index - len(sender.sent) - len(sender.failed) >= pending:
            if ended.wait(0.005):
                return
        sender.send_async(payload(sender.name, index))
