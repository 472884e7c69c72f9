"""Records between a raw transport and OpenSSL: how few calls many bytes take, and which of a record that is cut."""

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import runtime
from proxy.counters import Counters
from proxy.session.transport import TransportContext
from proxy.slices import Slices
from proxy.tls.transport import MOST_RECORDS, TlsTransport, whole_records
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop
from tests.proxy.tls import Authorities

RECORD = 16 * 1024


class Raw(asyncio.Transport):
    """Keeps what it is given, by system calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[bytes]] = []

    def set_protocol(self, protocol: Any) -> None:
        pass

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
        self.group, self.bytes_read = None, 0
        self.reads: list[bytes] = []
        self.full: list[bool] = []
        self.failures: list[object] = []

    def take(self, data: bytes, size: int) -> None:
        self.reads.append(data[:size])

    def resume_reading(self) -> None:
        pass

    def was_read(self) -> None:
        self.full.append(False)

    def was_read_full(self) -> None:
        self.full.append(True)

    def secured(self, tls: object) -> None:
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
        self.tls = TlsTransport(heard, heard, self.raw, listener, shared.tls_buffers())
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
    said = pattern(size)
    memory = bytearray(said)
    line.tls.write(memoryview(memory))
    memory[:] = bytes(size)
    assert [len(call) for call in line.raw.calls] == pieces
    assert max(len(piece) for call in line.raw.calls for piece in call) < runtime.LARGE
    assert line.opened(line.raw.taken(), size) == said


def test_records_are_given_to_openssl_only_when_they_are_whole(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception costs as much as a good part of a record: a stream whose reads are full would pay for each."""
    said = pattern(3 * MOST_RECORDS)
    records = line.sealed(said)
    asked: list[object] = []

    def counted(self: ssl.SSLObject, size: int, buffer: Any) -> int:
        try:
            asked.append(self._sslobj.read(size, buffer))  # type: ignore[attr-defined]
        except ssl.SSLWantReadError as error:
            asked.append(error)
            raise
        return asked[-1]  # type: ignore[return-value]

    monkeypatch.setattr(ssl.SSLObject, "read", counted)
    line.arrives(records)
    assert asked == [RECORD] * (3 * MOST_RECORDS // RECORD)
    assert b"".join(line.heard.reads) == said
    assert [len(read) % RECORD for read in line.heard.reads] == [0] * len(line.heard.reads)
    assert line.heard.full[-4:] == [True] * 3 + [False]
    assert line.heard.bytes_read == len(said)


def test_the_beginning_of_one_connection_s_record_is_not_another_s(
    authorities: Authorities, shared: TransportContext, line: Line
) -> None:
    other = Line(authorities, shared)
    said, theirs = pattern(20_000), b"x" * 30_000
    records, others = line.sealed(said), other.sealed(theirs)
    line.arrives(records[:10_000])
    other.arrives(others[:20_000])
    line.arrives(records[10_000:])
    other.arrives(others[20_000:])
    assert b"".join(line.heard.reads) == said
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
    assert whole_records(data, size) == max(end for end in ends if end <= size)
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
    kept = len(data) - whole_records(data, len(data))
    assert kept == (len(data) if is_record and length > more else 0)
    assert kept < 5 + RECORD + 2048
