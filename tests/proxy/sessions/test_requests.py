"""What is to be done when the broker answers."""

import pytest

from protocol.pulsar_pb2 import CommandSuccess
from proxy.sessions import requests
from proxy.sessions.requests import Requests, TooManyRequestsError


def test_each_request_is_told_its_answer_once() -> None:
    told: list[object] = []
    under_way = Requests()
    under_way.sent(1, told.append)
    answer = CommandSuccess(request_id=1)
    under_way.done(1, answer)
    under_way.done(1, answer)
    assert told == [answer]


def test_an_error_is_told_as_none() -> None:
    told: list[object] = []
    under_way = Requests()
    under_way.sent(1, told.append)
    under_way.done(1, None)
    assert told == [None]


def test_answers_that_nobody_waits_for_are_nobodys() -> None:
    Requests().done(5, None)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_REQUESTS", 2)
    under_way = Requests()
    under_way.sent(1, lambda _answer: None)
    under_way.sent(2, lambda _answer: None)
    with pytest.raises(TooManyRequestsError, match="2 requests are without an answer") as refused:
        under_way.sent(3, lambda _answer: None)
    assert refused.value.cause == "too_many_requests"


def test_an_answer_may_ask_again() -> None:
    under_way, told = Requests(), list[int]()
    under_way.sent(1, lambda _answer: under_way.sent(1, lambda _again: told.append(2)))
    under_way.done(1, None)
    under_way.done(1, None)
    assert told == [2]
