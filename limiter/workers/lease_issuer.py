"""What workers have been lent of each limit: tokens taken ahead, so that what fits needs no quota server.

    bucket ──lend──▶ worker's lease ──used──▶ (gone)
       ▲                    └──unused, recalled──┐
       └─────────────────────────────────────────┘

What is lent still fills its bucket (`TokenBucket.lend`), so all workers together never pass more than the bucket alone
would. Where somebody waits nothing is lent: whose turn it is, is then decided for each entry. A worker that is lost
loses what it was lent: nobody knows what it has used.

Half of a burst may be lent in all, and of what is left of that, half at a time: a worker alone gets most of it, and
each of many about as much as the others, with no shares configured. What a worker needs more often it is lent more
often.
"""

from limiter.limiter import Amount, Limiter

LEAST_MESSAGES = 8
LEAST_SIZE = 4096
"""Less is not worth a message: entries go by the queue where bursts are as small."""


class Loan:
    """What one worker has of one limit."""

    __slots__ = ("is_recalled", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.is_recalled = False

    def come_back(self, limiter: Limiter, used: Amount, unused: Amount, now: int) -> None:
        """So much was used, and so much will not be; but never more than was lent."""
        used = min(used[0], self.messages), min(used[1], self.size)
        unused = (min(unused[0], self.messages - used[0]), min(unused[1], self.size - used[1]))
        self.messages -= used[0] + unused[0]
        self.size -= used[1] + unused[1]
        limiter.come_back(used, unused, now)


class LeaseIssuer:
    """One worker's loans, and what of them is not counted as passed yet.

    Attributes:
        loans: By limiter; those of which nothing is lent any more are gone.
    """

    def __init__(self) -> None:
        self.loans: dict[Limiter, Loan] = {}
        self._ahead: dict[Limiter, list[int]] = {}

    def lend(self, limiter: Limiter, now: int) -> tuple[int | None, int | None] | None:
        """Lend some more of a limit, if nobody waits for it and there is enough; messages and bytes, None: no limit."""
        if limiter.waiters or limiter.claimant is not None or limiter.is_rejecting:
            return None
        loan = self.loans.get(limiter)
        if loan is not None and loan.is_recalled:
            return None
        messages, size = map(_half, limiter.spare(now))
        if (messages is not None and messages < LEAST_MESSAGES) or (size is not None and size < LEAST_SIZE):
            return None
        if loan is None:
            loan = self.loans[limiter] = Loan()
            limiter.borrowers += 1
        loan.messages += messages or 0
        loan.size += size or 0
        limiter.charge(messages or 0, size or 0, now)
        limiter.lend(messages or 0, size or 0)
        ahead = self._ahead.setdefault(limiter, [0, 0])
        ahead[0] += messages or 0
        ahead[1] += size or 0
        return messages, size

    def recall(self, limiter: Limiter) -> bool:
        """Want a loan back. Whether there is one that nobody wanted back yet."""
        loan = self.loans.get(limiter)
        if loan is None or loan.is_recalled:
            return False
        loan.is_recalled = True
        return True

    def spent(self, limiter: Limiter, used: Amount, unused: Amount, now: int, *, is_answer: bool) -> None:
        """The worker says what became of a part of its loan; `is_answer`: it was wanted back, and that is the rest.

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
        """So much is counted as passed now; or nowhere, if the limit is nobody's any more."""
        lent = self._not_ahead(limiter, messages, size)
        if limiter.streams:
            limiter.count_lent((messages, size), lent)
        else:
            limiter.give_up_lent(lent)

    def _not_ahead(self, limiter: Limiter, messages: int, size: int) -> Amount:
        """Of so much, what the worker has ahead, and has not from now on."""
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
        """The worker has told all that passed of a loan: what is left of it was counted for other limits."""
        if limiter not in self.loans:
            limiter.give_up_lent(self._not_ahead(limiter, *self._ahead.get(limiter, (0, 0))))

    def lose(self, now: int) -> Amount:
        """The worker is no more: what it was lent counts as used. Returns that."""
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
