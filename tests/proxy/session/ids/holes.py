"""Ways to take one client's stream for another's, each put back into the product for as long as a test runs.

What is patched here is not compiled: `streams.py`, `streams.py`, `responses.py` and `topic_name.py`. The others
are in `compiled_holes.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from limiter.limiter import Stream, StreamName
from protocol.commands import encode
from protocol.topic_name import TopicName
from proxy.session.responses import Requests
from proxy.session.streams import GivenUp, Streams
from tests.proxy.session.ids.adversary import FREE, HELD, Said
from tests.proxy.session.ids.duel import Step

Hole = Callable[[pytest.MonkeyPatch], None]


def an_id_in_use_is_given_to_the_next(patch: pytest.MonkeyPatch) -> None:
    """The broker answers that the id is there, and means the first."""
    _open_over(patch, lambda _streams, _before: True)


def an_id_that_is_closing_is_given_to_the_next(patch: pytest.MonkeyPatch) -> None:
    """The first of the critical steps: the old producer's success is taken for the new one's."""
    _open_over(patch, lambda streams, before: streams.is_closing(before))


def _open_over(patch: pytest.MonkeyPatch, may: Callable[[Streams, Stream], bool]) -> None:
    sound = Streams.open

    def open_(self: Streams, name: StreamName, topic: TopicName) -> Stream:
        relay = self._to_broker if name.direction == "publish" else self._to_client
        before = relay.streams.get(name.stream_id)
        if before is not None and may(self, before):
            self.close(before)
        return sound(self, name, topic)

    patch.setattr(Streams, "open", open_)


def requests_go_under_the_clients_own_ids(patch: pytest.MonkeyPatch) -> None:
    """The second: the error for a command that the proxy does not follow is taken for another command's."""
    sound = Requests._sent

    def sent(self: Requests, command: Any, client_id: int | None, act: Any, memory: int) -> bytes:
        if client_id is None:
            return sound(self, command, client_id, act, memory)
        own, self._next = self._next, client_id
        sound(self, command, client_id, act, memory)
        self._next = own
        command.request_id = client_id
        return encode(command)

    patch.setattr(Requests, "_sent", sent)
    patch.setattr(Requests, "last_id", property(lambda self: next(reversed(self._under_way))))
    patch.setattr(Requests, "is_own", lambda self, request_id: request_id in self._under_way)


def the_proxys_own_ids_can_be_guessed(patch: pytest.MonkeyPatch) -> None:
    sound = Requests.__init__

    def init(self: Requests, *args: Any) -> None:
        sound(self, *args)
        self._first = self._next = 1

    patch.setattr(Requests, "__init__", init)


def a_suffix_is_cut_off_whatever_follows_it(patch: pytest.MonkeyPatch) -> None:
    """The third: names that look like Pulsar's own."""

    def is_system(self: TopicName) -> bool:
        return self.local.partition("-partition-")[0] == "__change_events"

    patch.setattr(TopicName, "is_system", property(is_system))


def a_brokers_close_frees_what_is_opening(patch: pytest.MonkeyPatch) -> None:
    """It may be of the stream before."""
    _free_if(patch, lambda streams, stream: stream in streams._opening)


def a_brokers_close_frees_what_is_open(patch: pytest.MonkeyPatch) -> None:
    """It may be so late that the next one is there already."""
    _free_if(patch, lambda streams, stream: stream not in streams._opening)


def _free_if(patch: pytest.MonkeyPatch, may: Callable[[Streams, Stream], bool]) -> None:
    sound = Streams.closed_by_broker

    def closed_by_broker(self: Streams, stream: Stream) -> None:
        (self.close if may(self, stream) else partial(sound, self))(stream)

    patch.setattr(Streams, "closed_by_broker", closed_by_broker)


def what_the_proxy_closes_is_free_at_once(patch: pytest.MonkeyPatch) -> None:
    sound = Streams.expel

    def expel(self: Streams, stream: Stream) -> None:
        sound(self, stream)
        self._expelled.clear()

    patch.setattr(Streams, "expel", expel)


def a_producer_that_comes_after_its_close_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """The broker authorizes before it claims the id."""

    def answered_late(self: Streams, name: StreamName, request_id: int, _answer: Any) -> None:
        if self._given_up is not None:
            self._given_up.answered(name.stream_id, request_id)

    patch.setattr(Streams, "_answered_late", answered_late)


