"""TLS on the connection of a session to its client or its broker: between the loop's transport and a `PeerTransport`.

    kernel ══▶ raw transport ──records──▶ TlsTransport ──bytes──▶ PeerTransport
           ◀══               ◀──records──              ◀──bytes──

OpenSSL works on memory here (`ssl.MemoryBIO`), and nothing waits in this layer: all records that were read are opened
at once, unless they are very many, and all bytes that are written become records at once. So the raw socket shows
whether bytes can be read, the raw transport's buffer has all unsent bytes, and a pause of the raw transport pauses all.
The loop's own TLS has none of these three properties, ends both directions when the peer ends one, and takes 256 KiB of
addresses for each connection.

    handshake ──▶ secured ──close_notify, or the end of the peer's bytes──▶ at end, may still be written to
        └──────────┴─ broken, refused ─▶ failed: the alert is sent, further bytes are discarded, closed

A step of a handshake costs as much as a thousand messages, for the signature of a server's key. So steps are units of
work that all connections share (`Work.HANDSHAKES`). A connection that waits for its step is not read.

A record of one byte costs as much as one of hundreds. So records are units of work as well (`Work.RECORDS`): those for
which a turn has no budget are kept, and the connection is not read until they have been opened.
"""

import asyncio
import contextlib
import ssl
import time
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Final, Protocol, cast

from mypy_extensions import i64

from protocol.frames import foreign_protocol
from proxy.read_scheduler import AddressGroup, Reader
from proxy.slices import CallsInSlices, Slices, Work

MOST_RECORDS: Final = 256 * 1024
"""Bytes of records that are read at once."""
_MOST_FINE: Final = 64 * 1024
"""Bytes that are read at once of a connection whose last records were small."""
_COARSE: Final = 1024
"""Least mean bytes of records that are not small."""
MOST_KEPT: Final = 16 * 1024 * 1024
"""Bytes of records that wait to be opened, of all connections, from which on small records are read a few at a time."""
RECORDS_OF_UNIT: Final = 100
"""Records that are opened in one unit of work: 50 µs."""
_FEW: Final = 8
"""Records that are opened without a look at the turn's budget."""
_FEW_COARSE: Final = MOST_RECORDS // _COARSE
"""The same where they are not small."""
_RECORD: Final = 16 * 1024
"""Most bytes in a record (RFC 8446, section 5.1)."""
_HEADER: Final = 5
MOST_UNSECURED: Final = 32 * 1024
"""Most bytes that are read of a peer before a step of its handshake: more than a record, kept until the step's turn."""
_MOST_SEALED: Final = _RECORD + 2048
"""Most bytes after the header of a record, in TLS 1.2 (RFC 5246, section 6.2.3)."""
_SEALED_AT_ONCE: Final = 4 * _RECORD
"""Bytes whose records are one piece: less than `runtime.LARGE`, so it is no new memory of the system."""
_SENT_AT_ONCE: Final = 4
"""Pieces that are given to the raw transport together, for one system call."""
_MOST_ANSWERS: Final = 64 * 1024
"""Most bytes that OpenSSL answers by itself (KeyUpdate) to a peer that never takes all: no other bound counts them."""
_MOST_DISCARDED: Final = 64 * 1024
"""Bytes that a peer may still send after its TLS failed, so that it finds the alert and no reset."""
_FIRST_RECORDS: Final = (0x15, 0x16)
"""An alert, with which a server may refuse, and the handshake."""
_FIRST_KIND: Final = 0x14
_LAST_KIND: Final = 0x17
_ALERT: Final = 0x15
_MAJOR: Final = 3
"""The first bytes of any record: change_cipher_spec to application_data, and a version of TLS."""


