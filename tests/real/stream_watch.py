"""What Sluice says of its streams while scenes go on, and what is left when they are over."""

import threading
from collections import defaultdict
from typing import Any, Self

from loadgen.real.process import wait_until
from tests.real.metrics import counted
from tests.real.pulsar_rest import TENANT
from tests.real.sluice_process import SluiceProcess
from tests.waiting import PATIENCE_S

_LOOK_AGAIN_S = 0.05


class StreamWatch:
    """Looks at all consumers of the tests' tenant, all the time until its block ends.

    Attributes:
        most_held: The most messages that were held of each topic (or partition), its consumers together.
        most_withheld: The same of the permits that were asked for and not granted.

    Args:
        sluice: Whose.
    """

    def __init__(self, sluice: SluiceProcess) -> None:
        self.most_held: dict[str, int] = defaultdict(int)
        self.most_withheld: dict[str, int] = defaultdict(int)
        self._sluice = sluice
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def left(self) -> tuple[dict[str, int], float]:
        """The totals of all streams once there are none, or after a while; and the bytes that are held of anybody."""
        wait_until(lambda: not self._answer()["totals"]["streams"], PATIENCE_S)
        return self._answer()["totals"], counted(self._sluice, "sluice_hold_budget_used_bytes")

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_AGAIN_S):
            held: dict[str, int] = defaultdict(int)
            withheld: dict[str, int] = defaultdict(int)
            for stream in self._answer()["streams"]:
                if stream["direction"] == "dispatch":
                    held[stream["topic"]] += stream["held_messages"]
                    withheld[stream["topic"]] += stream["permits_asked"] - stream["permits_granted"]
            for noted, seen in ((self.most_held, held), (self.most_withheld, withheld)):
                for topic, number in seen.items():
                    noted[topic] = max(noted[topic], number)

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._sluice.get(f"/sluice/streams?tenant={TENANT}")
        return answer
