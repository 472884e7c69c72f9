"""Which headers pass."""

from multidict import CIMultiDict

from proxy.admin.forwarding.forwarder import answering, asking


def test_a_request_takes_along_what_it_sends_and_wants() -> None:
    came = {"accept": "a", "CONTENT-TYPE": "b", "Connection": "close", "Authorization": "c", "Transfer-Encoding": "d"}
    assert dict(asking(CIMultiDict(came))) == {"Accept": "a", "Content-Type": "b"}


def test_an_answer_takes_along_what_it_is_and_a_messages_metadata() -> None:
    came = {"Content-Type": "a", "X-Pulsar-batch-size": "5", "Server": "b", "Keep-Alive": "c", "WWW-Authenticate": "d"}
    assert dict(answering(CIMultiDict(came))) == {"Content-Type": "a", "X-Pulsar-batch-size": "5"}
