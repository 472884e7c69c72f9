"""Headers of the PROXY protocol: what is read of them, however they are cut, and what is written."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.commands import encode
from protocol.frames import ProxyHeaderError
from protocol.proxy_protocol import (
    MOST_V1,
    MOST_V2,
    NO_HEADER,
    SIGNATURE_V1,
    SIGNATURE_V2,
    Header,
    SocketAddress,
    read_header,
    write_header,
)
from protocol.pulsar_pb2 import CommandConnect

CLIENT = ("192.0.2.7", 56324)
CLIENT_6 = ("2001:db8::7", 56324)
LISTENER = ("198.51.100.1", 6650)
TCP4_BYTES = bytes([192, 0, 2, 7, 198, 51, 100, 1]) + b"\xdc\x04\x19\xfa"
TCP6_BYTES = IPv6Address("2001:db8::7").packed + IPv6Address("2001:db8::1").packed + b"\xdc\x04\x19\xfa"
LONGEST_LINE = b"PROXY UNKNOWN " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n"


def v2(command: int, family: int, rest: bytes, length: int | None = None) -> bytes:
    return SIGNATURE_V2 + bytes([command, family]) + (len(rest) if length is None else length).to_bytes(2) + rest


READ = {
    "version 1, TCP4": (b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 6650\r\n", CLIENT),
    "version 1, TCP6": (b"PROXY TCP6 2001:DB8::7 2001:db8::1 56324 6650\r\n", CLIENT_6),
    "version 1, port 0": (b"PROXY TCP4 192.0.2.7 198.51.100.1 0 65535\r\n", ("192.0.2.7", 0)),
    "version 1, IPv4 within IPv6": (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n", ("::ffff:192.0.2.7", 1)),
    "version 1, UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "version 1, UNKNOWN with what is to be ignored": (b"PROXY UNKNOWN \xff TCP4  x\r\r\n", None),
    "version 1, the longest line": (LONGEST_LINE, None),
    "version 2, TCP4": (v2(0x21, 0x11, TCP4_BYTES), CLIENT),
    "version 2, TCP6": (v2(0x21, 0x21, TCP6_BYTES), CLIENT_6),
    "version 2, TCP4 with TLVs": (v2(0x21, 0x11, TCP4_BYTES + b"\x04\x00\x03abc"), CLIENT),
    "version 2, TLVs that are none": (v2(0x21, 0x11, TCP4_BYTES + b"\xff" * (MOST_V2 - 12)), CLIENT),
    "version 2, UNSPEC": (v2(0x21, 0x00, b"anything"), None),
    "version 2, UDP over IPv4": (v2(0x21, 0x12, TCP4_BYTES), None),
    "version 2, UDP over IPv6": (v2(0x21, 0x22, TCP6_BYTES), None),
    "version 2, unix stream": (v2(0x21, 0x31, b"/run/socket".ljust(108, b"\0") * 2), None),
    "version 2, unix datagram": (v2(0x21, 0x32, bytes(216)), None),
    "version 2, LOCAL": (v2(0x20, 0x00, b""), None),
    "version 2, LOCAL, of a family that is to be ignored": (v2(0x20, 0xFF, TCP4_BYTES), None),
}
REFUSED = {
    "a protocol that is none": (b"PROXY TCP5 192.0.2.7 198.51.100.1 1 2\r\n", "unsupported", "'TCP5', not TCP4"),
    "small letters": (b"PROXY tcp4 192.0.2.7 198.51.100.1 1 2\r\n", "unsupported", "'tcp4'"),
    "two blanks": (b"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n", "malformed", "5 values"),
    "a value too few": (b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n", "malformed", "3 values"),
    "a value too many": (b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 3\r\n", "malformed", "5 values"),
    "no address": (b"PROXY TCP4 host 198.51.100.1 1 2\r\n", "malformed", "'host' where an IP address"),
    "no destination": (b"PROXY TCP4 192.0.2.7 x 1 2\r\n", "malformed", "'x' where an IP address"),
    "an address of the other family": (b"PROXY TCP4 ::1 ::1 1 2\r\n", "malformed", "'::1'"),
    "the other way round": (b"PROXY TCP6 192.0.2.7 ::1 1 2\r\n", "malformed", "'192.0.2.7'"),
    "an octal address": (b"PROXY TCP4 192.0.02.7 198.51.100.1 1 2\r\n", "malformed", "'192.0.02.7'"),
    "a zone": (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "malformed", "'fe80::1%eth0'"),
    "letters beyond ASCII": (b"PROXY TCP4 \xd9\xa1.0.2.7 198.51.100.1 1 2\r\n", "malformed", "where an IP address"),
    "a port too high": (b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n", "malformed", "'65536' where a port"),
    "a port with a sign": (b"PROXY TCP4 192.0.2.7 198.51.100.1 1 -2\r\n", "malformed", "'-2' where a port"),
    "a port that begins with 0": (b"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n", "malformed", "'01' where a port"),
    "no port": (b"PROXY TCP4 192.0.2.7 198.51.100.1  2\r\n", "malformed", "'' where a port"),
    "a carriage return within": (b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r3\r\n", "malformed", "where a port"),
    "a line that ends too late": (LONGEST_LINE[:-2] + b"0\r\n", "too_long", f"first {MOST_V1} bytes"),
    "version 3": (v2(0x31, 0x11, TCP4_BYTES), "unsupported", "version 3"),
    "version 0": (v2(0x01, 0x11, TCP4_BYTES), "unsupported", "version 0"),
    "a command that is none": (v2(0x22, 0x11, TCP4_BYTES), "unsupported", "command 2"),
    "a family that is none": (v2(0x21, 0x41, TCP4_BYTES), "unsupported", "0x41"),
    "a transport that is none": (v2(0x21, 0x13, TCP4_BYTES), "unsupported", "0x13"),
    "no room for addresses of IPv4": (v2(0x21, 0x11, TCP4_BYTES[:-1]), "malformed", "11 bytes where addresses take 12"),
    "no room for addresses of IPv6": (v2(0x21, 0x21, TCP6_BYTES[:-1]), "malformed", "take 36"),
    "more than is taken": (v2(0x21, 0x11, b"", MOST_V2 + 1), "too_long", f"at most {MOST_V2} are taken"),
    "LOCAL with more than is taken": (v2(0x20, 0x00, b"", 0xFFFF), "too_long", "65535"),
}
addresses = st.tuples(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(min_value=0, max_value=65535)
)


@pytest.mark.parametrize(("header", "source"), READ.values(), ids=READ)
def test_a_header_names_the_client_or_leaves_the_connections(header: bytes, source: SocketAddress | None) -> None:
    assert read_header(header) == Header(len(header), 1 if header.startswith(b"PROXY") else 2, source)


@pytest.mark.parametrize(("header", "cause", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_forbidden_header_is_refused_with_cause_and_problem(header: bytes, cause: str, problem: str) -> None:
    with pytest.raises(ProxyHeaderError, match="version") as error:
        read_header(header)
    assert error.value.cause == cause
    assert problem in str(error.value)


@pytest.mark.parametrize("header", [header for header, _ in READ.values()], ids=READ)
@pytest.mark.parametrize("rest", [b"", b"\x00\x00\x00\x10rest", b"\r\n", b"PROXY "])
def test_a_header_reads_alike_for_any_cut_and_any_bytes_after_it(header: bytes, rest: bytes) -> None:
    for cut in range(len(header)):
        assert read_header(header[:cut]) is None
    for cut in range(len(rest) + 1):
        parsed = read_header(bytearray(header + rest[:cut]))
        assert parsed is not None
        assert parsed.size == len(header)
        assert parsed == read_header(header)


@pytest.mark.parametrize(("header", "cause", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_refused_header_is_refused_for_any_cut(header: bytes, cause: str, problem: str) -> None:
    refusals: list[tuple[str, bool]] = []
    for cut in range(len(header) + 1):
        try:
            assert read_header(header[:cut]) is None, "nothing is taken of it"
            assert not refusals, "once it is refused, it stays refused"
        except ProxyHeaderError as error:
            refusals.append((error.cause, problem in str(error)))
    assert set(refusals) == {(cause, True)}


@pytest.mark.parametrize(
    "first",
    [
        encode(CommandConnect(client_version="any", protocol_version=20)),
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"POST / HTTP/1.1\r\n",
        b"PROXY\tTCP4",
        b"\r\n\r\n\x00\r\nQUIT\r",
        b"\n",
    ],
)
def test_a_missing_header_is_known_at_the_first_other_byte(first: bytes) -> None:
    known = [read_header(first[:cut]) for cut in range(1, len(first) + 1)]
    differs = next(
        at for at in range(len(first)) if not any(s.startswith(first[: at + 1]) for s in (SIGNATURE_V1, SIGNATURE_V2))
    )
    assert known == [None] * differs + [NO_HEADER] * (len(first) - differs)


def test_no_bytes_are_no_decision() -> None:
    assert read_header(b"") is None


@given(addresses, st.one_of(st.none(), addresses), st.binary(max_size=20))
@example(CLIENT, CLIENT_6, b"")
@example(CLIENT_6, CLIENT, b"")
def test_a_written_header_is_read_again(source: SocketAddress, destination: SocketAddress | None, rest: bytes) -> None:
    header = write_header(source, destination)
    parsed = read_header(header + rest)
    assert parsed is not None
    assert (parsed.size, parsed.version) == (len(header), 2)
    assert parsed.source is not None
    host, port = parsed.source
    assert (_unmapped(host), port) == (_unmapped(source[0]), source[1])


def _unmapped(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host)
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def test_the_bytes_of_a_header_are_those_of_the_specification() -> None:
    assert write_header(CLIENT, LISTENER) == v2(0x21, 0x11, TCP4_BYTES)
    assert write_header(CLIENT_6, ("2001:db8::1", 6650)) == v2(0x21, 0x21, TCP6_BYTES)
    assert write_header(None) == v2(0x20, 0x00, b"")


def test_addresses_of_two_families_are_written_as_those_of_ipv6() -> None:
    header = write_header(CLIENT, ("2001:db8::1", 6650))
    assert header == v2(0x21, 0x21, IPv6Address("::ffff:192.0.2.7").packed + TCP6_BYTES[16:])


@pytest.mark.parametrize("unnamed", [None, ("", 0), ("/run/socket", 0)])
def test_a_source_that_is_no_ip_address_is_written_as_local(unnamed: SocketAddress | None) -> None:
    assert write_header(unnamed, LISTENER) == write_header(None)
    assert write_header(CLIENT, unnamed) == v2(0x21, 0x11, TCP4_BYTES[:4] + bytes(4) + TCP4_BYTES[8:10] + bytes(2))


def test_a_zone_is_left_out() -> None:
    assert write_header(("fe80::7%eth0", 1)) == write_header(("fe80::7", 1))


near_headers = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=300).map(lambda data: SIGNATURE_V1 + data),
    st.binary(max_size=120).map(lambda data: SIGNATURE_V1 + data + b"\r\n"),
    st.text("TCP46UNKNOW0123.:%- ", max_size=100).map(lambda text: SIGNATURE_V1 + text.encode() + b"\r\n"),
    st.binary(max_size=300).map(lambda data: SIGNATURE_V2 + data),
    st.builds(v2, st.integers(0, 255), st.integers(0, 255), st.binary(max_size=60)),
)


@given(near_headers, st.integers(min_value=1, max_value=400))
def test_few_bytes_decide_and_any_cut_gives_the_same(data: bytes, cut: int) -> None:
    outcomes = [_outcome(data[:length]) for length in (*range(0, len(data), cut), len(data))]
    decided = [outcome for outcome in outcomes if outcome is not None]
    assert outcomes == [None] * (len(outcomes) - len(decided)) + decided[:1] * len(decided), "decided once"
    if len(data) >= MOST_V1 and not data.startswith(SIGNATURE_V2):
        assert decided, "no more than a line of version 1 is waited for"
    if decided and isinstance(decided[0], Header):
        assert decided[0].size <= 16 + MOST_V2


@given(st.integers(0, 0xFF), st.integers(0, 0xFF), st.integers(0, 0xFFFF))
def test_a_header_is_awaited_up_to_the_bound_only(command: int, family: int, length: int) -> None:
    assert _outcome(v2(command, family, b"", length) + bytes(MOST_V2)) is not None


def _outcome(data: bytes) -> Header | tuple[str, str] | None:
    try:
        return read_header(data)
    except ProxyHeaderError as error:
        return error.cause, str(error)
