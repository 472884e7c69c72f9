"""What a judge has to tell its worker, until somebody takes it.

Of one stream in the order in which it was decided; what was decided of it several times at one limiter is told once.
"""

from collections.abc import Callable, Mapping

from limiter.limiter import Limiter
from limiter.workers.letters import Answer, Granted, Letter, Rejected, Released
from limiter.workers.mirror import Mirror


class Verdicts:
    """Collects it.

    Args:
        numbers: Of limiters, as the worker knows them.
        woken: Called when there is something.
    """

    def __init__(self, numbers: Mapping[Limiter, int], woken: Callable[[], None]) -> None:
        self._numbers = numbers
        self._woken = woken
        self._earlier: list[Letter] = []
        self._wired: dict[Mirror, None] = {}
        self._letters: list[Letter] = []
        self._released: dict[Mirror, None] = {}
        self._granted: dict[int, int] = {}
        self._answers: list[Letter] = []

    def say(self, letter: Letter) -> None:
        """Tell this."""
        self._letters.append(letter)
        self._woken()

    def wired(self, mirror: Mirror) -> None:
        """A stream's limits are to be told, behind all that was decided by others before."""
        if self._released or self._letters:
            self._earlier += self._decided()
        self._wired[mirror] = None
        self._woken()

    def released(self, mirror: Mirror) -> None:
        """The next of a stream's tickets may go."""
        mirror.settled += 1
        self._released[mirror] = None
        self._woken()

    def rejected(self, mirror: Mirror, reason: str) -> None:
        """The next of a stream's tickets is refused."""
        self.settle(mirror)
        mirror.settled += 1
        last = self._letters[-1] if self._letters else None
        if isinstance(last, Rejected) and last.stream == mirror.number and last.reason == reason:
            last.tickets = mirror.settled
        else:
            self._letters.append(Rejected(mirror.number, mirror.settled, reason))
        self._woken()

    def settle(self, mirror: Mirror) -> None:
        """What may go so far of a stream is told before what comes behind it."""
        if mirror in self._released:
            del self._released[mirror]
            self._letters.append(Released(mirror.number, mirror.settled))

    def granted(self, number: int, permits: int) -> None:
        """A consumer's permits go on."""
        self._granted[number] = self._granted.get(number, 0) + permits
        self._woken()

    def answered(self, question: int) -> None:
        """All that was asked about is told before this."""
        self._answers.append(Answer(question))
        self._woken()

    def forget(self, mirror: Mirror) -> None:
        """A stream is over."""
        self._wired.pop(mirror, None)
        self._released.pop(mirror, None)
        self._granted.pop(mirror.number, None)

    def take(self, batch: Letter | None) -> list[Letter]:
        """What is to be told; `batch` is about what of it may go."""
        letters, self._earlier = self._earlier, []
        letters += self._decided()
        letters += [Granted(number, permits) for number, permits in self._granted.items()]
        self._granted.clear()
        if batch is not None:
            letters.append(batch)
        letters += self._answers
        self._answers.clear()
        return letters

    def _decided(self) -> list[Letter]:
        letters: list[Letter] = [mirror.wiring(self._numbers) for mirror in self._wired]
        self._wired.clear()
        letters += self._letters
        self._letters.clear()
        letters += [Released(mirror.number, mirror.settled) for mirror in self._released]
        self._released.clear()
        return letters
