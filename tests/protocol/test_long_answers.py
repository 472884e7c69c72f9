"""Lists of topics and schemas go on under another request id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.commands import LONG_ANSWERS, SIZES, LongAnswer, encode
from protocol.frames import MalformedFrame
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchemaResponse,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicListSuccess,
    Schema,
)

ASKED = BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
U64 = st.integers(0, 2**64 - 1)


def answer(kind: int, request_id: int, words: list[str]) -> bytes:
    if kind == ASKED:
        return encode(CommandGetTopicsOfNamespaceResponse(request_id=request_id, topics=words, topics_hash="h"))
    if kind == BaseCommand.WATCH_TOPIC_LIST_SUCCESS:
        return encode(CommandWatchTopicListSuccess(request_id=request_id, watcher_id=3, topic=words, topics_hash="h"))
    data = "".join(words).encode()
    if kind == BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE:
        return encode(CommandGetOrCreateSchemaResponse(request_id=request_id, schema_version=data))
    schema = Schema(name="s", schema_data=data, type=Schema.Avro)
    return encode(CommandGetSchemaResponse(request_id=request_id, schema=schema, schema_version=b"v"))


@given(st.sampled_from(sorted(LONG_ANSWERS)), U64, U64, st.lists(st.text(max_size=40), max_size=20))
def test_only_the_request_id_changes(kind: int, request_id: int, client_id: int, words: list[str]) -> None:
    long = LongAnswer(kind, answer(kind, request_id, words)[SIZES.size :])
    assert long.request_id == request_id
    assert long.with_request_id(client_id) == answer(kind, client_id, words)


def test_a_response_in_another_form_is_read() -> None:
    backwards = b"\x8a\x02\x05\x12\x01t\x08\x07\x08\x21"
    long = LongAnswer(ASKED, backwards)
    assert long.request_id == 7
    expected = CommandGetTopicsOfNamespaceResponse(request_id=9, topics=["t"])
    assert long.with_request_id(9) == encode(expected)


@pytest.mark.parametrize(
    "command", [b"\x08\x21", b"\x08\x21\x8a\x02\x00", b"\x08\x21\x8a\x02\x02\x12\x00", b"\x08\x21\x8a\x02\x01\x08"]
)
def test_bytes_that_are_no_response_are_malformed(command: bytes) -> None:
    with pytest.raises(MalformedFrame):
        LongAnswer(ASKED, command)
