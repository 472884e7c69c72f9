"""Sessions of the proxy told as conversations, without a network and without waiting.

    client >> connect()                  the client sends
    broker << connect()                  the proxy passed exactly this on to the broker, and nothing else
    broker >> connected()
    client << connected()
    world.advance(1)                     a second passes

`peer >> …` sends one frame or several (a list goes out as one chunk) and lets everything run that follows.
`peer << …` takes all that the peer has got since the last time and compares: frames byte for byte, a `str` by the
command's name only; `NOTHING` for silence. A failure lists what was expected and what came, by name.
"""

import contextlib
import ssl
from typing import Any, TypeVar, cast

import msgspec
from google.protobuf.message import Message

from accesslog.record import AnyLine
from protocol.endpoint import Endpoint
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import CommandProducerSuccess
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.access_log import AccessLog
from proxy.observe.intervals import Intervals
from proxy.observe.log_files import LogFiles
from proxy.observe.log_lines import ShowAddress, Writer, as_they_are
from proxy.observe.log_writer import KEEP_ALL, Loss, Losses, Retention
from proxy.observe.totals import NamespaceTotals
from proxy.session.engine import Engine
from proxy.session.events import SessionLog
from proxy.session.session import Session
from tests.manual_clock import ManualClock
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.file_limits import policies_of
from tests.proxy.kernel_transport import KernelTransport
from tests.proxy.manual_loop import Dial, ManualLoop
from tests.proxy.request_ids import RequestIds, is_answer, is_own
from tests.proxy.wire import (
    as_frame,
    body,
    connect,
    connected,
    flow,
    name_of,
    producer,
    producer_success,
    subscribe,
    success,
    told,
)

_CLOSES = {"CLOSE_PRODUCER", "CLOSE_CONSUMER"}
NOTHING: list[bytes | str] = []
BROKER = ("127.0.0.1", 6651)
WALL_START_NS = 1_700_000_000_000_000_000

Said = Message | bytes
Expected = Message | bytes | str


class Peer:
    """The client or a broker, at the far end of one of the proxy's connections."""

    def __init__(self, name: str, transport: FakeTransport, loop: ManualLoop) -> None:
        self.name = name
        self.transport = transport
        self._loop = loop
        self._cutter = FrameCutter(2**31)

    def __rshift__(self, commands: Said | list[bytes]) -> None:
        frames = commands if isinstance(commands, list) else [commands]
        self.send_bytes(b"".join(map(as_frame, frames)))

    def __lshift__(self, expected: Expected | list[Any]) -> None:
        wanted = expected if isinstance(expected, list) else [expected]
        came = self.heard()
        if len(wanted) == len(came) and all(map(_is_same, wanted, came)):
            return
        lines = ["", *_lines("expected", wanted), *_lines("came", came)]
        if self._loop.trouble:
            lines += ["  the loop's trouble:", *(f"    {text}" for text in self._loop.trouble)]
        raise AssertionError(f"what the {self.name} got:" + "\n".join(lines))

    def send_bytes(self, data: bytes) -> None:
        self._loop.run(self.transport.receive, data)

    def heard(self) -> list[bytes]:
        """Whole frames since the last time."""
        return list(self._cutter.feed(self.heard_bytes()))

    def heard_bytes(self) -> bytes:
        """What came since the last time."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        return data

    def heard_names(self) -> list[str]:
        return [name_of(frame) for frame in self.heard()]

    def half_close(self) -> None:
        self._loop.run(self.transport.receive_eof)

    def leave(self, error: Exception | None = None) -> None:
        """The connection is gone at once; `error` for a reset."""
        self._loop.run(self.transport.break_off, error)

    def stop_reading(self) -> None:
        self.transport.peer_reads = False

    def read_on(self) -> None:
        self.transport.peer_reads = True
        self._loop.run(self.transport.take_all)

    @property
    def is_read(self) -> bool:
        """Whether the proxy reads what this peer sends."""
        return self.transport.is_reading()

    @property
    def is_gone(self) -> bool:
        return self.transport.is_lost


def _is_same(wanted: Expected, came: bytes) -> bool:
    return wanted == name_of(came) if isinstance(wanted, str) else as_frame(wanted) == came


def _lines(title: str, frames: list[Any]) -> list[str]:
    texts = [frame if isinstance(frame, str) else told(as_frame(frame)) for frame in frames]
    return [f"  {title}:", *(f"    {text}" for text in texts or ["nothing"])]


class Broker(Peer):
    """A broker: what it hears and says of requests is told under the client's request ids.

    Attributes:
        lets_go: It answers at once, and nobody is told, when the proxy closes what it has just closed itself.
    """

    def __init__(self, name: str, transport: FakeTransport, loop: ManualLoop) -> None:
        super().__init__(name, transport, loop)
        self.lets_go = True
        self._ids = RequestIds()
        self._heard: list[bytes] = []

    def __rshift__(self, commands: Said | list[bytes]) -> None:
        frames = [as_frame(frame) for frame in (commands if isinstance(commands, list) else [commands])]
        closes = self.lets_go and not _CLOSES.isdisjoint(map(name_of, frames))
        if closes or any(map(is_answer, frames)):
            self.hear()
        heard = len(self._heard)
        self.send_bytes(b"".join(map(self._ids.as_answered, frames)))
        if closes:
            self._let_go(heard)

    def _let_go(self, heard: int) -> None:
        self.hear()
        for frame in self._heard[heard:]:
            if name_of(frame) in _CLOSES and is_own(body(frame).request_id):
                self._heard.remove(frame)
                self.send_bytes(self._ids.as_answered(success(body(frame).request_id)))

    def heard(self) -> list[bytes]:
        self.hear()
        heard, self._heard = self._heard, []
        return heard

    def hear(self) -> None:
        """Read what has come, before it is answered."""
        self._heard += [self._ids.as_asked(frame) for frame in super().heard()]


class TlsClient(Peer):
    """A client that speaks TLS with an OpenSSL of its own.

    Attributes:
        ssl: The client's end of TLS.
        is_at_end: Whether it has heard close_notify.
    """

    def __init__(self, name: str, transport: FakeTransport, loop: ManualLoop, context: ssl.SSLContext) -> None:
        super().__init__(name, transport, loop)
        self.is_at_end = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def shake_hands(self) -> None:
        """Do as much of the handshake as the proxy answers to.

        Raises:
            ssl.SSLError: If the client does not like what it hears.
        """
        while True:
            is_done = self.tries_handshake()
            self.send_records(self.records())
            if is_done or not self.hear_records():
                return

    def records(self) -> bytes:
        """What this client has to send."""
        return self._outgoing.read()

    def sealed(self, data: bytes) -> bytes:
        """Records of these bytes."""
        at = 0
        while at < len(data):
            at += self.ssl.write(data[at:])
        return self.records()

    def send_bytes(self, data: bytes) -> None:
        self.send_records(self.sealed(data))

    def send_records(self, records: bytes) -> None:
        if records:
            self._loop.run(self.transport.receive, records)

    def close_notify(self) -> bytes:
        """The record that says that this client sends no more."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.ssl.unwrap()
        return self.records()

    def heard_bytes(self) -> bytes:
        """What came since the last time.

        Raises:
            ssl.SSLError: If the proxy sent an alert that is an error.
        """
        self.hear_records()
        heard = b""
        try:
            while data := self.ssl.read(2**20):
                heard += data
            self.is_at_end = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_at_end = True
        return heard

    def tries_handshake(self) -> bool:
        try:
            self.ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def hear_records(self) -> bool:
        data = super().heard_bytes()
        self._incoming.write(data)
        return bool(data)


