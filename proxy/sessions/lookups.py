"""The lookups of one session, and its other questions for topics."""

from functools import partial
from typing import Any

from google.protobuf.message import Message

from protocol.limits import MOST_NAME_BYTES
from protocol.pulsar_pb2 import (
    CommandError,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    InvalidTopicName,
    TooManyRequests,
)
from proxy.admission import NotAdmittedError
from proxy.brokers.lookup import Redirected, address_in, follow, through_proxy
from proxy.budgets import Claim
from proxy.refusals import RefusedError
from proxy.runtime import Tasks
from proxy.sessions.admittance import Admittance
from proxy.sessions.engine import Engine
from proxy.sessions.replies import Replies
from proxy.sessions.requests import Requests
from proxy.sessions.watchers import Watchers


class SessionLookups:
    """Passes questions on, and turns the brokers' answers to lookups into ones that lead back here.

    Args:
        engine: The allow-list.
        slots: How many of them may be without an answer.
        memory: Counts what is kept of them.
        requests: Where the answers are awaited.
        tasks: Where redirects are followed.
        replies: Where late answers go.
        admittance: Says whether the client asks too often.
        greeting: The client's CONNECT, with which redirects are followed.
    """

    __slots__ = (
        "_admittance",
        "_engine",
        "_greeting",
        "_memory",
        "_replies",
        "_requests",
        "_slots",
        "_tasks",
        "_watchers",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        engine: Engine,
        slots: Claim,
        memory: Claim,
        requests: Requests,
        tasks: Tasks,
        replies: Replies,
        admittance: Admittance,
        greeting: bytes,
    ) -> None:
        self._greeting = greeting
        self._engine = engine
        self._slots = slots
        self._memory = memory
        self._requests = requests
        self._tasks = tasks
        self._replies = replies
        self._admittance = admittance
        self._watchers = Watchers(memory)

    def asked(self, command: CommandLookupTopic) -> bytes:
        """A LOOKUP, as it goes to the broker. It is kept as it is written: a redirect is followed with all its fields.

        Raises:
            RefusedError: If there are too many already, or they come too often.
        """
        asked = command.SerializeToString()
        return self._ask(command, command.topic, partial(self._looked_up, command.request_id, asked), len(asked))

    def asked_about(self, command: CommandPartitionedTopicMetadata | CommandGetTopicsOfNamespace) -> bytes:
        """The question how many partitions a topic has, or for a namespace's topics; the same."""
        name = command.topic if isinstance(command, CommandPartitionedTopicMetadata) else command.namespace
        return self._ask(command, name, self._answered, 0)

    def watched(self, command: CommandWatchTopicList) -> bytes:
        """The question for a namespace's topics, of which the broker goes on to tell what changes; the same.

        Raises:
            RefusedError: Also if the connection has too many watchers.
        """
        watcher_id = command.watcher_id
        is_new = self._watchers.begin(watcher_id)
        try:
            act = partial(self._watched, watcher_id, is_new=is_new)
            return self._ask(command, command.namespace, act, 0)
        except BaseException:
            self._watchers.refused(watcher_id, is_new=is_new)
            raise

    def watcher_closed(self, command: CommandWatchTopicListClose) -> bytes:
        """The client wants to be told of no more changes."""
        watcher_id = command.watcher_id
        frame = self._requests.forward(command, _unchanged)
        self._watchers.closed(watcher_id)
        return frame

    def _watched(self, watcher_id: int, answer: Message, *, is_new: bool) -> Message:
        if isinstance(answer, CommandError):
            self._watchers.refused(watcher_id, is_new=is_new)
        else:
            self._watchers.accepted(watcher_id)
        return self._answered(answer)

    def _ask(self, command: Any, name: str | bytes, act: Any, keeps: int) -> bytes:
        if len(name) > MOST_NAME_BYTES:
            raise RefusedError(InvalidTopicName, f"a name of {len(name)} bytes, {MOST_NAME_BYTES} are allowed")
        if not self._slots.take(1):
            # Not ServiceNotReady: it makes Java clients drop the connection.
            raise RefusedError(TooManyRequests, "too many lookups in flight at this proxy")
        try:
            self._admittance.look_up()
            return self._requests.forward(command, act, keeps)
        except NotAdmittedError as error:
            self._slots.add(-1)
            raise RefusedError(TooManyRequests, str(error)) from None
        except BaseException:
            self._slots.add(-1)
            raise

    def _answered(self, answer: Message) -> Message:
        self._slots.add(-1)
        return answer

    def _looked_up(
        self, request_id: int, asked: bytes, answer: CommandLookupTopicResponse | CommandError
    ) -> Message | None:
        """The broker's answer: changed, left alone (failures), or None while a redirect is followed."""
        if isinstance(answer, CommandError) or answer.response == CommandLookupTopicResponse.Failed:
            return self._answered(answer)
        url = address_in(answer)
        self._engine.targets.learn(url)
        if answer.response == CommandLookupTopicResponse.Connect:
            return self._answered(through_proxy(answer))
        redirected = Redirected(request_id, asked, url, answer.authoritative)
        self._tasks.start(self._follow(redirected), f"redirect to {url}")
        return None

    async def _follow(self, redirected: Redirected) -> None:
        size = len(redirected.request)
        self._memory.add(size)
        try:
            frame = await follow(redirected, self._greeting, self._engine.targets)
        finally:
            self._slots.add(-1)
            self._memory.add(-size)
        self._replies.send(frame)


def _unchanged(answer: Message) -> Message:
    return answer
