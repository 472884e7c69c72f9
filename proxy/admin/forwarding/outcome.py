"""What becomes of a request that is passed on."""

from enum import StrEnum


class Outcome(StrEnum):
    """Counted on `/metrics`."""

    DONE = "done"
    """The broker did what it was asked."""
    REFUSED = "refused"
    """It answered with a status of 4xx."""
    FAILED = "failed"
    """It answered with a status of 5xx."""
    UNREACHABLE = "unreachable"
    """It cannot be reached, or gave no answer of HTTP."""
    SLOW = "slow"
    BROKEN_OFF = "broken_off"
    """Its answer ended too early."""
    REDIRECT = "redirect"
    """It sent the request on to where it may not go."""
    TOKEN = "token"  # noqa: S105 - the name of an outcome
    """It does not take the token that Sluice shows, or there is none to show."""
    BUSY = "busy"
    """As many requests as may be are there already."""
    CLIENT = "client"
    """The client hung up, or its body was too large, too slow or broke off when some of it had gone on."""


def outcome_of(status: int) -> Outcome:
    """Of an answer that is handed on."""
    if status < 400:
        return Outcome.DONE
    return Outcome.REFUSED if status < 500 else Outcome.FAILED


class ForwardError(Exception):
    """A request cannot be passed on, or what comes back cannot be handed on.

    Args:
        status: Of HTTP.
        outcome: What is counted.
        reason: What the caller is told: what is wrong, with its key of the configuration, and what to do.
    """

    def __init__(self, status: int, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.outcome = outcome
