"""The lease issuer lends a worker tokens of each limit in advance, so that what fits needs no quota server.

    bucket ──lend──▶ worker's lease ──used──▶ (gone)
       ▲                    └──unused, recalled──┐
       └─────────────────────────────────────────┘

What is lent still fills its bucket (`TokenBucket.lend`), so all workers together never pass more than the bucket alone
would. Of a limit that is shared with other processes a loan ends with the lease of the share, and after a second at
most (`LOAN_NS`): a worker that stands still has nothing of it afterwards. Where somebody waits nothing is lent: whose
turn it is, is then decided for each entry. A worker that is lost loses what it was lent: nobody knows what it has used.

Half of a burst may be lent in all, and of what is left of that, half at a time: a worker alone gets most of it, and
each of many about as much as the others, with no shares configured. What a worker needs more often it is lent more
often.
"""

from limiter.limiter import Amount, Limiter
from limiter.sharing import LOAN_NS

LEAST_MESSAGES = 8
LEAST_SIZE = 4096
"""Less is not worth a message: entries go by the queue where bursts are as small."""


class Loan:
    """The tokens of one limit that one worker has been lent and has not accounted for."""

    __slots__ = ("is_recalled", "messages", "size", "until")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.until = 0
        self.is_recalled = False

    def come_back(self, limiter: Limiter, used: Amount, unused: Amount, now: int) -> None:
        """Take tokens back as used or as unused, never more than were lent."""
        used = min(used[0], self.messages), min(used[1], self.size)
        unused = (min(unused[0], self.messages - used[0]), min(unused[1], self.size - used[1]))
        self.messages -= used[0] + unused[0]
        self.size -= used[1] + unused[1]
        limiter.come_back(used, unused, now)


class LeaseIssuer:
    """Issues one worker's loans, and knows which lent tokens are not counted as passed yet.

    Attributes:
        loans: By limiter; those of which nothing is lent any more are gone.
    """

    def __init__(self) -> None:
        self.loans: dict[Limiter, Loan] = {}
        self._ahead: dict[Limiter, list[int]] = {}

    def lend(self, limiter: Limiter, now: int) -> tuple[int | None, int | None, int] | None:
        """Lend some more tokens of a limit; return None if streams wait for it or too little is left.

        Returns:
            Messages and bytes, None where there is no limit; both may be 0 if a loan is only to last longer. And the
            end of all that the worker has of this limit; 0 if it does not end.
        """
        if limiter.waiters or limiter.claimant is not None or limiter.is_rejecting:
            return None
        loan = self.loans.get(limiter)
        if loan is not None and loan.is_recalled:
            return None
        messages, size = map(_half, limiter.spare(now))
        until = 0 if limiter.lease is None else min(limiter.lease.until, now + LOAN_NS)
        if (messages is not None and messages < LEAST_MESSAGES) or (size is not None and size < LEAST_SIZE):
            if loan is None or until - loan.until < LOAN_NS // 2:
                return None
            loan.until = until
            return None if messages is None else 0, None if size is None else 0, until
        if loan is None:
            loan = self.loans[limiter] = Loan()
            limiter.borrowers += 1
        loan.until = until
        loan.messages += messages or 0
        loan.size += size or 0
        limiter.charge(messages or 0, size or 0, now)
        limiter.lend(messages or 0, size or 0)
        ahead = self._ahead.setdefault(limiter, [0, 0])
        ahead[0] += messages or 0
        ahead[1] += size or 0
        return messages, size, until

    def recall(self, limiter: Limiter) -> bool:
        """Recall a loan; return whether there is one that was not recalled before."""
        loan = self.loans.get(limiter)
        if loan is None or loan.is_recalled:
            return False
        loan.is_recalled = True
        return True

    def spent(self, limiter: Limiter, used: Amount, unused: Amount, now: int, *, is_answer: bool) -> None:
        """Account for a part of a loan, as the worker reports it; `is_answer`: the rest of a recalled loan.

        Messages pass each other: a worker may give back what it does not use, or a lease that nobody needs, while it is
        being lent more or asked for it. So a loan is over when all of it is accounted for, and nothing is lent anew
        until a recall is answered.
        """
        loan = self.loans.get(limiter)
        if loan is None:
            return
        loan.come_back(limiter, used, unused, now)
        self._not_ahead(limiter, *unused)
        if is_answer:
            loan.is_recalled = False
        if not loan.is_recalled and loan.messages == loan.size == 0:
            del self.loans[limiter]
            limiter.borrowers -= 1

    def counted(self, limiter: Limiter, messages: int, size: int) -> None:
        """Count lent tokens as passed now; a limit without streams counts them nowhere."""
        lent = self._not_ahead(limiter, messages, size)
        if limiter.streams:
            limiter.count_lent((messages, size), lent)
        else:
            limiter.give_up_lent(lent)

    def _not_ahead(self, limiter: Limiter, messages: int, size: int) -> Amount:
        """Return how much of these messages and bytes the worker has ahead, and take it from what it has ahead."""
        ahead = self._ahead.get(limiter)
        if ahead is None:
            return 0, 0
        lent = min(messages, ahead[0]), min(size, ahead[1])
        ahead[0] -= lent[0]
        ahead[1] -= lent[1]
        limiter.ahead_messages -= lent[0]
        limiter.ahead_size -= lent[1]
        if ahead[0] == ahead[1] == 0:
            del self._ahead[limiter]
        return lent

    def all_is_counted(self, limiter: Limiter) -> None:
        """Give up what is left of a loan: the worker has told all that passed, the rest counted for other limits."""
        if limiter not in self.loans:
            limiter.give_up_lent(self._not_ahead(limiter, *self._ahead.get(limiter, (0, 0))))

    def lose(self, now: int) -> Amount:
        """Count all loans as used, because the worker has ended; return their sum."""
        loans, self.loans = self.loans, {}
        lost = (sum(loan.messages for loan in loans.values()), sum(loan.size for loan in loans.values()))
        for limiter, loan in loans.items():
            limiter.borrowers -= 1
            loan.come_back(limiter, (loan.messages, loan.size), (0, 0), now)
        for limiter in list(self._ahead):
            self.all_is_counted(limiter)
        return lost


def _half(spare: int | None) -> int | None:
    return None if spare is None else spare // 2
