"""What a worker has asked its judge, and what it does when that has answered."""

from collections.abc import Callable

from limiter.workers.letters import Letter, Question


class Questions:
    """Numbers them.

    Args:
        tell: Takes what is to be told the judge.
    """

    def __init__(self, tell: Callable[[Letter], None]) -> None:
        self._tell = tell
        self._open: dict[int, Callable[[], None]] = {}
        self._last = 0

    def ask(self, then: Callable[[], None]) -> None:
        """Call `then` when the judge has heard all that was told so far, and what it said to that has been heard."""
        self._last += 1
        self._open[self._last] = then
        self._tell(Question(self._last))

    def answered(self, number: int) -> None:
        """It says so."""
        self._open.pop(number)()
