"""The election of a coordinator among peers: by votes that are leases. It has no clock and no socket."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

_DRIFT = 0.98
"""A candidate counts on this part of a vote's time: its clock and the voter's may run apart by 1 % each."""


class Ping(NamedTuple):
    """A candidate's request for votes.

    Attributes:
        sequence: The number of this ping among the candidate's.
        reaches: The candidate hears a majority.
        leads: The candidate is confirmed.
    """

    sequence: int
    reaches: bool
    leads: bool


class Election:
    """Elects the coordinator: the first in the list's order that reaches a majority.

    A vote answers a ping, and is a promise: for `lease` after it was sent, its voter votes for no other candidate. The
    candidate counts on the vote for 0.98 `lease` from the *sending* of that ping. This was before the vote was sent, so
    the candidate never counts on it for longer than the promise holds. Two candidates that are confirmed at once would
    need two majorities. Two majorities have a voter in common, whose two promises would overlap; no voter makes such
    promises. A voter that has started anew does not know what it promised, and promises nothing for the first `lease`.

    Votes are renewed for the candidate that leads, even when one before it in the order comes back. That one votes for
    the leading one, too, as the reports of a member go to the candidate for which it votes.

    Args:
        order: The names of all members, in the same order in all of them.
        own: The name of this member.
        lease: Nanoseconds for which a vote holds.
        now: Monotonic nanoseconds.
    """

    def __init__(self, order: Sequence[str], own: str, lease: int, now: int) -> None:
        self._order = tuple(order)
        self._own = own
        self._lease = lease
        self._began = now
        self._majority = len(self._order) // 2 + 1
        self._votes_for = ""
        self._promised_until = now + lease
        self._heard: dict[str, tuple[int, Ping]] = {}
        """The last ping of each other member, and when it came."""
        self._sequence = 0
        self._sent: deque[tuple[int, int]] = deque(maxlen=64)
        self._asked_at: dict[str, int] = {}
        """For each member that voted for this one: when this one sent the latest ping that it has answered."""

    @property
    def votes_for(self) -> str:
        """The candidate for which this member voted last, and to which its reports go; empty before the first vote."""
        return self._votes_for

    def leads(self, now: int) -> bool:
        """Return whether this member is confirmed: no other one can be."""
        return self.asked_at + int(self._lease * _DRIFT) > now

    @property
    def asked_at(self) -> int:
        """When this member sent the oldest of the pings that a majority has answered; of each voter the latest counts.

        This member had a majority's votes at some time after that. Without a majority it is a lease before this
        election began.
        """
        latest = sorted(self._asked_at.values(), reverse=True)
        return latest[self._majority - 1] if len(latest) >= self._majority else self._began - self._lease

    def ping(self, now: int) -> Ping:
        """Return the ping to send to all others now. This member votes here, too."""
        self._sequence += 1
        self._sent.append((self._sequence, now))
        ping = Ping(self._sequence, self._reaches(now), self.leads(now))
        if self._grants_to(self._own, ping, now):
            self._asked_at[self._own] = now
        return ping

    def pinged(self, by: str, ping: Ping, now: int) -> bool:
        """Take a ping of another member; return whether to answer it with a vote now."""
        self._heard[by] = now, ping
        return self._grants_to(by, ping, now)

    def voted(self, by: str, sequence: int) -> None:
        """Take a vote of another member, which answers this member's ping of that sequence."""
        sent = next((at for number, at in self._sent if number == sequence), None)
        if sent is not None and by in self._order:
            self._asked_at[by] = max(sent, self._asked_at.get(by, sent))

    def _reaches(self, now: int) -> bool:
        return 1 + sum(self._is_heard(each, now) for each in self._heard) >= self._majority

    def _is_heard(self, name: str, now: int) -> bool:
        return name in self._heard and now - self._heard[name][0] < self._lease

    def _grants_to(self, name: str, ping: Ping, now: int) -> bool:
        is_free = now >= self._promised_until
        if name == self._votes_for:
            is_wanted = ping.leads or self._wanted(now) == name
        else:
            is_wanted = is_free and self._wanted(now) == name
        if is_wanted:
            self._votes_for, self._promised_until = name, now + self._lease
        return is_wanted

    def _wanted(self, now: int) -> str:
        """Return the member that leads, or else the first that is heard to reach a majority; empty: none does."""
        heard = {each: ping for each, (_, ping) in self._heard.items() if self._is_heard(each, now)}
        leading = next((each for each in self._order if each in heard and heard[each].leads), "")
        if leading and not self.leads(now):
            return leading
        for each in self._order:
            if self._reaches(now) if each == self._own else (each in heard and heard[each].reaches):
                return each
        return ""
