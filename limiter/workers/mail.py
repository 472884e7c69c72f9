"""What a worker has to tell the judge, in order: letters soon, what only counts in its time."""

from typing import Protocol

from limiter.workers.account import Account
from limiter.workers.letters import Asked, Behind, Letter, Rewound, Spent
from limiter.workers.purse import Purse


class Alert(Protocol):
    """Who takes what there is to tell."""

    def soon(self) -> None:
        """Somebody waits for it."""

    def sometime(self) -> None:
        """It is to be counted."""


class Mail:
    """Collects it.

    Args:
        alert: Told that there is something.
        tells_all: What consumers pass is told soon even where their permits are not metered.
    """

    def __init__(self, alert: Alert, *, tells_all: bool) -> None:
        self._alert = alert
        self._tells_all = tells_all
        self._letters: list[Letter] = []
        self._asked: dict[tuple[int, bool], int] = {}
        """Where a stream's last `Asked` is among the letters, if only such and `Rewound` stand behind it."""
        self._rewound: set[int] = set()
        self._counted: dict[Account, None] = {}
        self._hasty: dict[Account, None] = {}
        self._low: dict[Purse, None] = {}
        self._waiting: dict[Account, None] = {}

    @property
    def has_counts(self) -> bool:
        """Whether there are counts that nobody waits for."""
        return bool(self._counted or self._waiting)

    def tell(self, letter: Letter) -> None:
        """Say this, after all that was said."""
        if not self._letters:
            self._alert.soon()
        if self._asked or self._rewound:
            self._asked.clear()
            self._rewound.clear()
        self._letters.append(letter)

    def ask(self, stream: int, permits: int, *, is_granted: bool) -> None:
        """Say that a consumer asks for permits: in one letter for all that it asks for in a turn of the loop.

        A client sends a million FLOWs in a second for as many bytes as a letter has; the supervisor reads them all.
        """
        key = stream, is_granted
        place = self._asked.get(key)
        if place is None:
            if not self._letters:
                self._alert.soon()
            self._asked[key] = len(self._letters)
            self._letters.append(Asked(stream, permits, is_granted))
            return
        before = self._letters[place]
        assert isinstance(before, Asked), "its place is that of such a letter"
        self._letters[place] = Asked(stream, before.permits + permits, is_granted)

    def rewind(self, stream: int) -> None:
        """Say once in a turn that a consumer is to get again what it had, if nothing but such is said meanwhile."""
        if stream in self._rewound:
            return
        if not self._letters:
            self._alert.soon()
        for is_granted in (False, True):
            self._asked.pop((stream, is_granted), None)
        self._rewound.add(stream)
        self._letters.append(Rewound(stream))

    def give_back(self, letter: Spent) -> None:
        """Say it after all that passed of what was lent."""
        for account in list(self._counted):
            self.settle(account)
        self.tell(letter)

    def count(self, account: Account, *, is_consumer: bool) -> None:
        """Something of a stream passed by what was lent."""
        if is_consumer and (account.is_metered or self._tells_all):
            self._hasty[account] = None
            self._alert.soon()
        elif account not in self._counted:
            self._alert.sometime()
        self._counted[account] = None
        for purse in account.purses:
            if purse.is_low and purse not in self._low:
                self._low[purse] = None
                self._alert.soon()

    def settle(self, account: Account) -> None:
        """What passed is told before what comes behind it."""
        self._counted.pop(account, None)
        self._hasty.pop(account, None)
        if account.entries:
            self.tell(account.take_passed())

    def wait(self, account: Account) -> None:
        """Something of a stream waits without a ticket."""
        self._waiting[account] = None

    def forget(self, account: Account) -> None:
        """Its stream is over."""
        self._waiting.pop(account, None)
        self.settle(account)

    def settle_all(self) -> None:
        """Tell all that counts."""
        for account in list(self._counted):
            self.settle(account)
        for account in list(self._waiting):
            self._letters.append(Behind(account.number, *account.behind_sums()))
            if not account.behind:
                del self._waiting[account]
        self._low.clear()

    def take(self) -> list[Letter]:
        """What is to be told soon."""
        for account in list(self._hasty):
            self.settle(account)
        for purse in self._low:
            if purse.is_open:
                self._letters.append(Spent(purse.number, *purse.take_used(), 0, 0, wants_more=True))
        self._low.clear()
        letters, self._letters = self._letters, []
        self._asked.clear()
        self._rewound.clear()
        return letters
