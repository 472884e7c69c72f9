"""Request ids on the way to the broker, and the answers to them."""

import pytest
from google.protobuf.message import Message

from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandError,
    CommandProducer,
    CommandProducerSuccess,
    CommandSeek,
    CommandSuccess,
    TooManyRequests,
)
from proxy.budgets import Claim, Pool
from proxy.counters import Counters
from proxy.refusals import RefusedError
from proxy.session import responses
from proxy.session.responses import REQUEST_MEMORY, Requests, UnexpectedAnswerError
from tests.proxy.wire import body, error, success


class Asker:
    """Asks, and notes the answers."""

    def __init__(self, most: int = 10**6) -> None:
        self.told: list[Message] = []
        self.counters = Counters()
        self.memory = Claim(Pool(2 * most, most), "192.0.2.7")
        self.requests = Requests(self.memory, self.counters)

    def seeks(self, request_id: int = 5, keeps: int = 0) -> int:
        """The id on the wire."""
        command = CommandSeek(consumer_id=7, request_id=request_id)
        wire: int = body(self.requests.forward(command, self._answered, keeps)).request_id
        return wire

    def _answered(self, answer: Message) -> Message:
        self.told.append(answer)
        return answer


def test_each_request_has_an_id_of_its_own_and_is_told_its_answer_under_the_clients() -> None:
    asker = Asker()
    first, second = asker.seeks(5), asker.seeks(5)
    assert first != second
    assert asker.requests.answered(BaseCommand.SUCCESS, CommandSuccess(request_id=second)) == success(5)
    assert asker.requests.answered(BaseCommand.ERROR, body(error(first))) == error(5)
    assert [type(answer) for answer in asker.told] == [CommandSuccess, CommandError]


def test_no_client_can_guess_an_id() -> None:
    firsts = {Asker().seeks() for _ in range(100)}
    assert len(firsts) == 100
    assert all(2**61 <= first < 2**62 for first in firsts)


def test_an_answer_is_awaited_once_and_others_are_counted() -> None:
    asker = Asker()
    wire = asker.seeks()
    assert asker.requests.is_own(wire)
    assert asker.requests.waits_for(wire)
    asker.requests.answered(BaseCommand.SUCCESS, CommandSuccess(request_id=wire))
    assert asker.requests.is_own(wire)
    assert not asker.requests.waits_for(wire)
    assert asker.counters.answers_ignored == 1


def test_an_id_that_the_proxy_did_not_give_is_not_its_own() -> None:
    asker = Asker()
    wire = asker.seeks()
    assert not any(map(asker.requests.is_own, (0, 5, wire - 1, wire + 1, 2**64 - 1)))


def test_what_cannot_be_an_answer_breaks_the_protocol() -> None:
    asker = Asker()
    answer = CommandProducerSuccess(request_id=asker.seeks(), producer_name="p")
    with pytest.raises(
        UnexpectedAnswerError, match="the broker sent PRODUCER_SUCCESS for a request that SUCCESS answers"
    ):
        asker.requests.answered(BaseCommand.PRODUCER_SUCCESS, answer)
    assert asker.told == []


def test_a_producer_that_waits_for_exclusive_access_is_answered_twice() -> None:
    asker = Asker()
    command = CommandProducer(topic="t", producer_id=1, request_id=5)
    wire = body(asker.requests.forward(command, asker._answered)).request_id
    for is_ready in (False, True):
        answer = CommandProducerSuccess(request_id=wire, producer_name="p", producer_ready=is_ready)
        heard = asker.requests.answered(BaseCommand.PRODUCER_SUCCESS, answer)
        assert heard is not None
        assert body(heard).request_id == 5
        assert len(asker.told) == 1 + is_ready
    assert not asker.requests.waits_for(wire)


def test_what_is_not_for_the_client_goes_nowhere() -> None:
    asker = Asker()
    frame = asker.requests.forward(CommandSeek(consumer_id=7, request_id=5), lambda _answer: None)
    answer = CommandSuccess(request_id=body(frame).request_id)
    assert asker.requests.answered(BaseCommand.SUCCESS, answer) is None


@pytest.mark.parametrize("answer", [CommandSuccess(), CommandError(message="no")], ids=["success", "error"])
def test_answers_to_the_proxys_own_requests_are_not_the_clients(answer: CommandSuccess | CommandError) -> None:
    asker = Asker()
    frame = asker.requests.own(CommandCloseProducer(producer_id=1, request_id=0), asker._answered)
    answer.request_id = body(frame).request_id
    kind = BaseCommand.SUCCESS if isinstance(answer, CommandSuccess) else BaseCommand.ERROR
    assert asker.requests.answered(kind, answer) is None
    assert asker.told == [answer]


def test_one_that_is_forgotten_is_awaited_no_more() -> None:
    asker = Asker()
    wire = asker.seeks()
    asker.requests.forget(wire)
    asker.requests.forget(wire)
    assert not asker.requests.waits_for(wire)
    assert asker.memory.held == 0


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MOST_REQUESTS", 2)
    asker = Asker()
    asker.seeks()
    asker.seeks()
    with pytest.raises(RefusedError, match="2 requests of this connection are without an answer") as refused:
        asker.seeks()
    assert refused.value.error == TooManyRequests


def test_what_is_kept_of_them_is_bounded_and_given_back() -> None:
    asker = Asker(most=2 * REQUEST_MEMORY + 10)
    wires = [asker.seeks(), asker.seeks(keeps=10)]
    with pytest.raises(RefusedError, match="client_memory") as refused:
        asker.seeks()
    assert refused.value.error == TooManyRequests
    for wire in wires:
        asker.requests.answered(BaseCommand.SUCCESS, CommandSuccess(request_id=wire))
    assert asker.memory.held == 0


def test_a_close_is_never_refused() -> None:
    asker = Asker(most=0)
    frame = asker.requests.forward_close(CommandCloseProducer(producer_id=1, request_id=5), asker._answered)
    assert asker.memory.held == REQUEST_MEMORY
    answer = CommandSuccess(request_id=body(frame).request_id)
    assert asker.requests.answered(BaseCommand.SUCCESS, answer) == success(5)


def test_fields_that_this_proxy_does_not_know_go_on() -> None:
    command = CommandSeek.FromString(CommandSeek(consumer_id=7, request_id=5).SerializeToString() + b"\xa2\x06\x02hi")
    assert b"\xa2\x06\x02hi" in Asker().requests.forward(command, lambda answer: answer)