P = TypeVar("P", bound=Peer)


class RecordingFiles:
    """The access log's files, kept in memory."""

    is_writing = True

    def __init__(self) -> None:
        self.losses = Losses("boot")
        self.retention = Retention(KEEP_ALL, lambda _files, _size: None)
        self.data = b""
        self.rests: list[float] = []

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def write(self, data: bytes, _first_seq: int, _lines: int, _declares: tuple[Loss, ...] = ()) -> None:
        self.data += data

    def drain(self, _patience_s: float) -> bool:
        return True

    def close(self, _patience_s: float) -> bool:
        return True


class World:
    """One proxy process without a network: what its sessions share, and the hands of its clock.

    Args:
        shown: What stands for a client's address in the access log.
        transports: What its connections are made with.
        settings: Configuration, as in YAML.
    """

    def __init__(
        self, shown: ShowAddress = as_they_are, transports: type[FakeTransport] = KernelTransport, **settings: Any
    ) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.loop.transports = transports
        self.loop.answers = self._answer
        # Most conversations look at one interval.
        settings["access_log"] = {"steady_interval": 0, **settings.get("access_log", {})}
        self.config = Config.model_validate({"broker": f"pulsar://{BROKER[0]}:{BROKER[1]}", **settings})
        self.counters = Counters()
        self.totals = NamespaceTotals()
        self.files = RecordingFiles()
        self.access = AccessLog(Writer("test-proxy", "boot", "1.0", shown), cast("LogFiles", self.files))
        log = self.config.access_log
        policies = policies_of(self.config.limits, self.config.admission.subscribe_rate_per_consumer)
        self.engine = Engine(self.config, policies, self.counters, self.clock)
        self.intervals = Intervals(
            self.access,
            self.totals,
            self.engine,
            interval_s=log.interval,
            steady_s=log.steady_interval,
            clock=self.clock,
            wall=lambda: WALL_START_NS + self.clock.now,
        )
        self.session_log = SessionLog(self.counters, self.intervals, self.access, self.clock)
        self.loop.run(self.intervals.start)
        self.sessions: list[Session] = []
        self.finished: list[Session] = []
        self.dials: list[Dial] = []
        self.broker_answers = True
        self.clients: list[Peer] = []

    def client(self, address: str = "192.0.2.7") -> Peer:
        """A client connects."""
        return self.connects(Peer("client", self._new_transport(address), self.loop), self.config.listen[0])

    def tls_client(self, context: ssl.SSLContext, address: str = "192.0.2.7") -> "TlsClient":
        """A client connects to the last address that is listened on, and has not begun its handshake."""
        return self.connects(
            TlsClient("client", self._new_transport(address), self.loop, context), self.config.listen[-1]
        )

    def connects(self, peer: P, endpoint: Endpoint) -> P:
        """Let a client in that comes to this endpoint."""
        session = Session(self.engine, len(self.sessions) + 1, self.session_log, self.finished.append, endpoint)
        self.sessions.append(session)
        self.clients.append(peer)
        self.loop.run(peer.transport.connect, session.client)
        return peer

    def _new_transport(self, address: str) -> FakeTransport:
        return self.loop.transports(self.loop, (address, 40_001 + len(self.sessions)))

    def dialled(self) -> Broker:
        """The broker that the proxy connected to last."""
        dial = self.dials[-1]
        return Broker(f"broker at {dial.address[0]}:{dial.address[1]}", dial.transport, self.loop)

    def accept(self) -> Broker:
        """Let the pending attempt to connect succeed."""
        self.loop.run(self.dials[-1].accept)
        return self.dialled()

    def refuse(self, error: OSError) -> None:
        """Let the pending attempt to connect fail."""
        self.loop.run(self.dials[-1].fail, error)

    def pair(self, target: str | None = None, address: str = "192.0.2.7", **greeting: Any) -> tuple[Peer, Broker]:
        """A client and its broker, past the handshake; `greeting` are fields of its CONNECT."""
        client = self.client(address)
        client >> connect(target, **greeting)
        broker = self.dialled()
        broker << connect(**greeting)
        broker >> connected()
        client << connected()
        return client, broker

    def advance(self, seconds: float) -> None:
        self.loop.advance(seconds)

    def lines(self, kind: type[Any] | None = None) -> list[Any]:
        """The access log so far."""
        self.access.flush()
        decoder = msgspec.json.Decoder(AnyLine)
        lines = [decoder.decode(line) for line in self.files.data.splitlines()]
        return [line for line in lines if kind is None or isinstance(line, kind)]

    def close(self) -> None:
        """End everything, and check what holds at the end of every conversation."""
        for client in self.clients:
            if not client.is_gone:
                client.leave()
        self.advance(self.config.linger + 1)
        self.loop.run(self.intervals.stop)
        self.loop.settle()
        try:
            assert not self.loop.trouble, self.loop.trouble
            self._check_that_nothing_is_left()
        finally:
            self.loop.close()

    def _answer(self, dial: Dial) -> None:
        self.dials.append(dial)
        if self.broker_answers:
            dial.accept()

    def _check_that_nothing_is_left(self) -> None:
        assert len(self.finished) == len(self.sessions), "each session ends once"
        assert self.engine.held.memory == 0, "held bytes are given back"
        assert self.engine.connector.under_way == 0, "handshakes and dials are over"
        assert not self.engine.registry.live(), "streams end with their sessions"
        assert self.engine.lookups.used == 0, "lookups are given back"
        assert self.engine.memory.used == 0, "what was kept is given back"
        assert self.engine.admission.taken == 0, "places are given back"
        assert self.engine.admission.provisional == 0, "and provisional ones"
        assert self.counters.pauses == self.counters.resumes, "pauses equal resumes"
        assert not +self.counters.throttled, "no reason not to read is left"
        assert not +self.counters.connections_open, "no connection is counted as open"


