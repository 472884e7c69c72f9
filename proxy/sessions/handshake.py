"""The first frame of a client: who it is and which broker it wants. And the first of a broker, which lets it in."""

from typing import NamedTuple

from protocol.commands import SIZES, decode, framed, text
from protocol.errors import FrameTooLarge, MalformedFrame, ProtocolError
from protocol.pulsar_pb2 import BaseCommand, CommandConnected
from protocol.sniff import foreign_protocol
from proxy.sessions.client_role import role_of

MOST_SAID = 512
"""Characters of what a client says of itself that are kept: its version is in each line of the access log about its
streams. A wanted broker's address that is cut is too long to be allowed all the same."""


class NotConnect(ProtocolError):
    """The first command is not CONNECT."""

    cause = "no_connect"


class Greeting(NamedTuple):
    """What a client's CONNECT says.

    Args:
        target: `host:port` of the broker that a data connection wants; empty on a lookup connection.
        client_version: As the client names itself.
        client_role: What it authenticates as, as far as that can be read; the broker is to verify it.
        frame: The CONNECT to send on: the client's own, without `proxy_to_broker_url`.
        rest: Bytes behind it.
    """

    target: str
    client_version: str
    client_role: str
    frame: bytes
    rest: bytes


def read_greeting(data: bytes | bytearray, max_frame: int) -> Greeting | None:
    """Read CONNECT from the first bytes of a connection; None while it is not complete.

    Raises:
        ProtocolError: If these bytes are no CONNECT.
    """
    if len(data) < SIZES.size:
        return None
    size, command_size = SIZES.unpack_from(data)
    length = size + 4
    if length > max_frame:
        raise foreign_protocol(bytes(data[:8])) or FrameTooLarge(length, max_frame)
    if command_size + SIZES.size > length:
        raise MalformedFrame(f"a command of {command_size} bytes in a frame of {length}")
    if len(data) < length:
        return None
    data = bytes(data)
    envelope = decode(data[SIZES.size : SIZES.size + command_size])
    if envelope.type != BaseCommand.CONNECT or not envelope.HasField("connect"):
        raise NotConnect(f"the first command is of type {envelope.type}, not CONNECT")
    connect = envelope.connect
    target, frame = text(connect.proxy_to_broker_url)[:MOST_SAID], data[:length]
    if connect.HasField("proxy_to_broker_url"):
        connect.ClearField("proxy_to_broker_url")
        frame = framed(envelope)
    role = role_of(text(connect.auth_method_name), connect.auth_data)
    return Greeting(target, text(connect.client_version)[:MOST_SAID], role, frame, data[length:])


def read_welcome(chunk: bytes) -> CommandConnected | None:
    """The CONNECTED that a chunk is; None if it is anything else, less, or more."""
    if len(chunk) < SIZES.size:
        return None
    size, command_size = SIZES.unpack_from(chunk)
    if size + 4 != len(chunk) or command_size + SIZES.size != len(chunk):
        return None
    envelope = decode(chunk[SIZES.size :])
    return envelope.connected if envelope.type == BaseCommand.CONNECTED and envelope.HasField("connected") else None
