"""The lookups of one session."""

from collections.abc import Callable

from protocol.commands import text
from protocol.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    ServerError,
    TooManyRequests,
)
from proxy.admission import NotAdmittedError
from proxy.brokers.lookup import Redirected, follow, through_proxy, too_many
from proxy.refusals import lookup_refused, metadata_refused, request_refused
from proxy.sessions.admittance import Admittance
from proxy.sessions.engine import Engine
from proxy.sessions.replies import Replies
from proxy.tasks import Tasks


class SessionLookups:
    """Remembers what was asked, and turns the brokers' answers into ones that lead back here.

    Args:
        engine: Slots and allow-list.
        tasks: Where redirects are followed.
        replies: Where refusals and late answers go.
        admittance: Says whether the client asks too often.
        greeting: The client's CONNECT, with which redirects are followed.
    """

    __slots__ = ("_admittance", "_asked", "_engine", "_greeting", "_replies", "_tasks")

    def __init__(self, engine: Engine, tasks: Tasks, replies: Replies, admittance: Admittance, greeting: bytes) -> None:
        self._greeting = greeting
        self._engine = engine
        self._tasks = tasks
        self._replies = replies
        self._admittance = admittance
        self._asked: dict[int, CommandLookupTopic] = {}

    def asked(self, command: CommandLookupTopic, frame: bytes) -> bytes | None:
        """A LOOKUP goes by; None if there are too many already, which the client is told."""
        if command.request_id in self._asked or not self._engine.lookups.take():
            self._replies.send(too_many(command.request_id))
            return None
        try:
            if self._is_admitted(command.request_id, lookup_refused):
                self._asked[command.request_id] = command
                return frame
        finally:
            if command.request_id not in self._asked:
                self._engine.lookups.give()
        return None

    def asked_partitions(self, command: CommandPartitionedTopicMetadata, frame: bytes) -> bytes | None:
        """The question how many partitions a topic has goes by; None if there are too many already."""
        return frame if self._is_admitted(command.request_id, metadata_refused) else None

    def asked_topics(self, command: CommandGetTopicsOfNamespace, frame: bytes) -> bytes | None:
        """The question for a namespace's topics goes by; the same."""
        return frame if self._is_admitted(command.request_id, request_refused) else None

    def answered(self, answer: CommandLookupTopicResponse, frame: bytes) -> bytes | None:
        """The broker's answer: changed, left alone (failures), or None while a redirect is followed."""
        request = self._asked.get(answer.request_id)
        if answer.response == CommandLookupTopicResponse.Failed or request is None:
            self._done(answer.request_id)
            return frame
        url = text(answer.broker_service_url or answer.broker_service_url_tls)
        self._engine.targets.learn(url)
        if answer.response == CommandLookupTopicResponse.Connect:
            self._done(answer.request_id)
            return through_proxy(answer, answer.request_id)
        self._tasks.start(self._follow(Redirected(request, url, answer.authoritative)), f"redirect to {url}")
        return None

    def close(self) -> None:
        """The session ends."""
        for request_id in list(self._asked):
            self._done(request_id)

    def _is_admitted(self, request_id: int, refused: Callable[[int, ServerError, str], bytes]) -> bool:
        try:
            self._admittance.look_up()
        except NotAdmittedError as error:
            # Not ServiceNotReady: it makes Java clients drop the connection.
            self._replies.send(refused(request_id, TooManyRequests, str(error)))
            return False
        return True

    async def _follow(self, redirected: Redirected) -> None:
        frame = await follow(redirected, self._greeting, self._engine.targets)
        self._done(redirected.request.request_id)
        self._replies.send(frame)

    def _done(self, request_id: int) -> None:
        if self._asked.pop(request_id, None) is not None:
            self._engine.lookups.give()