class TlsFailure(StrEnum):
    """The reason why TLS failed: a label of `sluice_tls_failures_total`."""

    PLAIN_BYTES = "plain_bytes"
    """The peer does not speak TLS."""
    NO_SHARED_VERSION = "no_shared_version"
    NO_SHARED_CIPHER = "no_shared_cipher"
    NO_CERTIFICATE = "no_certificate"
    """The peer shows no certificate, which it must."""
    CERTIFICATE_EXPIRED = "certificate_expired"
    CERTIFICATE_WRONG_NAME = "certificate_wrong_name"
    """The certificate of a broker is for another name than the broker is reached by."""
    CERTIFICATE_UNTRUSTED = "certificate_untrusted"
    """The peer's certificate is signed by an unknown authority, or is not valid for another reason."""
    OWN_CERTIFICATE_REFUSED = "own_certificate_refused"
    """The peer does not accept Sluice's certificate."""
    RENEGOTIATION = "renegotiation"
    """The peer would renegotiate, by TLS 1.2: each costs a handshake."""
    LEFT = "left"
    """The peer left in the middle of the handshake."""
    BROKEN = "broken"
    """Anything else that TLS does not allow."""


_VERDICTS: Final = {
    10: TlsFailure.CERTIFICATE_EXPIRED,
    62: TlsFailure.CERTIFICATE_WRONG_NAME,
    64: TlsFailure.CERTIFICATE_WRONG_NAME,
}
"""X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH; all others are distrust."""
_REASONS: Final = {
    "UNSUPPORTED_PROTOCOL": TlsFailure.NO_SHARED_VERSION,
    "VERSION_TOO_LOW": TlsFailure.NO_SHARED_VERSION,
    "WRONG_VERSION_NUMBER": TlsFailure.NO_SHARED_VERSION,
    "WRONG_SSL_VERSION": TlsFailure.NO_SHARED_VERSION,
    "UNKNOWN_PROTOCOL": TlsFailure.NO_SHARED_VERSION,
    "ALERT_PROTOCOL_VERSION": TlsFailure.NO_SHARED_VERSION,
    "NO_SHARED_CIPHER": TlsFailure.NO_SHARED_CIPHER,
    "NO_SHARED_SIGNATURE_ALGORITHMS": TlsFailure.NO_SHARED_CIPHER,
    "NO_SUITABLE_SIGNATURE_ALGORITHM": TlsFailure.NO_SHARED_CIPHER,
    "NO_SUITABLE_GROUPS": TlsFailure.NO_SHARED_CIPHER,
    "ALERT_INSUFFICIENT_SECURITY": TlsFailure.NO_SHARED_CIPHER,
    "ALERT_HANDSHAKE_FAILURE": TlsFailure.NO_SHARED_CIPHER,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": TlsFailure.NO_CERTIFICATE,
    "ALERT_UNKNOWN_CA": TlsFailure.OWN_CERTIFICATE_REFUSED,
    "ALERT_BAD_CERTIFICATE": TlsFailure.OWN_CERTIFICATE_REFUSED,
    "ALERT_CERTIFICATE_UNKNOWN": TlsFailure.OWN_CERTIFICATE_REFUSED,
    "ALERT_CERTIFICATE_EXPIRED": TlsFailure.OWN_CERTIFICATE_REFUSED,
    "ALERT_CERTIFICATE_REVOKED": TlsFailure.OWN_CERTIFICATE_REFUSED,
    "ALERT_UNSUPPORTED_CERTIFICATE": TlsFailure.OWN_CERTIFICATE_REFUSED,
    "ALERT_CERTIFICATE_REQUIRED": TlsFailure.OWN_CERTIFICATE_REFUSED,
}
"""OpenSSL's reasons; peers' alerts without the version before them."""
_WORDS: Final = {
    TlsFailure.NO_SHARED_VERSION: "speaks no version of TLS that is allowed",
    TlsFailure.NO_SHARED_CIPHER: "offers no cipher, curve or signature that is allowed",
    TlsFailure.NO_CERTIFICATE: "shows no certificate",
    TlsFailure.CERTIFICATE_EXPIRED: "shows a certificate that has expired",
    TlsFailure.CERTIFICATE_WRONG_NAME: "shows a certificate for another name",
    TlsFailure.CERTIFICATE_UNTRUSTED: "shows a certificate that is not trusted",
    TlsFailure.OWN_CERTIFICATE_REFUSED: "does not accept the certificate that it is shown",
    TlsFailure.RENEGOTIATION: "would renegotiate TLS, which is not allowed",
    TlsFailure.BROKEN: "breaks TLS",
}


