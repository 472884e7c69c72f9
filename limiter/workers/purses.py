"""All that a worker has been lent, by limit."""

from collections.abc import Callable, Iterable

from limiter.workers.account import Account
from limiter.workers.letters import Letter, Spent
from limiter.workers.purse import Purse


class Purses:
    """One purse for each limit that some stream is within.

    Args:
        tell: Takes what is to be told the judge.
        give_back: Takes what ends a loan.
    """

    def __init__(self, tell: Callable[[Letter], None], give_back: Callable[[Spent], None]) -> None:
        self._by_number: dict[int, Purse] = {}
        self._tell = tell
        self._end = give_back

    @property
    def are_closed(self) -> bool:
        """Whether nothing is lent."""
        return not any(purse.is_open for purse in self._by_number.values())

    def use(self, account: Account, numbers: Iterable[int]) -> None:
        """These limits apply to a stream; what no stream is within any more is given back."""
        purses = tuple([self._of(number) for number in numbers])
        for purse in purses:
            purse.streams += 1
        before, account.purses = account.purses, purses
        for purse in before:
            purse.streams -= 1
            if purse.streams == 0:
                self._give_back(purse)
                del self._by_number[purse.number]

    def lent(self, number: int, messages: int | None, size: int | None) -> None:
        """More is there; of a limit that no stream is within any more, nothing is needed."""
        purse = self._by_number.get(number)
        if purse is None:
            self._end(Spent(number, 0, 0, messages or 0, size or 0))
        else:
            purse.lend(messages, size)

    def recalled(self, number: int) -> None:
        """The judge wants all back; it gets an answer whatever there is."""
        self._give_back(self._by_number.get(number) or Purse(number), is_answer=True)

    def report(self) -> None:
        """Tell what was used; what was not, since this was asked last, is given back."""
        for purse in self._by_number.values():
            if purse.is_open and not purse.is_used:
                self._give_back(purse)
            elif purse.is_open:
                self._tell(Spent(purse.number, *purse.take_used(), 0, 0, wants_more=True))

    def _of(self, number: int) -> Purse:
        purse = self._by_number.get(number)
        if purse is None:
            purse = self._by_number[number] = Purse(number)
        return purse

    def _give_back(self, purse: Purse, *, is_answer: bool = False) -> None:
        used = purse.take_used()
        self._end(Spent(purse.number, *used, *purse.empty(), is_answer=is_answer))
