"""Running clients while pulsar-admin changes their limits, one change after the other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.real.arrivals import Watcher
from tests.real.demand import publishing
from tests.real.stages import Stage
from tests.real.traffic import Sender, open_sender

LOOK_S = 2
OFFERED = 250
"""Messages a second."""


@dataclass(frozen=True)
class Change:
    """A call of pulsar-admin, and how many messages a second it leaves; None: as many as there are."""

    command: str
    per_s: int | None


class Scene:
    """One producer and one consumer that go on, whatever is changed.

    Args:
        sender: Sends at a steady pace.
        watcher: Receives.
        least: The least limit of the stream now, messages a second.
        run: Calls pulsar-admin.
        changes: One after the other.
    """

    def __init__(
        self,
        sender: Sender,
        watcher: Watcher,
        least: Callable[[], int | None],
        run: Callable[[str], object],
        changes: tuple[Change, ...],
    ) -> None:
        self._sender, self._watcher, self._least = sender, watcher, least
        self._run, self._changes = run, changes
        self.in_force: list[int | None] = []

    def play(self) -> "Scene":
        """Let each change be seen at work."""
        with publishing(self._sender, per_s=OFFERED), self._watcher:
            self._watcher.wait_for(1)
            self.in_force = [self._make(change) for change in self._changes]
        return self

    def assert_in_force(self) -> None:
        """Each limit that was set was the stream's. That no more passes than it says, and no less, the log tells."""
        assert self.in_force == [change.per_s for change in self._changes]

    def _make(self, change: Change) -> int | None:
        self._run(change.command)
        arrived = len(self._watcher.arrivals)
        time.sleep(LOOK_S)
        self._watcher.wait_for(arrived + 1)
        return self._least()


def _least_limit(stage: Stage, topic: str) -> int | None:
    (stream,) = stage.sluice.streams(topic)
    return min((round(limit["messages_per_s"]) for limit in stream["limits"]), default=None)


def publishing_scene(stage: Stage, topic: str, run: Callable[[str], object], changes: tuple[Change, ...]) -> Scene:
    """The producer is a client of Sluice, the consumer the broker's own."""
    stage.warm_up(topic)
    watcher = Watcher(stage.at_broker.subscribe(topic, "watch"))
    sender = open_sender(stage.client(), topic, "p", send_timeout_millis=0)
    return Scene(sender, watcher, partial(_least_limit, stage, topic), run, changes)


def consuming_scene(stage: Stage, topic: str, run: Callable[[str], object], changes: tuple[Change, ...]) -> Scene:
    """The consumer is a client of Sluice, which takes 10 messages before it is asked for them."""
    stage.warm_up(topic)
    watcher = Watcher(stage.client().subscribe(topic, "watch", receiver_queue_size=10))
    least = partial(_least_limit, stage, topic)
    return Scene(open_sender(stage.at_broker, topic, "p"), watcher, least, run, changes)
