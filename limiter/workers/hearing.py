"""Does what a worker's letters say; only who opens a stream is known to the process alone."""

from limiter.workers.judge import Judge
from limiter.workers.letters import (
    Asked,
    Behind,
    Closed,
    Confirmed,
    Discarded,
    Forgone,
    Named,
    Opened,
    Overdrawn,
    Passed,
    Question,
    Report,
    Rewound,
    Spent,
    Ticket,
    Withdrawn,
)


def hear(judge: Judge, letter: Report, now: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each
    """Take a letter; what it says of a stream that is over does nothing."""
    match letter:
        case Ticket(number, messages, size, since, must_wait):
            judge.offered(number, messages, size, (min(since, now), now), must_wait=must_wait)
        case Confirmed(batch):
            judge.confirmed(batch, now)
        case Passed(number, entries, messages, size, largest_messages, largest_size, limiters):
            judge.passed(number, (entries, messages, size), (largest_messages, largest_size), limiters)
        case Spent():
            judge.spent(letter, now)
        case Asked(number, permits, is_granted):
            judge.asked(number, permits, is_granted=is_granted)
        case Withdrawn(number, asked):
            judge.withdrawn(number, asked, now)
        case Named(number, producer_name):
            judge.named(number, producer_name, now)
        case Forgone(number):
            judge.forgone(number)
        case Overdrawn(number, permits):
            judge.overdrawn(number, permits)
        case Rewound(number):
            judge.rewound(number)
        case Discarded(number, entries, messages, size):
            judge.discarded(number, (entries, messages, size))
        case Behind(number, entries, messages, size):
            judge.behind(number, (entries, messages, size))
        case Question(number):
            judge.asked_about(number)
        case Closed(number):
            judge.close(number, now)
        case Opened():
            raise ValueError("who opens a stream is for the caller to find out")
