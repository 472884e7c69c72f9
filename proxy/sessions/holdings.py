"""What is held of one direction of a session, as the budgets count it."""

from typing import Final

from proxy.budgets import Budget, Claim, Share
from proxy.refusals import TooMuchUnfinishedError

ENTRY_OVERHEAD: Final = 512
"""Bytes of memory that a held frame takes besides its own: tiny frames must not cost what no budget sees."""


class Holdings:
    """Counts held memory twice: for the connection, and for its tenant in the process.

    Args:
        own: This direction's budget.
        share: This direction's part of the process's budget.
        memory: What may be kept for the client.
    """

    def __init__(self, own: Budget, share: Share, memory: Claim) -> None:
        self._own = own
        self._share = share
        self._memory = memory
        self._is_stuck = False
        self._unsent: dict[str, int] = {}

    @property
    def is_any(self) -> bool:
        """Whether something is held."""
        return self._own.used > 0

    def take(self, tenant: str, memory: int) -> None:
        """So many bytes more are held of this tenant; may pause the reading."""
        self._own.take(memory)
        self._share.take(tenant, memory)

    def keep_answers(self, tenant: str, more: int) -> None:
        """So many bytes more (less: negative) of errors wait to be told to this tenant's producers."""
        if more > 0:
            self._share.take(tenant, more)
        else:
            self._share.give(tenant, -more)

    def set_aside(self, more: int) -> None:
        """So many bytes more (less: negative) wait for a pause to end."""
        self._share.set_aside(more)

    def keep_unfinished(self, more: int) -> None:
        """So many bytes more (less: negative) are of a frame that has not come whole, and cannot go on in parts.

        Not to read it on would not do: then it never ends. So the connection ends.

        Raises:
            TooMuchUnfinishedError: If no more may be kept for this client.
        """
        if more > 0 and not self._memory.take(more):
            raise TooMuchUnfinishedError("frames that have begun take as much as may be kept (client_memory)")
        if more < 0:
            self._memory.add(more)
        self._share.set_aside(more)

    def give(self, tenant: str, memory: int) -> None:
        """So many bytes are no longer held; may end a pause, and lead back here before it returns."""
        self._own.give(memory)
        self._share.give(tenant, memory)

    def sent(self, tenant: str, memory: int) -> None:
        """The same, of what was written.

        Whoever is to read it may not take it: then it takes up memory as before, and is its tenant's until it does.
        """
        self._own.give(memory)
        if self._is_stuck:
            self._unsent[tenant] = self._unsent.get(tenant, 0) + memory
        else:
            self._share.give(tenant, memory)

    def stuck(self, is_stuck: bool) -> None:  # noqa: FBT001 - the new state
        """Whoever reads what is written takes no more, or does again."""
        self._is_stuck = is_stuck
        if not is_stuck:
            unsent, self._unsent = self._unsent, {}
            for tenant, memory in unsent.items():
                self._share.give(tenant, memory)
