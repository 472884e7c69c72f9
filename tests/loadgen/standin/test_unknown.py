import pytest

from loadgen.standin.unknown import is_unlisted, request_id_of
from protocol.commands import decode
from protocol.pulsar_pb2 import BaseCommand, CommandSuccess
from tests.loadgen.standin.doubles import varint


def envelope(number, body):
    return decode(b"\x08" + varint(number) + varint(number << 3 | 2) + varint(len(body)) + body)


@pytest.mark.parametrize("name", ["NEW_TXN", "TC_CLIENT_CONNECT_REQUEST", "WATCH_TOPIC_LIST", "CONSUMER_STATS"])
def test_a_requests_id_is_found_in_a_command_that_is_not_known(name):
    body = CommandSuccess(request_id=300).SerializeToString() + b"\x10\x05"
    assert request_id_of(envelope(BaseCommand.Type.Value(name), body)) == 300


def test_what_is_no_request_has_no_id():
    assert request_id_of(envelope(BaseCommand.SCALABLE_TOPIC_UPDATE, b"\x08\x05")) is None


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x12\x00"])
def test_a_request_without_a_readable_id_has_none(body):
    assert request_id_of(envelope(BaseCommand.NEW_TXN, body)) is None


def test_a_command_without_its_body_has_no_id():
    assert request_id_of(BaseCommand(type=BaseCommand.NEW_TXN)) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [(b"\x08\x63", True), (b"\x08\xac\x02", True), (b"\x08\x12", False), (b"", False), (b"\x92\x01\x00", False)],
    ids=["99", "300", "18", "nothing", "no type"],
)
def test_types_that_the_protocol_file_does_not_list_are_told_apart(command, expected):
    assert is_unlisted(decode(command)) is expected