def why_it_failed(error: ssl.SSLError) -> tuple[TlsFailure, str]:
    """Return the kind of failure of a peer that OpenSSL met with `error`, and a sentence about the peer."""
    reason = (getattr(error, "reason", None) or "").strip()
    if isinstance(error, ssl.SSLCertVerificationError):
        failure = _VERDICTS.get(error.verify_code, TlsFailure.CERTIFICATE_UNTRUSTED)
        return failure, f"{_WORDS[failure]}: {error.verify_message}"
    _, alert, name = reason.partition("ALERT_")
    failure = _REASONS.get(f"{alert}{name}" if alert else reason, TlsFailure.BROKEN)
    return failure, f"{_WORDS[failure]}: {reason.lower().replace('_', ' ') or error}"


def _why_no_tls(first_bytes: bytes) -> str:
    foreign = foreign_protocol(first_bytes)
    if foreign is not None:
        return f"speaks no TLS: {foreign}"
    return "speaks no TLS on a port that does: use pulsar+ssl://, not pulsar://, for this address"


def first_records(data: bytes, begin: int, size: int, most: int) -> tuple[int, int]:
    """Return the end, and the number, of the first whole records in bytes of a buffer.

    Bytes that are no records count as one: OpenSSL names their error. It also raises an exception for an incomplete
    record, which costs as much as to open a quarter of a record: so such a record is not given to it.

    Args:
        data: The buffer.
        begin: The begin of the first record.
        size: The end of the bytes.
        most: The most records.
    """
    at: i64 = begin
    end: i64 = size
    count: i64 = 0
    left: i64 = most
    while at + _HEADER <= end and count < left:
        length: i64 = data[at + 3] << 8 | data[at + 4]
        if not _FIRST_KIND <= data[at] <= _LAST_KIND or data[at + 1] != _MAJOR or length > _MOST_SEALED:
            return size, count + 1
        if at + _HEADER + length > end:
            break
        at += _HEADER + length
        count += 1
    return at, count


class TlsBuffers:
    """The memory that all TLS connections of a process share; between two calls it has no connection's bytes.

    A connection keeps the beginning of a record that is not complete by itself. A `MemoryBIO` keeps the memory that it
    once needed; one for each of thousands of connections would be most of what an idle connection takes.

    Args:
        opened: Memory for opened bytes; those of one read are at its beginning.
        opened_view: A writable view of the same memory, longer than any read by a record.
        records: Memory for the records of one read.
        records_view: A writable view of the same memory, of MOST_RECORDS bytes.
        slices: Does the steps of handshakes, and opens records for which a turn has no budget.

    Attributes:
        handshakes: Makes the steps of all handshakes.
        opening: Opens records that are kept.
        kept: Bytes of records that are kept.
        places: Views of `opened`: each begins one full record after the one before.
        incoming, outgoing: OpenSSL reads from the first and writes to the second.
    """

    def __init__(
        self,
        opened: bytes,
        opened_view: memoryview,
        records: bytes,
        records_view: memoryview,
        slices: Slices,
    ) -> None:
        self.handshakes = CallsInSlices(slices, Work.HANDSHAKES)
        self.opening = CallsInSlices(slices, Work.RECORDS)
        self.kept = 0
        self._uncharged = 0
        self._slices = slices
        self.opened = opened
        self.records = records
        self.records_view = records_view
        self.places = tuple(opened_view[at:] for at in range(0, len(opened_view), _RECORD))
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()

    def records_left(self) -> int:
        """Return the number of records for which this turn of the loop has budget left."""
        return RECORDS_OF_UNIT * self._slices.left_own(Work.RECORDS)

    def measured(self) -> AbstractContextManager[None]:
        """Measure the block as the opening of records."""
        return self._slices.measure(Work.RECORDS)

    def charge(self, records: int) -> None:
        """Count records that were opened against the turn's budget."""
        units, self._uncharged = divmod(self._uncharged + records, RECORDS_OF_UNIT)
        if units:
            self._slices.charge(Work.RECORDS, units)


