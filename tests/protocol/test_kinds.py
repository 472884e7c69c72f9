"""The types have the numbers of the protocol."""

from protocol.kinds import ACK, ACK_RESPONSE, MESSAGE, SEND, SEND_RECEIPT
from protocol.pulsar_pb2 import BaseCommand


def test_the_types_are_those_of_the_protocol() -> None:
    names = {SEND: "SEND", SEND_RECEIPT: "SEND_RECEIPT", MESSAGE: "MESSAGE", ACK: "ACK", ACK_RESPONSE: "ACK_RESPONSE"}
    assert {number: BaseCommand.Type.Name(number) for number in names} == names
