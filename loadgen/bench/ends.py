"""The two ends of a measurement: a sender of ready-made SEND frames, and a broker that only counts bytes."""

import socket
import threading
import time
from dataclasses import dataclass

from protocol.commands import encode, encode_with_payload, split
from protocol.frames import FrameCutter
from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandConnected,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
)

_CHUNK = 1 << 20
_HEADERS = b"\x0e\x01" + bytes(4) + bytes([0, 0, 0, 30]) + bytes(30)


def send_frame(size: int) -> bytes:
    """A SEND whose whole frame has about `size` bytes."""
    command = CommandSend(producer_id=1, sequence_id=12345, num_messages=1)
    filler = bytes(max(0, size - len(encode_with_payload(command, _HEADERS))))
    return encode_with_payload(command, _HEADERS + filler)


@dataclass(frozen=True, slots=True)
class Load:
    """Frames to send."""

    frame: bytes
    frames: int

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.frame) * self.frames


class Sink:
    """Answers one client's handshake, then counts bytes until all of `load` is there."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.finished_at = 0.0
        self.received = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, patience_s: float) -> bool:
        """Whether everything came."""
        self._thread.join(patience_s)
        return self.received == self._load.size

    def _run(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            self._greet(connection)
            buffer = bytearray(_CHUNK)
            while self.received < self._load.size:
                count = connection.recv_into(buffer)
                if not count:
                    return
                self.received += count
            self.finished_at = time.perf_counter()

    @staticmethod
    def _greet(connection: socket.socket) -> None:
        cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))
        while True:
            for frame in cutter.feed(connection.recv(65536)):
                envelope, _ = split(frame)
                if envelope.type == BaseCommand.CONNECT:
                    connection.sendall(encode(CommandConnected(server_version="sink", protocol_version=20)))
                elif envelope.type == BaseCommand.PRODUCER:
                    answer = CommandProducerSuccess(request_id=envelope.producer.request_id, producer_name="bench")
                    connection.sendall(encode(answer))
                    return


def connect(port: int, patience_s: float) -> socket.socket:
    """Connect as a client with one producer, as soon as something listens.

    Raises:
        OSError: If nothing does in time.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    connection.sendall(encode(CommandConnect(client_version="bench", protocol_version=20)))
    connection.recv(65536)
    topic = "persistent://public/default/bench"
    connection.sendall(encode(CommandProducer(topic=topic, producer_id=1, request_id=1, producer_name="bench")))
    connection.recv(65536)
    return connection


def send_all(connection: socket.socket, load: Load) -> float:
    """Send everything; returns when it began (`perf_counter`)."""
    per_chunk = max(1, _CHUNK // len(load.frame))
    chunk, begun = load.frame * per_chunk, time.perf_counter()
    for _ in range(load.frames // per_chunk):
        connection.sendall(chunk)
    connection.sendall(load.frame * (load.frames % per_chunk))
    return begun
