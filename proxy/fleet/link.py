"""The interface of a link, which carries the reports and grants of a fleet between its members; and a link's tasks.

A link does not read messages. A message has `fleet.messages.MOST_MESSAGE` bytes at most. It may be lost, late or
doubled: `fleet/messages.py` explains why that does no harm. A link keeps nothing for a member that cannot be reached.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

import structlog

from protocol.printable import printable
from proxy.observe.operator_log import ThrottledLog

MOST_PAUSE_S: Final = 5.0
"""Seconds between two tries to connect, at most."""

LinkState = Literal["connecting", "following", "leading"]


class Callbacks(NamedTuple):
    """Functions that a link calls, on the event loop; it calls none after `stop`.

    Attributes:
        on_report: A report came; only while leading.
        on_grant: A grant came.
        on_lead: This member coordinates from now on.
        on_unlead: This member does not coordinate any more, or cannot know whether it does.
        on_confirmed: This member was the only coordinator at some time after the given one (`time.monotonic_ns`), at
            which grants were sent that the broker has now acknowledged. It may not be the only one any more.
    """

    on_report: Callable[[bytes], None]
    on_grant: Callable[[bytes], None]
    on_lead: Callable[[], None]
    on_unlead: Callable[[], None]
    on_confirmed: Callable[[int], None]


@dataclass(slots=True)
class LinkCounts:
    """Totals since the link was made."""

    messages_in: int = 0
    messages_out: int = 0
    reconnects: int = 0
    takeovers: int = 0
    """The number of times that this member became the coordinator."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Messages that were not carried, by cause: `disconnected`, `slow`, `oversized`, `foreign`, `refused`."""
    defects: int = 0
    """Exceptions that only a defect of Sluice can raise."""


class FleetLink(Protocol):
    """Carries reports to the present coordinator, and its grants to all members."""

    counts: LinkCounts

    @property
    def state(self) -> LinkState:
        """Whether reports and grants can pass, and whether this member coordinates."""
        ...

    @property
    def refused(self) -> bool:
        """Whether the brokers refuse at once, rather than being silent."""
        ...

    @property
    def problem(self) -> str:
        """Why reports and grants cannot pass, if known; empty if they can."""
        ...

    @property
    def remedy(self) -> str:
        """The remedy of the problem, if known; `problem` ends in it."""
        ...

    @property
    def finds_nothing(self) -> bool:
        """Whether brokers say that there are no such topics, or no such namespace."""
        ...

    async def start(self) -> None:
        """Begin; returns before anything is connected."""
        ...

    async def stop(self) -> None:
        """End: no connection, task or timer is left."""
        ...

    def report(self, message: bytes) -> bool:
        """Send a report to the coordinator, this member included; False: it cannot be sent now."""
        ...

    def grant(self, message: bytes) -> bool:
        """Send grants to all members, this one included; False: not leading, or it cannot be sent now."""
        ...


def backoff(attempt: int, most_s: float = MOST_PAUSE_S) -> float:
    """Return the seconds before the next try: 50 ms, doubled for each failed attempt, up to `most_s`; less jitter.

    A link's pauses are a lease at most. A new coordinator waits two leases for members' reports. A member that paused
    for longer would still use its isolated share when that is granted to others.
    """
    return min(most_s, 0.05 * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1)  # noqa: S311 - no secret


class LinkTasks:
    """The tasks of a link. A task that ends by a defect of Sluice is logged, and starts again after a pause.

    A cancelled task does not start again, even if a defect replaces its `CancelledError`.

    Args:
        counts: Counts the defects.
        most_pause_s: Seconds between two beginnings of a task, at most.
    """

    def __init__(self, counts: LinkCounts, most_pause_s: float = MOST_PAUSE_S) -> None:
        self._counts = counts
        self._most_pause_s = most_pause_s
        self._running: set[asyncio.Task[None]] = set()
        self._lines = ThrottledLog(time.monotonic_ns)

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run a function that ends only by being cancelled, and return its task."""
        task = asyncio.get_running_loop().create_task(self._keep_running(run))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def stop(self) -> None:
        """Cancel all tasks. Return when they have ended."""
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def defect(self, error: BaseException) -> None:
        """Count an exception that only a defect of Sluice can raise, and log it, each ten seconds at most."""
        self._counts.defects += 1
        text = printable(f"{type(error).__name__}: {error}")
        if times := self._lines.due("defect", text):
            structlog.get_logger().error(
                "fleet: a defect of Sluice has ended part of the link, which is started again",
                error=text,
                times=times,
            )

    async def _keep_running(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        attempt, clock, task = 0, asyncio.get_running_loop().time, asyncio.current_task()
        assert task is not None, "the loop runs it"
        while True:
            began = clock()
            try:
                await run()
            except Exception as error:  # noqa: BLE001 - no defect ends the link
                self.defect(error)
            if task.cancelling():
                return
            attempt = 1 if clock() - began > MOST_PAUSE_S else attempt + 1
            await asyncio.sleep(backoff(attempt, self._most_pause_s))
