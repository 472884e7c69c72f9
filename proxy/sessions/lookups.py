"""The lookups of one session."""

from protocol.commands import text
from protocol.pulsar_pb2 import CommandLookupTopic, CommandLookupTopicResponse
from proxy.brokers.lookup import Redirected, follow, through_proxy, too_many
from proxy.engine import Engine
from proxy.sessions.replies import Replies
from proxy.tasks import Tasks


class SessionLookups:
    """Remembers what was asked, and turns the brokers' answers into ones that lead back here.

    Args:
        engine: Slots and allow-list.
        tasks: Where redirects are followed.
        replies: Where refusals and late answers go.
    """

    def __init__(self, engine: Engine, tasks: Tasks, replies: Replies) -> None:
        self.greeting = b""
        self._engine = engine
        self._tasks = tasks
        self._replies = replies
        self._asked: dict[int, CommandLookupTopic] = {}

    def asked(self, command: CommandLookupTopic, frame: bytes) -> bytes | None:
        """A LOOKUP goes by; None if there are too many already, which the client is told."""
        if command.request_id in self._asked or not self._engine.lookups.take():
            self._replies.send(too_many(command.request_id))
            return None
        self._asked[command.request_id] = command
        return frame

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

    async def _follow(self, redirected: Redirected) -> None:
        frame = await follow(redirected, self.greeting, self._engine.targets)
        self._done(redirected.request.request_id)
        self._replies.send(frame)

    def _done(self, request_id: int) -> None:
        if self._asked.pop(request_id, None) is not None:
            self._engine.lookups.give()
