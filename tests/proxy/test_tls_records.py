"""Records between a raw transport and OpenSSL: how few calls many bytes take, and which of a record that is cut."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import runtime
from proxy.counters import Counters
from proxy.session.transport import TransportContext
from proxy.slices import AT_ONCE, Slices, Work
from proxy.tls.transport import MOST_RECORDS, RECORDS_OF_UNIT, TlsTransport, first_records
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop
from tests.proxy.tls import Authorities

RECORD = 16 * 1024


class Raw(asyncio.Transport):
    """Keeps what it is given, by system calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[bytes]] = []
        self.is_paused = False

    def set_protocol(self, protocol: Any) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: Any) -> None:
        self.calls.append([data])

    def writelines(self, list_of_data: Any) -> None:
        self.calls.append(list_of_data)

    def get_write_buffer_size(self) -> int:
        return 0

    def taken(self) -> bytes:
        """What was given until now, once."""
        calls, self.calls = self.calls, []
        return b"".join(piece for call in calls for piece in call)


class Heard:
    """Keeps what was opened, read by read."""

    def __init__(self) -> None:
        self.tls: TlsTransport
        self.group, self.bytes_read, self.has_kept = None, 0, False
        self.is_paused = False
        self.reads: list[bytes] = []
        self.full: list[bool] = []
        self.failures: list[object] = []

    def take(self, data: bytes, size: int) -> None:
        self.reads.append(data[:size])

    def is_throttled(self) -> bool:
        return self.is_paused

    def resume_reading(self) -> None:
        self.tls.resume_reading()

    def was_read(self) -> None:
        self.full.append(False)

    def was_read_full(self) -> None:
        self.full.append(True)

    def secured(self, tls: object) -> None:
        pass

    def connection_lost(self, _error: object) -> None:
        pass

    def tls_failed(self, _tls: object, *failure: object) -> None:
        self.failures.append(failure)


class Line:
    """A client's TLS, and Sluice's behind its handshake, which shares its memory with all lines of `shared`."""

    def __init__(self, authorities: Authorities, shared: TransportContext) -> None:
        listener = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        listener.load_cert_chain(authorities.folder / "front.pem", authorities.folder / "front.key")
        self.raw, self.heard = Raw(), Heard()
        heard: Any = self.heard
        self.heard.tls = self.tls = TlsTransport(heard, heard, self.raw, listener, shared.tls_buffers())
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = authorities.client().wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        loop = ManualLoop(ManualClock())
        for _ in range(2):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            loop.run(self.arrives, self._outgoing.read())
            self._incoming.write(self.raw.taken())
        loop.close()

    def arrives(self, records: bytes) -> None:
        """The loop reads them, as much at once as there is room for."""
        while records:
            room = self.tls.get_buffer(-1)
            size = min(len(room), len(records))
            room[:size] = records[:size]
            self.tls.buffer_updated(size)
            records = records[size:]

    def sealed(self, data: bytes) -> bytes:
        self.client.write(data)
        return self._outgoing.read()

    def opened(self, records: bytes, size: int) -> bytes:
        self._incoming.write(records)
        data = b""
        while len(data) < size:
            data += self.client.read(RECORD)
        return data


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def shared() -> TransportContext:
    counters = Counters()
    return TransportContext(counters, Slices(counters))


@pytest.fixture
def line(authorities: Authorities, shared: TransportContext) -> Line:
    return Line(authorities, shared)


class Turns:
    """A loop whose turns are run one by one, and connections that are read in them.

    Attributes:
        opened: The number of bytes that were opened in each turn.
    """

    def __init__(self, *lines: Line) -> None:
        self.loop = ManualLoop(ManualClock())
        self.lines = lines
        self.opened: list[int] = []

    def arrive(self, *records: bytes) -> None:
        """Each connection has some records in one turn."""
        for line, own in zip(self.lines, records, strict=True):
            self.loop.call_soon(line.arrives, own)
        self.go_on()

    def go_on(self) -> None:
        """Run turns until nothing is left to do."""
        while self.loop.__dict__["_ready"]:
            before = sum(line.heard.bytes_read for line in self.lines)
            self.loop.stop()
            self.loop.run_forever()
            self.opened.append(sum(line.heard.bytes_read for line in self.lines) - before)


@pytest.fixture
def small(line: Line) -> bytes:
    """Records of a byte each, more than a read takes."""
    return b"".join(line.sealed(bytes([number % 256])) for number in range(2500))


AT_ONCE_RECORDS = AT_ONCE[Work.RECORDS] * RECORDS_OF_UNIT


def test_small_records_are_opened_a_bounded_number_in_a_turn(
    authorities: Authorities, shared: TransportContext, line: Line
) -> None:
    """Of all connections together, and in their order."""
    lines = [line, *(Line(authorities, shared) for _ in range(4))]
    plaintext = pattern(2500)
    turns = Turns(*lines)
    turns.arrive(*(b"".join(each.sealed(plaintext[at : at + 1]) for at in range(len(plaintext))) for each in lines))
    assert max(turns.opened) <= 2 * AT_ONCE_RECORDS + len(lines) * 8, "the budget of reads, and that of all work"
    assert [b"".join(each.heard.reads) for each in lines] == [plaintext] * len(lines)
    assert shared.tls_buffers().kept == 0
    assert not any(each.raw.is_paused or each.heard.has_kept for each in lines)
    turns.loop.close()


@pytest.fixture
def kept(line: Line, shared: TransportContext, small: bytes) -> Iterator[Turns]:
    """The line is paused and has records that are kept, as the turn's budget was spent when they came."""
    line.heard.is_paused = True
    turns = Turns(line)
    turns.loop.call_soon(shared.tls_buffers().charge, AT_ONCE_RECORDS)
    turns.arrive(small)
    yield turns
    turns.loop.close()


