"""The receiving end's book: what arrived when, once or again, in order or not."""

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from loadgen.load.payload import DamagedError, NotOursError, read_payload

BUCKETS_PER_S = 10


@dataclass(slots=True)
class Faults:
    """What should not have arrived, or not like this; all zero when all is well."""

    duplicates: int = 0
    out_of_order: int = 0
    """First arrivals behind a later message of the same producer."""
    damaged: int = 0
    misplaced: int = 0
    """Messages of this run that belong to another topic."""
    foreign: int = 0
    """Messages that this run did not send."""


class Arrivals:
    """Takes down the messages that arrive on one topic. One thread records; others may read the counts.

    Args:
        run: What the payloads of this run carry.
        producers: Indices of the producers that publish to this topic.
    """

    def __init__(self, run: bytes, producers: Collection[int]) -> None:
        self._run = run
        self._seen = {producer: bytearray() for producer in producers}
        self.faults = Faults()
        self.distinct = 0
        self.times = array("d")
        """When each message of this run arrived, repetitions included, seconds."""

    def record(self, at: float, payload: bytes) -> None:
        """One message arrived at `at` seconds (of any monotonic clock)."""
        try:
            stamp = read_payload(payload)
        except NotOursError:
            self.faults.foreign += 1
            return
        except DamagedError:
            self.faults.damaged += 1
            return
        if stamp.run != self._run:
            self.faults.foreign += 1
        elif stamp.producer not in self._seen:
            self.faults.misplaced += 1
        else:
            self.times.append(at)
            self._tick_off(self._seen[stamp.producer], stamp.sequence)

    def _tick_off(self, seen: bytearray, sequence: int) -> None:
        if sequence >= len(seen):
            seen.extend(bytes(sequence + 1 - len(seen)))
        elif seen[sequence]:
            self.faults.duplicates += 1
            return
        else:
            self.faults.out_of_order += 1
        seen[sequence] = 1
        self.distinct += 1


def histogram(times: Sequence[float], start: float) -> list[int]:
    """Arrivals in each tenth of a second since `start`; the last bucket holds the last arrival."""
    if not times:
        return []
    counts = [0] * (max(0, int((max(times) - start) * BUCKETS_PER_S)) + 1)
    for at in times:
        counts[max(0, int((at - start) * BUCKETS_PER_S))] += 1
    return counts