def an_id_whose_producer_may_still_come_is_given_to_another_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GivenUp, "forbids", lambda _self, _producer_id, _topic: False)


def a_refused_unsubscribing_frees_the_id(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Streams, "unsubscribe_answered", lambda self, _answer, stream: self.close(stream))


def a_closes_answer_ends_whoever_has_the_id_by_then(patch: pytest.MonkeyPatch) -> None:
    sound = Streams.close_answered

    def answered(self: Streams, answer: Any, stream: Stream) -> None:
        find = self.producer if stream.name.direction == "publish" else self.consumer
        sound(self, answer, find(stream.name.stream_id) or stream)

    patch.setattr(Streams, "close_answered", answered)


def the_name_that_a_broker_gives_is_not_heard(patch: pytest.MonkeyPatch) -> None:
    sound = Streams.answered

    def answered(self: Streams, answer: Any, stream: Stream) -> None:
        if hasattr(answer, "producer_name"):
            answer.producer_name = stream.name.producer_name
        sound(self, answer, stream)

    patch.setattr(Streams, "answered", answered)


HOLES: dict[Hole, set[str]] = {
    an_id_in_use_is_given_to_the_next: {"identity"},
    an_id_that_is_closing_is_given_to_the_next: {"identity"},
    requests_go_under_the_clients_own_ids: {"identity", "request id"},
    the_proxys_own_ids_can_be_guessed: {"identity", "request id"},
    a_suffix_is_cut_off_whatever_follows_it: {"limits"},
    a_brokers_close_frees_what_is_opening: {"identity", "quiet"},
    a_brokers_close_frees_what_is_open: {"identity", "quiet"},
    what_the_proxy_closes_is_free_at_once: {"identity", "quiet"},
    a_producer_that_comes_after_its_close_is_passed_over: {"identity", "quiet"},
    an_id_whose_producer_may_still_come_is_given_to_another_topic: {"identity"},
    a_refused_unsubscribing_frees_the_id: {"identity", "quiet"},
    a_closes_answer_ends_whoever_has_the_id_by_then: {"identity", "quiet"},
    the_name_that_a_broker_gives_is_not_heard: {"name"},
}
"""Each with the rules that break by it."""
FOUND_BY: dict[Hole, int] = {
    an_id_that_is_closing_is_given_to_the_next: 40,
    a_brokers_close_frees_what_is_opening: 17,
    a_brokers_close_frees_what_is_open: 68,
    what_the_proxy_closes_is_free_at_once: 555,
    a_producer_that_comes_after_its_close_is_passed_over: 33,
    a_refused_unsubscribing_frees_the_id: 74,
}
"""The first seed that found it, among those that the product has to pass: tried first, as others take seconds."""


def _says(*commands: Said) -> Step:
    return Step("client_says", (commands, 1.0))


def _producer(topic: str, request: int) -> Said:
    return Said("PRODUCER", ((1, topic), (2, 1), (3, request)))


_CLOSE = Said("CLOSE_PRODUCER", ((1, 1), (2, 2)))
_READS, _WRITES = Step("broker_reads", (100,)), Step("broker_writes", (100, 0))

RARE: dict[Hole, list[Step]] = {
    a_closes_answer_ends_whoever_has_the_id_by_then: [
        *(_says(_producer(FREE, 1)), _READS, Step("broker_does", (0, 0)), _WRITES),
        *(_says(_CLOSE), _READS, Step("broker_closes", (0,)), _WRITES, _READS, _WRITES),
        *(_says(_producer(HELD, 3)), _READS, Step("broker_does", (1, 0)), _WRITES),
        *(Step("broker_does", (0, 0)), _WRITES),
    ],
    an_id_whose_producer_may_still_come_is_given_to_another_topic: [
        *(Step("broker_authorizes", (True,)), _says(_producer(FREE, 1), _CLOSE), _READS, _WRITES),
        *(_says(_producer(HELD, 3)), Step("broker_does", (0, 0)), Step("broker_does", (0, 1))),
        *(Step("broker_authorizes", (False,)), _READS, _WRITES),
    ],
}
"""Those that need so many steps in a row that none of a thousand seeds has them; the steps that find them."""
