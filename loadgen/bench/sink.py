"""The broker of a measurement: shakes hands and answers lookups; then a connection is the measurement's own."""

import contextlib
import queue
import selectors
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message

from loadgen.bench.errors import BenchError
from loadgen.bench.frames import PRODUCER_ID
from protocol.commands import body_of, decode, encode
from protocol.frames import FrameCutter
from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    CommandPong,
    CommandProducerSuccess,
    CommandSuccess,
)

CONNECTED = encode(
    CommandConnected(server_version="bench", protocol_version=20, max_message_size=DEFAULT_MAX_MESSAGE_SIZE)
)
_BACKLOG = 4096
_TURN_S = 0.05
_PATIENCE_S = 20.0


class Sink:
    """Listens on a free port of the loopback interface, in a thread of its own, until the block ends."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self._opened: queue.Queue[socket.socket] = queue.Queue()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._wanted, self._lent, self._given_back = threading.Event(), threading.Event(), threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._thread.join()
        self.listener.close()

    def opened(self) -> socket.socket:
        """The next connection on which PRODUCER_ID or a consumer was opened; nobody else reads it any more.

        Raises:
            BenchError: If none is.
        """
        try:
            return self._opened.get(timeout=_PATIENCE_S)
        except queue.Empty:
            raise BenchError(f"no producer or consumer arrived at the broker within {_PATIENCE_S:g} s") from None

    @contextlib.contextmanager
    def lent(self) -> Iterator[socket.socket]:
        """The listener, for the caller alone to accept from while the block lasts."""
        self._wanted.set()
        self._lent.wait()
        try:
            yield self.listener
        finally:
            self._given_back.set()

    def _lend(self) -> None:
        self._wanted.clear()
        self._lent.set()
        self._given_back.wait()
        self._lent.clear()
        self._given_back.clear()

    def _run(self) -> None:
        while not self._is_over:
            if self._wanted.is_set():
                self._lend()
            for key, _ in self._selector.select(_TURN_S):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else None
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self.listener.accept()
            connection.setblocking(True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, _Handshake(connection))

    def _read(self, handshake: "_Handshake") -> None:
        state = handshake.read()
        if state is not None:
            self._selector.unregister(handshake.connection)
        if state is True:
            self._opened.put(handshake.connection)
        elif state is False:
            handshake.connection.close()


class _Handshake:
    """One connection up to PRODUCER or SUBSCRIBE."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))
        self._port: int = connection.getsockname()[1]

    def read(self) -> bool | None:
        """Read what is there, and answer it: True when the stream is open, False at the connection's end."""
        try:
            chunk = self.connection.recv(65536)
            for frame in self._cutter.feed(chunk):
                envelope = decode(frame[8:])
                if envelope.type == BaseCommand.CONNECT:
                    self.connection.sendall(CONNECTED)
                else:
                    self._answer(envelope)
                if _is_open(envelope):
                    return True
        except OSError:
            return False
        return None if chunk else False

    def _answer(self, envelope: BaseCommand) -> None:
        answer = answer_to(envelope, self._port)
        if answer is not None:
            self.connection.sendall(encode(answer))


def _is_open(envelope: BaseCommand) -> bool:
    """Whether this was the last command before the measurement."""
    is_last = envelope.type == BaseCommand.PRODUCER and envelope.producer.producer_id == PRODUCER_ID
    return is_last or envelope.type == BaseCommand.SUBSCRIBE


def answer_to(envelope: BaseCommand, port: int) -> Message | None:
    """What this broker answers to a command behind CONNECT; None: nothing. Every topic is here, and unpartitioned."""
    if envelope.type == BaseCommand.PING:
        return CommandPong()
    if envelope.type == BaseCommand.PARTITIONED_METADATA:
        success: Any = CommandPartitionedTopicMetadataResponse.Success
        return CommandPartitionedTopicMetadataResponse(
            request_id=body_of(envelope).request_id, partitions=0, response=success
        )
    if envelope.type == BaseCommand.LOOKUP:
        return CommandLookupTopicResponse(
            request_id=body_of(envelope).request_id,
            response=CommandLookupTopicResponse.Connect,
            broker_service_url=f"pulsar://127.0.0.1:{port}",
            authoritative=True,
            proxy_through_service_url=True,
        )
    if envelope.type == BaseCommand.PRODUCER:
        name = envelope.producer.producer_name or "bench"
        return CommandProducerSuccess(request_id=envelope.producer.request_id, producer_name=name)
    if envelope.type == BaseCommand.SUBSCRIBE:
        return CommandSuccess(request_id=envelope.subscribe.request_id)
    return None
