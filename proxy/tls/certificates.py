"""TLS with clients, brokers and callers of the admin: contexts made of certificates, keys and authorities in files.

    engine.tls = Certificates(config)       raises ConfigError
    engine.tls.listener()                   the context of the next client
    engine.tls.broker()                     the context of the next dial
    take = reader.read()                    for each of engine.tls.readers(), in a thread; raises ConfigError
    take()                                  new handshakes use the files' new content; open connections go on

The keys of TLS connections are never written to a file: `ssl.create_default_context` would, where SSLKEYLOGFILE is set
in the environment, so it is not used here.
"""

import asyncio
import errno
import os
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, Self

import structlog

from protocol.endpoint import TLS, Endpoint
from proxy.config.model import Config, ConfigError, take_all
from proxy.config.sections import AdminTls, BrokerTls, ListenerTls
from proxy.files import MOST_PEM, FileReader, read_file, unread, warn_if_others_read

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expiry of a file of certificates: that of the first one that expires.

    Args:
        key: The key of the configuration that names the file: `tls.certificate`.
        file: The file.
        subject: The subject of the certificate.
        serial: Its number, which differs between certificates of one authority.
        at: Seconds since 1970.
    """

    key: str
    file: Path
    subject: str
    serial: int
    at: float

    def __str__(self) -> str:
        return f"{self.key}: {self.file}: {self.subject}, serial {self.serial:x}"


class LoadedContext:
    """A TLS context, and the certificates that it was made of.

    Args:
        context: The context.
        certificates: The content of each file of certificates, by the key and the file's name.
        number: Its number among those of its section, from 1.
    """

    def __init__(self, context: ssl.SSLContext, certificates: Mapping[tuple[str, Path], bytes], number: int) -> None:
        self.context = context
        self.number = number
        self._certificates = certificates

    @cached_property
    def expiries(self) -> tuple[Expiry, ...]:
        """The expiries of the certificates, one for each file; made on demand, as few processes ask."""
        of_files = (_expiry(key, file, pem) for (key, file), pem in self._certificates.items())
        return tuple(expiry for expiry in of_files if expiry is not None)


class TlsFiles:
    """The TLS context of one section, made of its files as each of them was good last.

    Certificate and key are one part, which fits together or not at all; the authorities are the other. At a reload, a
    part that cannot be used holds back nothing of the other one, and its content of before stays in force. Of a file of
    authorities that can be read in part, though, only those that can be read are in force from then on: another one may
    have been taken out of the file. A file of which none can be read does not say which authorities are meant: those of
    before stay. All files must be good at the start.

    Args:
        section: The section's key.
        make: Makes a context without certificates. Raises ConfigError.
        own: The files of the certificate and of its key; none without a certificate.
        authorities: The file's key in the section and its name, by the key; empty: there is none.
        is_client: Whether the system's authorities are taken where there is no file of authorities.

    Raises:
        ConfigError: With every file that cannot be used.
    """

    def __init__(
        self,
        section: str,
        make: Callable[[], ssl.SSLContext],
        own: tuple[Path, Path] | None,
        authorities: Mapping[str, Path | None],
        *,
        is_client: bool = False,
    ) -> None:
        self._section = section
        self._make = make
        self._own = own
        self._authorities = next(((key, path) for key, path in authorities.items() if path is not None), None)
        self._is_client = is_client
        self._lock = threading.Lock()
        self._pair: _Pair | None = None
        self._bundle: bytes | None = None
        self._made = 0
        self._loaded: LoadedContext | None = None
        take_all(self.readers())

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new connections."""
        assert self._loaded is not None, "all files are read at first"
        return self._loaded.context

    @property
    def expiries(self) -> tuple[Expiry, ...]:
        """The expiries of the certificates in force, one for each file."""
        return self._loaded.expiries if self._loaded else ()

    def readers(self) -> tuple[FileReader, ...]:
        """Return the readers of both parts, which threads may call at one time."""
        key = self._section if self._authorities is None else f"{self._section}.{self._authorities[0]}"
        of_authorities = (FileReader(key, partial(self._told, self._read_authorities)),) if self._authorities else ()
        of_own = (
            (FileReader(self._section, partial(self._told, self._read_own)),) if self._own or not of_authorities else ()
        )
        return *of_own, *of_authorities

    def _told(self, read: Callable[[], Callable[[], None]]) -> Callable[[], None]:
        """Read files; a system that does not let OpenSSL load them is a problem of the section."""
        try:
            return read()
        except _NoMemoryFileError as error:
            problem = f"memfd_create: {error}; let this process make files in memory, for certificates and keys"
            raise ConfigError([f"{self._section}: {problem}"]) from None

    def _read_own(self) -> Callable[[], None]:
        pair = None if self._own is None else _Pair.read(self._section, self._own)
        scratch = self._make()
        if pair is not None:
            pair.load(scratch)
        with self._lock:
            self._pair = pair
            return self._taking()

    def _read_authorities(self) -> Callable[[], None]:
        assert self._authorities is not None, "readers() needs the file"
        at, path = f"{self._section}.{self._authorities[0]}", self._authorities[1]
        try:
            content = read_file(path, MOST_PEM)
        except OSError as error:
            raise ConfigError([f"{at}: {path}: {unread(error)}"]) from None
        bundle = _bundle_in(content)
        if bundle.problem and (self._bundle is None or not bundle.readable):
            raise ConfigError([f"{at}: {path}: {bundle.problem}"])
        with self._lock:
            self._bundle = bundle.readable
            take = self._taking()
        if bundle.problem:
            raise ConfigError([f"{at}: {path}: {bundle.problem}; its others alone are in force"], take=take)
        return take

    def _taking(self) -> Callable[[], None]:
        """Make the context of both parts as they are now; return what puts it in force, unless a later one is."""
        is_first = (self._own is not None and self._pair is None) or (
            self._authorities is not None and self._bundle is None
        )
        if is_first:  # the other part is not read yet, and no context lacks it
            return lambda: None
        self._made += 1
        number, loaded = self._made, self._load()

        def take() -> None:
            if self._loaded is None or self._loaded.number < number:
                self._loaded = loaded

        return take

    def _load(self) -> LoadedContext:
        context = self._make()
        certificates: dict[tuple[str, Path], bytes] = {}
        if self._pair is not None:
            self._pair.load(context)
            certificates[f"{self._section}.certificate", self._pair.files[0]] = self._pair.certificate
        if self._authorities is not None and self._bundle is not None:
            with _in_memory(self._bundle) as path:
                context.load_verify_locations(path)
            certificates[f"{self._section}.{self._authorities[0]}", self._authorities[1]] = self._bundle
        elif self._is_client:
            context.load_default_certs()
        return LoadedContext(context, certificates, self._made)


