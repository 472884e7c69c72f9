"""What the judges of all workers have in common: what nobody can decide yet, because tokens are lent.

A limit in mode `reject` refuses what is over it at once. But whether an entry would be refused, held or let pass, if
there were but one process, nobody knows while some limiter in its way has lent tokens: the worker that has them may use
them, or give them back. So such a case is *adjourned*: what was lent is recalled, and meanwhile the entries wait at the
gate, as any that are held. Those that still wait when nothing is lent any more are judged as if they came now.

    ticket ──lent in the way──▶ adjourned, waits at the gate ──all given back──▶ passed, refused or held
                                      └──tokens come first──▶ passed
"""

from collections.abc import Callable

from limiter.limiter import Entry, Limiter, Stream
from limiter.scheduler import Scheduler

Decide = Callable[[Entry, int], None]
"""Judges an entry, at a moment."""


class Court:
    """One for all judges.

    Args:
        gate: Where all streams wait.
        recall: Has all workers give back what they were lent of a limit (`recall` of each one's judge). The gate does
            so wherever somebody begins to wait: nobody is to overtake him.
    """

    def __init__(self, gate: Scheduler, recall: Callable[[Limiter], None]) -> None:
        self.recall = recall
        self._gate = gate
        gate.recall_by(recall)
        self._cases: dict[Stream, Decide] = {}

    def adjourn(self, stream: Stream, decide: Decide, lent: list[Limiter]) -> None:
        """What is held of a stream from now on is to be judged when these limiters have back what they lent."""
        self._cases[stream] = decide
        for limiter in lent:
            self.recall(limiter)

    def close(self, stream: Stream) -> None:
        """What is held of a stream waits, as what any limit holds; or it is over."""
        self._cases.pop(stream, None)

    def returned(self, limiter: Limiter, now: int) -> None:
        """Nothing is lent of this one any more, if it has no borrowers: in the order of arrival all cases are judged.

        First all of them leave the gate, or they would be in each other's way.
        """
        if limiter.borrowers or not self._cases:
            return
        ready: list[tuple[int, Entry, Decide]] = []
        for stream in [stream for stream in self._cases if limiter in stream.chain]:
            decide = self._cases.pop(stream)
            ready += [(entry.since, entry, decide) for entry in self._gate.take_back(stream, now)]
        ready.sort(key=_since)
        for _, entry, decide in ready:
            decide(entry, now)


def _since(one: tuple[int, Entry, Decide]) -> int:
    return one[0]
