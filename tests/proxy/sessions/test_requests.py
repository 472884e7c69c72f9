"""What is to be done when the broker answers."""

import pytest
from google.protobuf.message import Message

from protocol.pulsar_pb2 import CommandSuccess
from proxy.sessions import requests
from proxy.sessions.requests import Requests, TooManyRequestsError

ANSWER = CommandSuccess(request_id=1)
HIGHEST = 2**64 - 2
"""2^64-1 is what answers no request."""


class Asker:
    """Notes the answers."""

    def __init__(self) -> None:
        self.told: list[Message | None] = []

    def answered(self, answer: Message | None) -> bool:
        self.told.append(answer)
        return True


def test_each_request_is_told_its_answer_once() -> None:
    asker, under_way = Asker(), Requests()
    under_way.sent(1, asker.answered)
    under_way.done(1, ANSWER)
    under_way.done(1, ANSWER)
    assert asker.told == [ANSWER]


def test_an_error_is_told_as_none() -> None:
    asker, under_way = Asker(), Requests()
    under_way.sent(1, asker.answered)
    under_way.done(1, None)
    assert asker.told == [None]


def test_answers_that_nobody_waits_for_are_the_clients() -> None:
    assert Requests().done(5, None)


@pytest.mark.parametrize("is_for_client", [True, False])
def test_whoever_awaited_an_answer_says_whether_the_client_hears_it(*, is_for_client: bool) -> None:
    under_way = Requests()
    under_way.sent(1, lambda _answer: is_for_client)
    assert under_way.done(1, ANSWER) is is_for_client


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_REQUESTS", 2)
    under_way, asker = Requests(), Asker()
    under_way.sent(1, asker.answered)
    under_way.sent(2, asker.answered)
    with pytest.raises(TooManyRequestsError, match="2 requests are without an answer") as refused:
        under_way.sent(3, asker.answered)
    assert refused.value.cause == "too_many_requests"


def test_an_answer_may_ask_again() -> None:
    under_way, asker = Requests(), Asker()

    def ask_again(_answer: Message | None) -> bool:
        under_way.sent(1, asker.answered)
        return True

    under_way.sent(1, ask_again)
    under_way.done(1, None)
    under_way.done(1, ANSWER)
    assert asker.told == [ANSWER]


@pytest.mark.parametrize("answer", [ANSWER, None], ids=["success", "error"])
def test_answers_to_the_proxys_own_requests_are_not_the_clients(answer: Message | None) -> None:
    under_way, told = Requests(), list[str]()
    request_id = under_way.own(lambda: told.append("done"))
    assert not under_way.done(request_id, answer)
    assert told == ["done"]


def test_the_proxys_own_ids_come_down_from_the_top_past_what_a_client_uses_there() -> None:
    under_way, asker = Requests(), Asker()
    under_way.sent(HIGHEST - 1, asker.answered)
    assert [under_way.own(lambda: None) for _ in range(3)] == [HIGHEST, HIGHEST - 2, HIGHEST - 3]
    assert under_way.done(HIGHEST - 1, ANSWER)
    assert asker.told == [ANSWER]
