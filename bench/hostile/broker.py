"""A broker whose client chooses its mood: it serves, answers nothing, reads nothing, or never rests.

The mood is a part of the client's version in its CONNECT, which Sluice passes on. So hostile clients and the honest
neighbour of one trial meet different brokers at the same address.
"""

import asyncio
import sys
from enum import StrEnum
from typing import cast

import uvloop

from loadgen.standin.broker import BrokerOptions, StandinBroker
from loadgen.standin.server import KEEP_ALIVE_S, Socket
from protocol.commands import SIZES, encode, split
from protocol.pulsar_pb2 import (
    CommandConnected,
    CommandError,
    CommandLookupTopicResponse,
    CommandMessage,
    CommandProducerSuccess,
    CommandSendReceipt,
    CommandSuccess,
    MessageIdData,
    UnknownError,
)

MARK = "hostile-"
"""The beginning of a client's version that names a mood."""
_CHUNK = 64 * 1024
_HALF = 2_000_000


class Mood(StrEnum):
    """A hostile broker's behaviour behind CONNECTED."""

    STANDIN = "standin"
    MUTE = "mute"
    """The broker reads everything and answers nothing."""
    DEAF = "deaf"
    """The broker reads nothing."""
    CHATTY = "chatty"
    """The broker sends answers without a request, for unknown ids, as fast as they are taken."""
    BREATHLESS = "breathless"
    """The broker sends half of a command of 4 MB, and no more."""


def greeting_of(mood: Mood) -> str:
    """The client's version that asks for a mood."""
    return MARK + mood


class _Talker(asyncio.Protocol):
    """One accepted connection, until its client has said which broker it wants.

    Args:
        broker: The topics that all connections share.
    """

    def __init__(self, broker: StandinBroker) -> None:
        self._broker = broker
        self._said = bytearray()
        self._mood: Mood | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop; behind CONNECT nothing is looked at."""
        if self._mood is not None:
            return
        self._said += data
        if len(self._said) < SIZES.size or len(self._said) < SIZES.unpack_from(self._said)[0] + 4:
            return
        size = SIZES.unpack_from(self._said)[0] + 4
        version = split(bytes(self._said[:size]))[0].connect.client_version
        self._mood = Mood(version.removeprefix(MARK)) if version.startswith(MARK) else Mood.STANDIN
        self._begin()

    def pause_writing(self) -> None:
        """Called by the loop."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._is_paused = False
        self._talk()

    def _begin(self) -> None:
        if self._mood is Mood.STANDIN:
            standin = Socket(self._broker, KEEP_ALIVE_S)
            standin.connection_made(self._transport)
            self._transport.set_protocol(standin)
            standin.data_received(bytes(self._said))
            return
        self._said.clear()
        self._transport.write(encode(CommandConnected(server_version="hostile", max_message_size=5 * 1024 * 1024)))
        if self._mood is Mood.DEAF:
            self._transport.pause_reading()
        elif self._mood is Mood.CHATTY:
            self._talk()
        elif self._mood is Mood.BREATHLESS:
            self._transport.write(SIZES.pack(2 * _HALF, 2 * _HALF - 4) + bytes(_HALF))

    def _talk(self) -> None:
        if self._mood is Mood.CHATTY and not self._is_paused and not self._transport.is_closing():
            self._transport.write(_TALK)
            asyncio.get_running_loop().call_soon(self._talk)


def _talk() -> bytes:
    """Return answers to requests of all numbers, most of the wrong kind."""
    frames: list[bytes] = []
    for number in range(1000):
        message_id = MessageIdData(ledger_id=1, entry_id=number)
        frames += [
            encode(CommandSuccess(request_id=number)),
            encode(CommandProducerSuccess(request_id=number, producer_name=f"of-nobody-{number}")),
            encode(CommandError(request_id=number, error=UnknownError, message="of nobody")),
            encode(CommandSendReceipt(producer_id=number, sequence_id=number, message_id=message_id)),
            encode(CommandMessage(consumer_id=number, message_id=message_id)),
            encode(
                CommandLookupTopicResponse(
                    request_id=number,
                    response=CommandLookupTopicResponse.Connect,
                    broker_service_url=f"pulsar://10.9.{number % 256}.{number % 251}:{6650 + number}",
                )
            ),
        ]
    return b"".join(frames)


_TALK = _talk()


async def _serve(port: int) -> None:
    broker = StandinBroker(BrokerOptions(topic_bytes=16 * 1024 * 1024))
    server = await asyncio.get_running_loop().create_server(lambda: _Talker(broker), "127.0.0.1", port, backlog=4096)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve on the port of the command line until the process is ended."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