def publisher(world: World, *more: bytes, address: str = "192.0.2.7", **greeting: Any) -> tuple[Peer, Peer]:
    """A client with producer 1 on TOPIC, past the handshake; `more` is what it sent behind the PRODUCER.

    Further producers and consumers among that are accepted as well.
    """
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}", address, **greeting)
    frames = [producer(), *more]
    client >> frames
    broker << frames
    _accept_all(client, broker, frames)
    return client, broker


def consumer(world: World, *more: bytes, permits: int = 0) -> tuple[Peer, Peer]:
    """A client with consumer 7 on TOPIC, past the handshake, and what it asked for passed on.

    `more` is what it sent besides; of that producers and consumers are accepted, and FLOWs come behind.
    """
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    flows = [frame for frame in more if name_of(frame) == "FLOW"]
    frames = [subscribe(), *(frame for frame in more if frame not in flows)]
    client >> frames
    broker << frames
    _accept_all(client, broker, frames)
    client >> flows
    broker << flows
    if permits:
        client >> flow(permits)
        broker.heard()
    return client, broker


def _accept_all(client: Peer, broker: Peer, frames: list[bytes]) -> None:
    answers = {
        "PRODUCER": lambda command: producer_success(command.producer_id),
        "SUBSCRIBE": lambda command: success(command.request_id),
    }
    accepted = [answers[name_of(frame)](body(frame)) for frame in frames if name_of(frame) in answers]
    broker >> accepted
    client << accepted


def let_in(client: Peer, broker: Peer) -> None:
    """The broker accepts every producer that it has been asked for."""
    asked = [body(frame) for frame in broker.heard() if name_of(frame) == "PRODUCER"]
    for command in asked:
        broker >> CommandProducerSuccess(request_id=command.request_id, producer_name="named-by-broker")
    assert client.heard_names() == ["PRODUCER_SUCCESS"] * len(asked)
