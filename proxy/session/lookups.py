"""The lookups of one session, its other questions about topics, and its watchers of topic lists."""

from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.message import Message

from protocol.endpoint import EndpointError
from protocol.frames import MOST_NAME_BYTES
from protocol.pulsar_pb2 import (
    CommandError,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    InvalidTopicName,
    NotAllowedError,
    ServiceNotReady,
    TooManyRequests,
)
from proxy.admission_control import NotAdmittedError
from proxy.brokers.dialing import Redirected, broker_in, follow, no_broker_found, through_proxy
from proxy.budgets import Claim
from proxy.refusals import TOO_MUCH_KEPT, RefusedError
from proxy.runtime import Tasks
from proxy.session.engine import Engine
from proxy.session.responses import Requests
from proxy.session.session_admission import SessionAdmission

TopicQuestion = (
    CommandPartitionedTopicMetadata | CommandGetTopicsOfNamespace | CommandGetSchema | CommandGetOrCreateSchema
)
"""A request, other than a lookup, for which a broker reads its metadata. Pulsar bounds the first two alone."""
MOST_WATCHERS = 1_000
"""Watchers of one connection, at most."""
_FOR_OTHERS = ("original_principal", "original_auth_data", "original_auth_method")
WATCHER_MEMORY = 256
"""Bytes that one watcher counts as."""


class Watchers:
    """The watchers of topic lists that a broker has of one connection, or is asked for.

        WATCH_TOPIC_LIST ──▶ opening ──WATCH_TOPIC_LIST_SUCCESS──▶ open ──WATCH_TOPIC_LIST_CLOSE──▶ (gone)
                                └──ERROR──▶ (gone)

    The broker keeps a list of topics for each watcher, and sends its changes. It registers a watcher only when it has
    authorized it, and may handle a later CLOSE before that: so a CLOSE does not end a watcher that is opening.
    WATCH_TOPIC_LIST with the id of an open watcher makes no second one; if refused, it leaves the first as it is.

    Source: org.apache.pulsar.broker.service.TopicListService

    Args:
        memory: Counts the memory that watchers take.
    """

    __slots__ = ("_is_open", "_memory")

    def __init__(self, memory: Claim) -> None:
        self._memory = memory
        self._is_open: dict[int, bool] = {}

    def begin(self, watcher_id: int) -> bool:
        """Note a watcher that the broker is asked for; return whether its id is a new one.

        Raises:
            RefusedError: If there are too many, too much is kept for this client, or the id is being opened.
        """
        is_open = self._is_open.get(watcher_id)
        if is_open is False:
            raise RefusedError(ServiceNotReady, f"watcher id {watcher_id} of this connection is being opened")
        if is_open is None:
            if len(self._is_open) >= MOST_WATCHERS:
                raise RefusedError(
                    TooManyRequests, f"this connection has {MOST_WATCHERS} watchers, the most that one may have"
                )
            if not self._memory.take(WATCHER_MEMORY):
                raise RefusedError(TooManyRequests, TOO_MUCH_KEPT)
        self._is_open[watcher_id] = False
        return is_open is None

    def accepted(self, watcher_id: int) -> None:
        """Note that the broker has a watcher."""
        self._is_open[watcher_id] = True

    def refused(self, watcher_id: int, *, is_new: bool) -> None:
        """Forget a new watcher whose request was not sent, or was refused; a watcher from before stays open."""
        if is_new:
            self._forget(watcher_id)
        else:
            self._is_open[watcher_id] = True

    def closed(self, watcher_id: int) -> None:
        """Forget a watcher that the client closes."""
        if self._is_open.get(watcher_id):
            self._forget(watcher_id)

    def _forget(self, watcher_id: int) -> None:
        del self._is_open[watcher_id]
        self._memory.add(-WATCHER_MEMORY)


