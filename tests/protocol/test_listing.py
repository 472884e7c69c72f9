"""A list of topics goes on under another request id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.commands import SIZES, encode
from protocol.errors import MalformedFrame
from protocol.listing import LISTINGS, Listing
from protocol.pulsar_pb2 import BaseCommand, CommandGetTopicsOfNamespaceResponse, CommandWatchTopicListSuccess

ASKED = BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
U64 = st.integers(0, 2**64 - 1)


def listed(kind: int, request_id: int, topics: list[str]) -> bytes:
    if kind == ASKED:
        return encode(CommandGetTopicsOfNamespaceResponse(request_id=request_id, topics=topics, topics_hash="h"))
    return encode(CommandWatchTopicListSuccess(request_id=request_id, watcher_id=3, topic=topics, topics_hash="h"))


@given(st.sampled_from(sorted(LISTINGS)), U64, U64, st.lists(st.text(max_size=40), max_size=20))
def test_only_the_request_id_changes(kind: int, request_id: int, client_id: int, topics: list[str]) -> None:
    listing = Listing(kind, listed(kind, request_id, topics)[SIZES.size :])
    assert listing.request_id == request_id
    assert listing.with_request_id(client_id) == listed(kind, client_id, topics)


def test_another_form_of_the_same_is_read_as_well() -> None:
    backwards = b"\x8a\x02\x05\x12\x01t\x08\x07\x08\x21"
    listing = Listing(ASKED, backwards)
    assert listing.request_id == 7
    expected = CommandGetTopicsOfNamespaceResponse(request_id=9, topics=["t"])
    assert listing.with_request_id(9) == encode(expected)


@pytest.mark.parametrize("command", [b"\x08\x21", b"\x08\x21\x8a\x02\x02\x12\x00", b"\x08\x21\x8a\x02\x01\x08"])
def test_what_is_none_breaks_the_protocol(command: bytes) -> None:
    with pytest.raises(MalformedFrame):
        Listing(ASKED, command)
