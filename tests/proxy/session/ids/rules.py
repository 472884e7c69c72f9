"""What must be true between a client, Sluice and a broker, and sums to tell it by."""

from limiter.limiter import Stream
from tests.proxy.session.ids import product_view as view
from tests.proxy.session.ids.counts import Counts


class Broken(AssertionError):
    """Something that must be true is not.

    Args:
        rule: Which of the rules that is, in a word.
        text: What is so instead.
    """

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Sums:
    """What streams passed, by topic; streams that are over are counted and forgotten."""

    def __init__(self, direction: str) -> None:
        self._direction = direction
        self._streams: dict[Stream, None] = {}
        self._over = Counts()

    def add(self, streams: list[Stream]) -> None:
        for stream in streams:
            if stream.name.direction == self._direction:
                self._streams[stream] = None

    def read(self) -> Counts:
        sums = self._over.copy()
        for stream in list(self._streams):
            entries, messages, size = view.passed(stream)
            topic = stream.name.topic
            passed = {(topic, "entries"): entries, (topic, "messages"): messages, (topic, "bytes"): size}
            sums.update(passed)
            if not stream.is_open:
                self._over.update(passed)
                del self._streams[stream]
        return sums


def check_covered(clause: str, got: Counts, charged: Counts) -> None:
    """Nothing came of a topic that was not charged to it."""
    for key, number in got.items():
        if number > charged[key]:
            raise Broken("charge", f"{clause} {number} {key[1]} of {key[0]}, and {charged[key]} were charged to it")