class SessionLookups:
    """Passes questions on, and turns the brokers' answers to lookups into ones that lead back here.

    Args:
        engine: The allow-list.
        slots: Bounds the questions without an answer.
        memory: Counts the memory that questions and watchers take.
        requests: Where the answers are awaited.
        tasks: Where redirects are followed.
        reply: Sends a late answer to the client.
        admission: Says whether the client asks too often.
        greeting: Gives the CONNECT with which a redirect is followed.
        is_tls: Whether the client reaches the proxy by TLS.
        header: The PROXY protocol header with which redirects are followed; empty where brokers want none.
    """

    __slots__ = (
        "_admission",
        "_engine",
        "_greeting",
        "_header",
        "_is_tls",
        "_memory",
        "_reply",
        "_requests",
        "_slots",
        "_tasks",
        "_watchers",
    )

    def __init__(  # noqa: PLR0913 - what its Args say
        self,
        engine: Engine,
        slots: Claim,
        memory: Claim,
        requests: Requests,
        tasks: Tasks,
        reply: Callable[[bytes], None],
        admission: SessionAdmission,
        greeting: Callable[[], bytes],
        *,
        is_tls: bool,
        header: bytes,
    ) -> None:
        self._header = header
        self._greeting = greeting
        self._is_tls = is_tls
        self._engine = engine
        self._slots = slots
        self._memory = memory
        self._requests = requests
        self._tasks = tasks
        self._reply = reply
        self._admission = admission
        self._watchers = Watchers(memory)

    def asked(self, command: CommandLookupTopic) -> bytes:
        """Return a LOOKUP as it goes to the broker. It is kept whole: a redirect is followed with all its fields.

        Raises:
            RefusedError: If the client has too many, asks too often, or asks for another principal.
        """
        self._check_asker(command)
        asked = command.SerializeToString()
        return self._ask(command, command.topic, partial(self._looked_up, command.request_id, asked), len(asked))

    def asked_about(self, command: TopicQuestion) -> bytes:
        """Return a question about a topic, or for a namespace's topics, as it goes to the broker."""
        if isinstance(command, CommandPartitionedTopicMetadata):
            self._check_asker(command)
        name = command.namespace if isinstance(command, CommandGetTopicsOfNamespace) else command.topic
        return self._ask(command, name, self._answered, 0)

    def _check_asker(self, command: CommandLookupTopic | CommandPartitionedTopicMetadata) -> None:
        """Refuse a question for another principal: a broker with Sluice in its `proxyRoles` would believe it."""
        if self._engine.identity is not None and any(map(command.HasField, _FOR_OTHERS)):
            raise RefusedError(NotAllowedError, "a client may not ask for another principal (original_principal)")

    def watched(self, command: CommandWatchTopicList) -> bytes:
        """Return a request to watch a namespace's topics, as it goes to the broker, which then sends their changes.

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
        """Return the CLOSE of a watcher, as it goes to the broker, and forget the watcher."""
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

    def names_fleet(self, command: bytes) -> bool:
        """Return whether a command that is not read names a topic of a fleet."""
        return self._engine.fleet_topics.are_in(command)

    def _ask(self, command: Any, name: str | bytes, act: Any, keeps: int) -> bytes:
        self._engine.fleet_topics.check_name(name)
        if len(name) > MOST_NAME_BYTES:
            raise RefusedError(InvalidTopicName, f"a name of {len(name)} bytes, {MOST_NAME_BYTES} are allowed")
        if not self._slots.take(1):
            # Not ServiceNotReady: it makes Java clients drop the connection.
            raise RefusedError(TooManyRequests, "too many lookups in flight at this proxy")
        try:
            self._admission.look_up()
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
        try:
            broker = broker_in(answer, self._engine.connector.scheme)
        except EndpointError as error:
            return self._answered(no_broker_found(answer.request_id, error))
        self._engine.targets.learn(broker)
        if answer.response == CommandLookupTopicResponse.Connect:
            return self._answered(through_proxy(answer, broker, is_tls=self._is_tls))
        redirected = Redirected(request_id, asked, broker, answer.authoritative, self._is_tls, self._header)
        self._tasks.start(self._follow(redirected), f"redirect to {broker}")
        return None

    async def _follow(self, redirected: Redirected) -> None:
        size = len(redirected.request)
        self._memory.add(size)
        try:
            frame = await follow(redirected, self._greeting(), self._engine.dialer)
        finally:
            self._slots.add(-1)
            self._memory.add(-size)
        self._reply(frame)


def _unchanged(answer: Message) -> Message:
    return answer