def test_kept_records_await_the_end_of_a_pause(line: Line, shared: TransportContext, kept: Turns) -> None:
    opened, waiting = line.heard.bytes_read, shared.tls_buffers().kept
    assert opened < 2500
    assert waiting > 0
    assert line.raw.is_paused
    line.heard.is_paused = False
    kept.loop.call_soon(line.tls.resume_reading)
    kept.go_on()
    assert b"".join(line.heard.reads) == bytes(number % 256 for number in range(2500))
    assert not line.raw.is_paused


@pytest.mark.usefixtures("kept")
def test_kept_records_of_a_lost_connection_are_dropped(line: Line, shared: TransportContext) -> None:
    assert line.heard.has_kept
    line.tls.connection_lost(None)
    assert shared.tls_buffers().kept == 0


def pattern(size: int) -> bytes:
    """Bytes of which no two pieces are alike."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        (1, [1]),
        (64 * 1024, [1]),
        (64 * 1024 + 1, [2]),
        (256 * 1024, [4]),
        (256 * 1024 + 1, [4, 1]),
        (1024 * 1024, [4, 4, 4, 4]),
    ],
)
def test_many_bytes_leave_in_few_system_calls_and_in_pieces_that_are_no_new_memory(
    line: Line, size: int, pieces: list[int]
) -> None:
    """What is written may be overwritten behind it, as what is read into is."""
    plaintext = pattern(size)
    memory = bytearray(plaintext)
    line.tls.write(memoryview(memory))
    memory[:] = bytes(size)
    assert [len(call) for call in line.raw.calls] == pieces
    assert max(len(piece) for call in line.raw.calls for piece in call) < runtime.LARGE
    assert line.opened(line.raw.taken(), size) == plaintext


def test_records_are_given_to_openssl_only_when_they_are_whole(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception costs as much as a good part of a record: a stream whose reads are full would pay for each."""
    plaintext = pattern(3 * MOST_RECORDS)
    records = line.sealed(plaintext)
    asked: list[object] = []

    def counted(self: ssl.SSLObject, size: int, buffer: Any) -> int:
        try:
            asked.append(self._sslobj.read(size, buffer))  # type: ignore[attr-defined]
        except ssl.SSLWantReadError as error:
            asked.append(error)
            raise
        return asked[-1]  # type: ignore[return-value]

    monkeypatch.setattr(ssl.SSLObject, "read", counted)
    turns = Turns(line)
    turns.arrive(records)
    turns.loop.close()
    assert asked == [RECORD] * (3 * MOST_RECORDS // RECORD)
    assert b"".join(line.heard.reads) == plaintext
    assert [len(read) % RECORD for read in line.heard.reads] == [0] * len(line.heard.reads)
    assert line.heard.full[-4:] == [True] * 3 + [False]
    assert line.heard.bytes_read == len(plaintext)


def test_the_beginning_of_one_connection_s_record_is_not_another_s(
    authorities: Authorities, shared: TransportContext, line: Line
) -> None:
    other = Line(authorities, shared)
    plaintext, theirs = pattern(20_000), b"x" * 30_000
    records, others = line.sealed(plaintext), other.sealed(theirs)
    line.arrives(records[:10_000])
    other.arrives(others[:20_000])
    line.arrives(records[10_000:])
    other.arrives(others[20_000:])
    assert b"".join(line.heard.reads) == plaintext
    assert b"".join(other.heard.reads) == theirs


@pytest.mark.parametrize("broken", [b"GET / HTTP/1.1\r\n", b"\x17\x03\x03\xff\xff", b"\x17\x09\x09\x00\x01x"])
def test_what_is_no_record_goes_to_openssl_at_once_and_fails(line: Line, broken: bytes) -> None:
    line.arrives(line.sealed(b"before") + broken)
    assert line.heard.reads == [b"before"]
    assert len(line.heard.failures) == 1


RECORDS = st.lists(
    st.builds(
        lambda kind, minor, length: bytes([kind, 3, minor]) + length.to_bytes(2, "big") + bytes(length),
        st.integers(0x14, 0x17),
        st.integers(0, 4),
        st.sampled_from([0, 1, 2, 300, RECORD, RECORD + 2048]),
    ),
    max_size=4,
)


@given(records=RECORDS, cut=st.integers(0, 80_000))
def test_whole_records_end_where_the_last_of_them_does(records: Sequence[bytes], cut: int) -> None:
    data = b"".join(records)
    size = min(cut, len(data))
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record))
    whole = max(end for end in ends if end <= size)
    assert first_records(data, 0, size, len(ends)) == (whole, ends.index(whole))
    assert first_records(data, 0, size, 1) == ((ends[1], 1) if whole else (0, 0))
    assert all(begin <= end for begin, end in pairwise(ends))


@given(
    kind=st.integers(0x13, 0x18),
    major=st.integers(2, 4),
    length=st.integers(0, 2 * RECORD),
    more=st.integers(5, 2 * RECORD + 2048),
)
def test_less_than_a_record_is_kept_and_nothing_of_what_is_none(kind: int, major: int, length: int, more: int) -> None:
    is_record = 0x14 <= kind <= 0x17 and major == 3 and length <= RECORD + 2048
    data = bytes([kind, major, 3]) + length.to_bytes(2, "big") + bytes(min(more, length))
    kept = len(data) - first_records(data, 0, len(data), 1)[0]
    assert kept == (len(data) if is_record and length > more else 0)
    assert kept < 5 + RECORD + 2048
