"""A consumer with credit windows but no scheduler: deliveries pass at once, unless a test holds them."""

from collections.abc import Iterable

from limiter.permits import CreditWindow, DispatchRules, Permits
from limiter.usage import StreamUsage

PLAIN = DispatchRules(is_precise=False)
"""A permit is one message: the numbers are easy to follow."""


class Asking:
    """The broker's view of a consumer, next to the window's."""

    def __init__(self, *windows: CreditWindow, rules: DispatchRules = PLAIN) -> None:
        self.granted = 0
        self.asked = 0
        self.again = 0
        self.usage = StreamUsage()
        self.held: list[tuple[int, int]] = []
        self.noted = 0
        self.permits = Permits(self.usage, self._grant, self._note, rules)
        self.permits.rewire(windows)

    def _note(self) -> None:
        self.noted += 1

    def _grant(self, permits: int) -> None:
        assert permits > 0, "a FLOW of nothing, or of less"
        self.granted += permits

    def ask(self, permits: int) -> None:
        self.asked += permits
        if self.permits.ask(permits, as_it_came=True):
            self.granted += permits

    def arrive(self, messages: int, size: int = 0) -> None:
        """An entry, which is held."""
        self.held.append((messages, size))
        self.permits.arrived(1, messages, size)

    def pass_one(self) -> None:
        if self.held:
            self.permits.passed(*self.held.pop(0))

    def receive(self, messages: int, size: int = 0) -> None:
        """An entry that passes at once."""
        self.permits.crossed(1, messages, size)

    def receive_all(self) -> None:
        """Entry by entry, whatever there are permits for, and what is held."""
        while self.held:
            self.pass_one()
        if self.permits.at_broker > 0:
            self.permits.crossed(self.permits.at_broker, self.permits.at_broker, 0)

    def drop(self, *, again: bool) -> None:
        messages, size = sum(each[0] for each in self.held), sum(each[1] for each in self.held)
        self.again += messages if again else 0
        entries = len(self.held)
        self.held.clear()
        self.permits.dropped(entries, messages, size, ask_again=again)


def idle_at(window: CreditWindow, consumers: Iterable[Permits]) -> int:
    """What those of them have under way there that are idle."""
    wired = (pair for permits in consumers for pair in zip(permits.windows, permits._accounts, strict=True))
    return sum(account.amount for own_window, account in wired if own_window is window and account.is_idle)