class Certificates:
    """The TLS contexts in force for new connections with clients and with brokers; each process has its own.

    Args:
        config: Names the files, which are read at once, if any.

    Raises:
        ConfigError: With every file that cannot be used, each with its key and a remedy.

    Attributes:
        shows_certificate: Whether brokers see a certificate of Sluice's.
    """

    def __init__(self, config: Config) -> None:
        self._broker_tls = config.broker_tls if config.broker[0].scheme == TLS else None
        self.shows_certificate = self._broker_tls is not None and self._broker_tls.certificate is not None
        self._listener: TlsFiles | None = None
        self._broker: TlsFiles | None = None
        problems: list[str] = []
        try:
            self._listener = None if config.tls is None else _listener(config.tls)
        except ConfigError as error:
            problems += error.problems
        try:
            self._broker = None if self._broker_tls is None else _broker(self._broker_tls)
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(problems)

    def listener(self) -> ssl.SSLContext:
        """Return the context of the next client's handshake; only where an address that is listened on has TLS."""
        assert self._listener is not None, "Config wants tls where listen has TLS"
        return self._listener.context

    def broker(self) -> ssl.SSLContext:
        """Return the context of the next handshake with a broker; only where brokers are reached by TLS."""
        assert self._broker is not None, "brokers are reached as `broker` says"
        return self._broker.context

    def server_name(self, broker: Endpoint) -> str:
        """Return the name that a broker is asked for, and that its certificate must have (`verify_hostname`)."""
        assert self._broker_tls is not None, "brokers are reached as `broker` says"
        return self._broker_tls.server_name or broker.name

    def expiries(self) -> tuple[Expiry, ...]:
        """Return the expiries of the certificates in force, one for each file."""
        return tuple(expiry for files in (self._listener, self._broker) if files for expiry in files.expiries)

    def readers(self) -> tuple[FileReader, ...]:
        """Return the readers of the files for clients and those for brokers, each for the next handshake."""
        return tuple(reader for files in (self._listener, self._broker) if files for reader in files.readers())


SOON_S = 30 * 86_400
"""Seconds before the end of a certificate in which the log warns of it."""
_DAY_S = 86_400


