"""Answers to producers whose limits are in another process: what becomes of a message is known only later.

Until then it is held; what is heard of it here comes in the order of the messages, so the client's answers keep theirs
(`rejections.py`).
"""

from limiter.stream import Entry, Stream
from protocol.commands import command_in
from proxy.sessions.exact_way import ExactWay


class LateAnswers:
    """Those of one connection.

    Args:
        exact: Where its producers' messages are held.
    """

    __slots__ = ("_exact",)

    def __init__(self, exact: ExactWay) -> None:
        self._exact = exact

    def may_refuse(self, entry: Entry) -> bool:
        """Whether its client would give up this message alone, if it is refused."""
        return self._exact.rejections.may_refuse(command_in(entry.frame))

    def accepted(self, stream: Stream, entry: Entry) -> None:
        """A message that a limit might have refused is about to go on."""
        self._exact.rejections.accepted(stream, command_in(entry.frame))

    def refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        """A limit refuses this message, which is not held any more."""
        self._exact.give_back(stream, [entry])
        self._exact.rejections.refused(stream, reason, command_in(entry.frame))