class Keeper(Protocol):
    """The owner of a TLS connection: called at the end of its handshake, and of the connection."""

    def secured(self, tls: "TlsTransport") -> None:
        """The handshake is done."""

    def tls_failed(self, tls: "TlsTransport", failure: TlsFailure, detail: str) -> None:
        """TLS failed; the alert is sent, and nothing more is read or written."""

    def eof_received(self) -> bool:
        """The peer sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""


class Secured(Keeper, Reader, Protocol):
    """The transport of a session that has TLS: a `PeerTransport`.

    Attributes:
        group: The connections of the same client address.
        bytes_read: The number of opened bytes.
        has_kept: Records were read and are not opened: the socket does not show that.
    """

    group: AddressGroup | None
    bytes_read: int
    has_kept: bool

    def take(self, data: bytes, size: int) -> None:
        """Take the first `size` bytes of `data`."""

    def is_throttled(self) -> bool:
        """Return whether reading is paused."""

    def was_read_full(self) -> None:
        """Take note of a read of as many bytes as could be read at once."""

    def was_read(self) -> None:
        """Take note of a read of fewer bytes."""

    def resume_reading(self) -> None:
        """Read on, if there is no reason not to."""

    def await_end(self) -> None:
        """Await the end: all is read, and `eof_received` is called once reading goes on."""

    def pause_writing(self) -> None:
        """The write buffer is full."""

    def resume_writing(self) -> None:
        """The write buffer has room again."""


class TlsTransport:
    """TLS over a connected transport: to the loop a buffered protocol, to the `PeerTransport` a transport.

    Until the handshake is done, bytes to be written are discarded, and `close` sends no close_notify.

    Args:
        peer: Takes and writes the bytes.
        keeper: Called at the end of the handshake; the peer itself, or the object that gives it its connection.
        raw: The connected transport; this object becomes its protocol.
        context: Certificates, versions and ciphers.
        buffers: The memory that is shared.
        server_name: Of a server, the name that is asked for and must be in its certificate; None to be the server.
    """

    __slots__ = (
        "_answered",
        "_buffers",
        "_context",
        "_discarded",
        "_has_begun",
        "_is_at_end",
        "_is_closing",
        "_is_coarse",
        "_is_end_owed",
        "_is_failed",
        "_is_secured",
        "_is_shut",
        "_is_waiting",
        "_keeper",
        "_kept",
        "_opened_to",
        "_peer",
        "_raw",
        "_ssl",
        "_tail",
    )

    def __init__(
        self,
        peer: Secured,
        keeper: Keeper,
        raw: asyncio.Transport,
        context: ssl.SSLContext,
        buffers: TlsBuffers,
        server_name: str | None = None,
        *,
        is_server: bool = True,
    ) -> None:
        self._peer = peer
        self._keeper = keeper
        self._raw = raw
        self._context = context
        self._buffers = buffers
        self._ssl = context.wrap_bio(buffers.incoming, buffers.outgoing, is_server, server_name)
        self._has_begun = False
        self._is_secured = False
        self._is_failed = False
        self._is_at_end = False
        self._is_end_owed = False
        self._is_shut = False
        self._is_closing = False
        self._is_waiting = False
        self._is_coarse = False
        self._kept = b""
        self._opened_to = 0
        self._answered = 0
        self._discarded = 0
        self._tail = b""
        raw.set_protocol(cast("asyncio.BaseProtocol", self))
        if not is_server:
            self._await_step()

    @property
    def certificate_name(self) -> str | None:
        """The common name of the peer's certificate, which has been verified; None without a certificate.

        The last one, if there are several, which is the first of the name as Java writes it.

        Source: org.apache.pulsar.broker.authentication.AuthenticationProviderTls
        """
        certificate: Any = self._ssl.getpeercert() or {}
        names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
        return str(names[-1]) if names else None

    def _has_expired(self) -> bool:
        """Return whether the peer resumes a session whose certificate has expired: OpenSSL does not look again."""
        if not self._ssl.session_reused:
            return False
        certificate: Any = self._ssl.getpeercert() or {}
        until = certificate.get("notAfter")
        return until is not None and ssl.cert_time_to_seconds(until) <= time.time()

    def descriptor(self) -> int:
        """Return the raw socket's descriptor, which shows whether bytes can be read: none are left in this layer."""
        connection = self._raw.get_extra_info("socket")
        return -1 if connection is None else cast("int", connection.fileno())

    # ---- for the loop: the protocol of the raw transport

    def data_received(self, data: bytes) -> None:
        """Fail: the loop looks the name up, but reads into the buffer."""
        raise NotImplementedError

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return the memory to read into, after the part of a record that came before."""
        view, tail = self._buffers.records_view, self._tail
        if not self._is_coarse:
            view = view[: self._most_read()]
        if not tail:
            return view
        view[: len(tail)] = tail
        return view[len(tail) :]

    def _most_read(self) -> int:
        """Return the bytes that are read at once: so many that few of small records have to be kept."""
        if not self._is_secured:
            return MOST_UNSECURED
        if self._is_coarse:
            return MOST_RECORDS
        return _MOST_FINE if self._buffers.kept < MOST_KEPT else MOST_UNSECURED

    def buffer_updated(self, nbytes: int) -> None:
        """Handle `nbytes` bytes of records that were read."""
        peer = self._peer
        if self._is_closing or self._is_at_end:
            self._discard(nbytes)
            return
        size, most = len(self._tail) + nbytes, self._most_read()
        group = peer.group
        if group is not None and group.is_crowded:
            began = group.begin(peer)
            self.feed(self._buffers.records, size)
            group.end(peer, began)
        else:
            self.feed(self._buffers.records, size)
        if size < most:
            peer.was_read()
        else:
            peer.was_read_full()

    def eof_received(self) -> bool:
        """Handle the end of what the peer sends, with close_notify before it or without.

        Without one it may have been cut off on its way. That is as harmless as it is without TLS: frames have a length,
        and the beginning of one goes nowhere.
        """
        if self._is_failed or self._is_closing:
            return False
        if self._is_secured:
            self._end_came()
        elif self._has_begun:
            self._fail(TlsFailure.LEFT, "left in the middle of the handshake")
        else:
            self._keeper.eof_received()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        if self._has_begun and not (self._is_secured or self._is_failed or self._is_closing):
            self._fail(TlsFailure.LEFT, f"left in the middle of the handshake{f': {exc}' if exc else ''}")
        self._is_closing = True
        self._keep(b"")
        self._keeper.connection_lost(exc)

    def pause_writing(self) -> None:
        """Handle a write buffer that is full."""
        if self._is_secured:
            self._peer.pause_writing()

    def resume_writing(self) -> None:
        """Handle a write buffer that has room again."""
        if self._is_secured:
            self._peer.resume_writing()

    # ---- records

    def feed(self, records: bytes, size: int) -> None:
        """Open those of the first `size` bytes that are whole records, and keep the rest until more is read."""
        if not self._has_begun:
            self._has_begun = True
            if records[0] not in _FIRST_RECORDS:
                self._fail(TlsFailure.PLAIN_BYTES, _why_no_tls(records[: min(8, size)]))
                return
        if self._is_secured:
            self._take(records, size)
        elif size > MOST_UNSECURED:
            self._fail(TlsFailure.BROKEN, f"sends more than {MOST_UNSECURED} bytes before its TLS handshake")
        else:
            self._tail = records[:size]
            if first_records(records, 0, size, 1)[1]:
                self._await_step()

    def _take(self, records: bytes, size: int) -> None:
        """Open all whole records; if they are many, those for which this turn has budget."""
        end, count = first_records(records, 0, size, _FEW_COARSE)
        self._is_coarse = end >= _COARSE * count
        if count >= _FEW and not (self._is_coarse and count < _FEW_COARSE):
            self._take_many(records, size)
            return
        self._tail = records[end:size]
        if end:
            self._buffers.incoming.write(memoryview(records)[:end])
            self._go_on()

    def _take_many(self, records: bytes, size: int) -> None:
        """Open more than a few records, and keep those for which this turn has no budget."""
        end, count = first_records(records, 0, size, _FEW + self._buffers.records_left())
        self._buffers.charge(count)
        is_cut = first_records(records, end, size, 1)[1] > 0
        self._tail = b"" if is_cut else records[end:size]
        if is_cut:
            self._keep(records[end:size])
            self._raw.pause_reading()
        with self._buffers.measured():
            self._buffers.incoming.write(memoryview(records)[:end])
            self._go_on()
        if is_cut:
            self._await_opening()

    def _keep(self, records: bytes) -> None:
        self._buffers.kept += len(records) - len(self._kept)
        self._peer.has_kept = bool(records)
        self._kept, self._opened_to = records, 0

    def _await_opening(self) -> None:
        """Go on with the kept records in one of the next turns, or when the peer may be read again."""
        if self._is_closing or self._is_failed or self._is_at_end:
            self._keep(b"")
        elif not self._peer.is_throttled():
            self._is_waiting = True
            self._buffers.opening.add(self._open_kept, self._peer.group)

    def _open_kept(self) -> None:
        """Open a unit of the kept records; after the last one, read on."""
        self._is_waiting = False
        records, begin, size = self._kept, self._opened_to, len(self._kept)
        if not self._is_closing and not self._is_failed and not self._is_at_end and not self._peer.is_throttled():
            self._opened_to, _ = first_records(records, begin, size, RECORDS_OF_UNIT)
            self._buffers.incoming.write(memoryview(records)[begin : self._opened_to])
            is_last = not first_records(records, self._opened_to, size, 1)[1]
            if is_last:
                self._tail = records[self._opened_to :]
                self._keep(b"")
            self._go_on()
            if is_last:
                self._read_on()
                return
        self._await_opening()

    def _await_step(self) -> None:
        """Make a step of the handshake, now or in one of the next turns of the loop."""
        self._is_waiting = True
        self._buffers.handshakes.add(self._make_step, self._peer.group)
        if self._is_waiting:
            self._raw.pause_reading()

    def _make_step(self) -> None:
        self._is_waiting = False
        if self._is_closing or self._is_failed:
            return
        records = self._tail
        whole, _ = first_records(records, 0, len(records), len(records))
        self._tail = records[whole:]
        self._buffers.incoming.write(records[:whole])
        self._go_on()
        self._read_on()

    def _read_on(self) -> None:
        if self._is_closing or self._is_waiting:
            return
        if self._keeper is self._peer:
            self._peer.resume_reading()
        else:
            self._raw.resume_reading()

    def _go_on(self) -> None:
        """Handle the records that have come; the shared memory is free again before any other object is called."""
        was_secured = self._is_secured
        opened, is_end, error = self._open()
        is_alert = self._answer()
        if self._is_secured and not was_secured:
            if self._has_expired():
                self._fail(TlsFailure.CERTIFICATE_EXPIRED, _WORDS[TlsFailure.CERTIFICATE_EXPIRED])
                return
            keeper, self._keeper = self._keeper, self._peer
            keeper.secured(self)
        if opened and not self._is_closing:
            self._peer.bytes_read += opened
            self._peer.take(self._buffers.opened, opened)
        if not self._is_closing:
            # OpenSSL sends no other alert without an error. TLS 1.3 hides alerts, and has no renegotiation.
            self._conclude(error, is_end=is_end, is_renegotiation=is_alert and was_secured)

    def _open(self) -> tuple[int, bool, ssl.SSLError | None]:
        """Go on with the handshake, and open all complete records after it.

        Returns:
            The number of opened bytes, whether they are the peer's last ones, and the error of the next record.
        """
        incoming, places = self._buffers.incoming, self._buffers.places
        read: Any = self._ssl.read  # its stub knows no call with a buffer, which returns a number
        opened, is_end, error = 0, False, None
        try:
            if not self._is_secured:
                self._ssl.do_handshake()
                self._is_secured = True
            while incoming.pending and not is_end:
                place, behind = places[opened // _RECORD], opened % _RECORD
                size: int = read(_RECORD, place[behind:] if behind else place)
                opened += size
                is_end = size == 0
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the end, where this side has also sent close_notify
            is_end = True
        except ssl.SSLError as broken:
            error = broken
        if incoming.pending:
            incoming.read()
        return opened, is_end, error

    def _answer(self) -> bool:
        """Send OpenSSL's own answers, and count bytes that the peer does not take; return whether one is an alert."""
        if not self._buffers.outgoing.pending:
            return False
        if self._raw.get_write_buffer_size() == 0:
            self._answered = 0
        records = self._send()
        self._answered += len(records)
        return records[0] == _ALERT

    def _conclude(self, error: ssl.SSLError | None, *, is_end: bool, is_renegotiation: bool) -> None:
        if error is not None:
            self._fail(*why_it_failed(error))
        elif is_renegotiation:
            self._fail(TlsFailure.RENEGOTIATION, _WORDS[TlsFailure.RENEGOTIATION])
        elif self._answered > _MOST_ANSWERS:
            self._fail(TlsFailure.BROKEN, "has OpenSSL answer, and does not take the answers")
        elif is_end:
            self._end_came()

    def _send(self) -> bytes:
        """Send the records that are made, and return them."""
        records = self._buffers.outgoing.read()
        if not self._is_shut:
            self._raw.write(records)
        return records

    def _end_came(self) -> None:
        """Report the end to the peer transport after all bytes; during a pause, after the pause."""
        if self._is_at_end:
            return
        self._is_at_end = True
        if self._peer.is_throttled():
            self._is_end_owed = True
            self._peer.await_end()
        else:
            self._peer.eof_received()

    def _report_end(self) -> None:
        if self._is_end_owed and not self._is_closing and not self._peer.is_throttled():
            self._is_end_owed = False
            self._peer.eof_received()

    def _fail(self, failure: TlsFailure, detail: str) -> None:
        if self._is_failed:
            return
        self._is_failed = True
        self._keeper.tls_failed(self, failure, detail)

    def _discard(self, size: int) -> None:
        """Read on for a while after a failure: if bytes are left unread, the kernel resets the connection."""
        self._discarded += size
        if self._discarded > _MOST_DISCARDED:
            self._raw.abort()

    # ---- for the `PeerTransport`: a transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Make records of some bytes and send them; the memory of a view may change after this."""
        if not self._is_secured or self._is_shut or self._is_closing or not data:
            return
        try:
            if len(data) <= _SEALED_AT_ONCE:
                self._ssl.write(data)
                self._send()
            else:
                self._seal(memoryview(data))
        except ssl.SSLError as error:
            self._buffers.outgoing.read()
            self._fail(*why_it_failed(error))

    def _seal(self, data: memoryview) -> None:
        """Make records of many bytes and send them."""
        outgoing, raw = self._buffers.outgoing, self._raw
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            at += self._ssl.write(data[at : at + _SEALED_AT_ONCE])
            pieces.append(outgoing.read())
            if len(pieces) == _SENT_AT_ONCE or at == size:
                raw.writelines(pieces)
                pieces = []

    def write_eof(self) -> None:
        """Send close_notify: no more bytes are written, and further bytes of the peer are read."""
        if self._is_secured and not self._is_closing:
            self._shut()
            self._raw.write_eof()

    def _shut(self) -> None:
        if not self._is_shut:
            with contextlib.suppress(ssl.SSLError):  # it is sent, and OpenSSL would wait for the peer's
                self._ssl.unwrap()
            self._send()
            self._is_shut = True

    def is_closing(self) -> bool:
        """Return whether the connection is ending, or has ended."""
        return self._is_closing or self._raw.is_closing()

    def close(self) -> None:
        """Send unsent bytes and close_notify, then close; after a failure, when the peer has taken the alert."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._is_failed:
            self._raw.write_eof()
            self._raw.resume_reading()
        elif self._is_secured:
            self._shut()
            self._raw.close()
        else:
            self._raw.abort()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._raw.abort()

    def pause_reading(self) -> None:
        """Read no more; this layer keeps no opened bytes."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless the connection waits for a step of its handshake, or records of it are kept."""
        if self._is_waiting:
            return
        if self._kept:
            self._await_opening()
            return
        self._raw.resume_reading()
        if self._is_end_owed:
            asyncio.get_running_loop().call_soon(self._report_end)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bytes of records at which the peer transport's writing is paused and resumed."""
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Return the bytes of records that the kernel has not taken."""
        return self._raw.get_write_buffer_size()

    def get_protocol(self) -> Secured:
        """Return the peer transport."""
        return self._peer

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """Return a property of the connection: its own `sslcontext`, all others of the raw transport."""
        return self._context if name == "sslcontext" else self._raw.get_extra_info(name, default)