class ExpiryLog:
    """Warns in the operator's log once a day of each certificate that has expired, or will soon.

    Args:
        expiries: Returns the expiries of the certificates in force.
        clock: Seconds since 1970.
    """

    def __init__(self, expiries: Callable[[], Iterable[Expiry]], clock: Callable[[], float] = time.time) -> None:
        self._expiries = expiries
        self._clock = clock
        self._logged: dict[Expiry, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def report(self) -> None:
        """Log the certificates that expire soon, each once a day."""
        now = self._clock()
        soon = [each for each in self._expiries() if each.at - now <= SOON_S]
        logged, self._logged = self._logged, {}
        for each in soon:
            self._logged[each] = logged.get(each, now)
            if each not in logged or now - logged[each] >= _DAY_S:
                self._logged[each] = now
                self._log(each, now)

    def start(self) -> None:
        """Warn now, and then each day, if there is any certificate."""
        self.report()
        if any(True for _ in self._expiries()):
            self._timer = asyncio.get_running_loop().call_later(_DAY_S, self.start)

    def stop(self) -> None:
        """Warn no more."""
        if self._timer is not None:
            self._timer.cancel()

    @staticmethod
    def _log(expiry: Expiry, now: float) -> None:
        log = structlog.get_logger().bind(key=expiry.key, file=str(expiry.file), subject=expiry.subject)
        at = datetime.fromtimestamp(expiry.at, UTC).isoformat(timespec="seconds")
        if expiry.at <= now:
            log.error("certificate has expired: replace its file", expired=at)
        else:
            days = int((expiry.at - now) // _DAY_S)
            log.warning("certificate expires soon: replace its file", expires=at, days_left=days)


def _listener(tls: ListenerTls) -> TlsFiles:
    def make() -> ssl.SSLContext:
        context = _server_context(tls.min_version)
        context.verify_mode = _CLIENT_AUTH[tls.asks_clients]
        if tls.ciphers is not None:
            try:
                context.set_ciphers(tls.ciphers)
            except ssl.SSLError:
                remedy = "names no cipher that this OpenSSL has; `openssl ciphers -tls1_2` lists them"
                raise ConfigError([f"tls.ciphers: {tls.ciphers!r}: {remedy}"]) from None
        return context

    return TlsFiles("tls", make, (tls.certificate, tls.key), {"client_ca": tls.client_ca})


def admin_tls(tls: AdminTls) -> TlsFiles:
    """Return the context of the admin's new connections, and its files.

    TLS lets callers in without a certificate, so that probes can ask for health. It refuses a certificate that
    `client_ca` has not signed.

    Raises:
        ConfigError: With every file that cannot be used, each with its key.
    """

    def make() -> ssl.SSLContext:
        context = _server_context("TLSv1.2")
        if tls.client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    return TlsFiles("admin_access.tls", make, (tls.certificate, tls.key), {"client_ca": tls.client_ca})


def _server_context(min_version: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION  # each costs a handshake, and none is counted
    return context


def _broker(tls: BrokerTls) -> TlsFiles:
    def make() -> ssl.SSLContext:
        context = _client_context()
        context.check_hostname = tls.verify_hostname
        return context

    own = None if tls.certificate is None or tls.key is None else (tls.certificate, tls.key)
    return TlsFiles("broker_tls", make, own, {"ca": tls.ca}, is_client=True)


def forward_tls(ca: Path | None, section: str = "admin_forward") -> TlsFiles:
    """Return the context of new HTTPS connections that Sluice opens, to brokers' admin addresses or a collector.

    Raises:
        ConfigError: If the file cannot be used; it names the section of the configuration.
    """
    return TlsFiles(section, _client_context, None, {"ca": ca}, is_client=True)


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@dataclass(frozen=True, slots=True)
class _Pair:
    """A certificate and its key, as they were read.

    Args:
        section: The key of their section.
        files: The names of both files.
        certificate: The content of the first file.
        key: The content of the second one.
    """

    section: str
    files: tuple[Path, Path]
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, section: str, files: tuple[Path, Path]) -> Self:
        """Read both files, and warn of a key that others can read.

        Raises:
            ConfigError: With each file that cannot be read.
        """
        contents, problems = list[bytes](), list[str]()
        for name, path in zip(("certificate", "key"), files, strict=True):
            try:
                contents.append(read_file(path, MOST_PEM))
            except OSError as error:
                problems.append(f"{section}.{name}: {path}: {unread(error)}")
        if problems:
            raise ConfigError(problems)
        with suppress(OSError):  # it has just been there
            warn_if_others_read(files[1], f"{section}.key")
        return cls(section, files, *contents)

    def load(self, context: ssl.SSLContext) -> None:
        """Load certificate and key.

        Raises:
            ConfigError: If they cannot be used.
        """
        with _in_memory(self.certificate) as certificate, _in_memory(self.key) as key:
            try:
                context.load_cert_chain(certificate, key, password="")  # else OpenSSL would ask for one at the terminal
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError([f"{self.section}.{self._problem(_reason(error))}"]) from None

    def _problem(self, reason: str) -> str:
        certificate, key = self.files
        if not _holds_certificates(self.certificate):
            return f"certificate: {certificate}: holds no certificate in PEM ({reason})"
        if reason.endswith("mismatch"):
            return f"key: {key}: is not the key of the certificate in {certificate}; name the two of one pair"
        if not _holds_key(self.key):
            return f"key: {key}: holds no private key in PEM without a password ({reason})"
        return f"certificate: {certificate}: cannot be used: {reason}"


class _Bundle(NamedTuple):
    """The content of a file of authorities.

    Attributes:
        readable: The certificates that can be read, or the whole content if all can; empty: there are none.
        problem: The problem of the others; empty: all can be read.
    """

    readable: bytes
    problem: str


_BEGIN_BLOCK = re.compile(rb"(?=-----BEGIN )")


def _bundle_in(content: bytes) -> _Bundle:
    reason = _why_no_authorities(content)
    if reason is None:
        return _Bundle(content, "")
    blocks = [each for each in _BEGIN_BLOCK.split(content) if each.startswith(b"-----BEGIN ")]
    certificates = [each for each in blocks if b"CERTIFICATE-----" in each.partition(b"\n")[0]]
    if not certificates:
        return _Bundle(b"", f"holds no certificate in PEM ({reason})")
    readable = [each for each in certificates if _why_no_authorities(each) is None]
    count = len(certificates) - len(readable)
    some = (
        "a certificate that cannot be read: take it"
        if count == 1
        else f"{count} certificates that cannot be read: take them"
    )
    return _Bundle(b"\n".join(readable), f"has {some} out ({reason})")


def _why_no_authorities(pem: bytes) -> str | None:
    """Return the reason for which OpenSSL does not read these certificates, in a few words; None if it does."""
    try:
        with _in_memory(pem) as path:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        return _reason(error)
    return None


class _NoMemoryFileError(Exception):
    """The system gives no file in memory."""


_MFD_NOEXEC_SEAL = 0x8
"""Never to be executed, by memfd_create(2): a system with vm.memfd_noexec=2 gives no other file. Since Linux 6.3."""


def _memory_file() -> int:
    try:
        try:
            return os.memfd_create("pem", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.memfd_create("pem", os.MFD_CLOEXEC)  # an older Linux
    except OSError as error:
        raise _NoMemoryFileError(error.strerror) from None


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield a path with this content while the block lasts: OpenSSL loads by names. On Linux no disk gets it.

    Raises:
        _NoMemoryFileError: If the system gives no file in memory.
    """
    with ExitStack() as stack:
        if sys.platform == "linux":
            file = stack.enter_context(os.fdopen(_memory_file(), "wb"))
        else:
            file = stack.enter_context(TemporaryFile())
        file.write(content)
        file.flush()
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or "cannot be loaded").lower().replace("_", " ")


# The functions below import cryptography (8 MB) when they are called: no call comes without TLS.


def _expiry(key: str, file: Path, pem: bytes) -> Expiry | None:
    """Return which certificate of a file expires first, and when; None if cryptography does not read the file.

    OpenSSL may take such a file: it may have an authority of an odd form.
    """
    from cryptography import x509  # noqa: PLC0415

    try:
        first = min(x509.load_pem_x509_certificates(pem), key=lambda each: each.not_valid_after_utc)
        serial, expires_at = first.serial_number, first.not_valid_after_utc.timestamp()
    except (ValueError, x509.InvalidVersion):
        return None
    try:
        subject = first.subject.rfc4514_string()
    except ValueError:
        subject = "a subject that cannot be read"
    return Expiry(key, file, subject, serial, expires_at)


def _holds_certificates(pem: bytes) -> bool:
    from cryptography import x509  # noqa: PLC0415

    try:
        return bool(x509.load_pem_x509_certificates(pem))
    except (ValueError, x509.InvalidVersion):
        return False


def _holds_key(pem: bytes) -> bool:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        return False
    return True
