"""Running clients while pulsar-admin changes their limits, one change after the other."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.real.arrivals import Arrival, Line, Watcher
from tests.real.demand import publishing
from tests.real.stages import Stage
from tests.real.steadiness import SETTLED_S, assert_never_above, assert_steady
from tests.real.traffic import Sender, open_sender

LOOK_S = 2
OFFERED = 400
"""Messages a second."""
_IN_FORCE_S = 0.05
"""So soon a change acts."""
_LATE_S = 0.4
"""So long the machine may stand still in a step."""


@dataclass(frozen=True)
class Change:
    """A call of pulsar-admin, and how many messages a second it leaves; None: as many as there are."""

    command: str
    per_s: int | None


@dataclass(frozen=True)
class Step:
    """A change, and what arrived from then on until the next one."""

    change: Change
    arrivals: list[Arrival]
    until: float

    def assert_kept(self, entry: int, stall_s: float, stalled_s: float) -> None:
        """What arrived is what the limit says, neither more nor less; `entry` messages may come at once."""
        if self.change.per_s is None:
            assert len(self.arrivals) >= OFFERED * LOOK_S, self.change
            return
        line = Line(self.change.per_s, burst=self.change.per_s / 10, entry=entry)
        assert_never_above(self.arrivals, line, stall_s)
        assert_steady(self.arrivals, line, LOOK_S, stalled_s, self.until)


class Scene:
    """One producer and one consumer that go on, whatever is changed.

    Args:
        sender: Sends at a steady pace.
        watcher: Receives.
        run: Calls pulsar-admin.
        changes: One after the other.
    """

    def __init__(
        self, sender: Sender, watcher: Watcher, run: Callable[[str], object], changes: tuple[Change, ...]
    ) -> None:
        self._sender, self._watcher, self._run, self._changes = sender, watcher, run, changes
        self.steps: list[Step] = []

    def play(self) -> "Scene":
        """Let each change be seen at work."""
        with publishing(self._sender, per_s=OFFERED), self._watcher:
            self._watcher.wait_for(1)
            spans = [self._make(change) for change in self._changes]
        for change, (begin, end) in zip(self._changes, spans, strict=True):
            found = [arrival for arrival in self._watcher.arrivals if begin <= arrival[0] < end]
            self.steps.append(Step(change, found, end))
        return self

    def _make(self, change: Change) -> tuple[float, float]:
        self._run(change.command)
        begin = time.monotonic() + _IN_FORCE_S
        time.sleep(_IN_FORCE_S + SETTLED_S + LOOK_S + _LATE_S)
        return begin, time.monotonic()


def publishing_scene(stage: Stage, topic: str, run: Callable[[str], object], changes: tuple[Change, ...]) -> Scene:
    """The producer is a client of Sluice, the consumer the broker's own."""
    stage.warm_up(topic)
    watcher = Watcher(stage.at_broker.subscribe(topic, "watch"))
    sender = open_sender(stage.client(), topic, "p", send_timeout_millis=0)
    return Scene(sender, watcher, run, changes)


def consuming_scene(stage: Stage, topic: str, run: Callable[[str], object], changes: tuple[Change, ...]) -> Scene:
    """The consumer is a client of Sluice, which takes 10 messages before it is asked for them."""
    stage.warm_up(topic)
    watcher = Watcher(stage.client().subscribe(topic, "watch", receiver_queue_size=10))
    return Scene(open_sender(stage.at_broker, topic, "p"), watcher, run, changes)
