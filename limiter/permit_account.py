"""What one consumer has under way at one meter, and the row of those that wait for their broker."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limiter.permit_meter import PermitMeter
    from limiter.permits import Permits


class Account:
    """What one consumer has under way at one meter.

    Attributes:
        permits: Whose it is.
        meter: Where it is.
        amount: So much.
        beyond: What of it is more than one entry.
        is_idle: Whether nothing has come for it lately.
        is_present: Whether something is under way at all.
        since_came, since_trips: What had come for all, and how many round trips there had been, when it began to wait
            for the broker.
        trip: The round trip that its next delivery ends; none if below 0.
        waits: Whether it stands in the row, between `before` and `behind`.
    """

    __slots__ = (
        "amount",
        "before",
        "behind",
        "beyond",
        "is_idle",
        "is_present",
        "meter",
        "permits",
        "since_came",
        "since_trips",
        "trip",
        "waits",
    )

    def __init__(self, permits: "Permits", meter: "PermitMeter") -> None:
        self.permits = permits
        self.meter = meter
        self.amount = 0
        self.beyond = 0
        self.is_idle = False
        self.is_present = False
        self.since_came = 0
        self.since_trips = 0
        self.trip = -1
        self.waits = False
        self.before: Account | None = None
        self.behind: Account | None = None


class AccountRow:
    """Accounts in the order in which they came; a step costs the same wherever it is, and less than in a dictionary.

    Attributes:
        first: Who has been here longest.
    """

    def __init__(self) -> None:
        self.first: Account | None = None
        self._last: Account | None = None

    def __iter__(self) -> Iterator[Account]:
        """All of them."""
        account = self.first
        while account is not None:
            yield account
            account = account.behind

    def add(self, account: Account) -> None:
        """One that is not here comes last."""
        account.waits = True
        account.before = self._last
        if self._last is None:
            self.first = account
        else:
            self._last.behind = account
        self._last = account

    def remove(self, account: Account) -> None:
        """It is here no longer, if it was."""
        if not account.waits:
            return
        account.waits = False
        before, behind = account.before, account.behind
        account.before = account.behind = None
        if before is None:
            self.first = behind
        else:
            before.behind = behind
        if behind is None:
            self._last = before
        else:
            behind.before = before
