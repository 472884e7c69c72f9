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
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import structlog

from protocol.endpoint import TLS, Endpoint
from proxy.config.model import Config, ConfigError, take_all
from proxy.config.sections import AdminTls, BrokerTls, ListenerTls
from proxy.files import FileReader, reopenable, unread, warn_if_others_read

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
    """

    def __init__(self, context: ssl.SSLContext, certificates: Mapping[tuple[str, Path], bytes]) -> None:
        self.context = context
        self._certificates = certificates

    @cached_property
    def expiries(self) -> tuple[Expiry, ...]:
        """The expiries of the certificates, one for each file; made on demand, as few processes ask."""
        of_files = (_expiry(key, file, pem) for (key, file), pem in self._certificates.items())
        return tuple(expiry for expiry in of_files if expiry is not None)


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
        self._tls = config.tls
        self._broker_tls = config.broker_tls if config.broker[0].scheme == TLS else None
        self.shows_certificate = self._broker_tls is not None and self._broker_tls.certificate is not None
        self._listener: LoadedContext | None = None
        self._broker: LoadedContext | None = None
        take_all(self.readers())

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

    def warn(self) -> None:
        """Warn of keys that others can read."""
        for key, section in (("tls.key", self._tls), ("broker_tls.key", self._broker_tls)):
            with suppress(OSError):  # it has just been there
                if section is not None and section.key is not None:
                    warn_if_others_read(section.key, key)

    def expiries(self) -> tuple[Expiry, ...]:
        """Return the expiries of the certificates in force, one for each file."""
        loaded = (each for each in (self._listener, self._broker) if each is not None)
        return tuple(expiry for each in loaded for expiry in each.expiries)

    def readers(self) -> tuple[FileReader, ...]:
        """Return what reads the files again: those for clients and those for brokers, each for the next handshake."""
        of_listener = (FileReader("tls", self._read_listener),) if self._tls else ()
        of_broker = (FileReader("broker_tls", self._read_broker),) if self._broker_tls else ()
        return *of_listener, *of_broker

    def _read_listener(self) -> Callable[[], None]:
        assert self._tls is not None, "readers() needs the section"
        context = _listener(self._tls)

        def take() -> None:
            self._listener = context

        return take

    def _read_broker(self) -> Callable[[], None]:
        assert self._broker_tls is not None, "readers() needs the section"
        context = _broker(self._broker_tls)

        def take() -> None:
            self._broker = context

        return take


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


def _listener(tls: ListenerTls) -> LoadedContext:
    with _opened("tls", certificate=tls.certificate, key=tls.key, client_ca=tls.client_ca) as files:
        context = _server_context(files, tls.min_version)
        context.verify_mode = _CLIENT_AUTH[tls.asks_clients]
        if tls.ciphers is not None:
            try:
                context.set_ciphers(tls.ciphers)
            except ssl.SSLError:
                remedy = "names no cipher that this OpenSSL has; `openssl ciphers -tls1_2` lists them"
                raise ConfigError([f"tls.ciphers: {tls.ciphers!r}: {remedy}"]) from None
        return files.loaded(context)


def admin_context(tls: AdminTls) -> LoadedContext:
    """Make the context of the admin's new connections from the files as they are now.

    TLS lets callers in without a certificate, so that probes can ask for health. It refuses a certificate that
    `client_ca` has not signed.

    Raises:
        ConfigError: With every file that cannot be used, each with its key.
    """
    with _opened("admin_access.tls", certificate=tls.certificate, key=tls.key, client_ca=tls.client_ca) as files:
        context = _server_context(files, "TLSv1.2")
        if tls.client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
        return files.loaded(context)


def _server_context(files: "_Files", min_version: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION  # each costs a handshake, and none is counted
    files.load_own(context)
    files.load_authorities(context, "client_ca")
    return context


def _broker(tls: BrokerTls) -> LoadedContext:
    with _opened("broker_tls", certificate=tls.certificate, key=tls.key, ca=tls.ca) as files:
        context = _client_context(files)
        context.check_hostname = tls.verify_hostname
        files.load_own(context)
        return files.loaded(context)


def forward_context(ca: Path | None, section: str = "admin_forward") -> LoadedContext:
    """Make the context of new HTTPS connections that Sluice opens, to brokers' admin addresses or a collector.

    Raises:
        ConfigError: If the file cannot be used; it names the section of the configuration.
    """
    with _opened(section, ca=ca) as files:
        return files.loaded(_client_context(files))


def _client_context(files: "_Files") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not files.load_authorities(context, "ca"):
        context.load_default_certs()
    return context


class _Files:
    """The files of one section, opened together, so that each is the same file for all who read it.

    Args:
        section: The section's key.
        files: The names of the files by key, and the path by which each can be read again.
    """

    def __init__(self, section: str, files: Mapping[str, tuple[Path, str]]) -> None:
        self._section = section
        self._files = files

    def load_own(self, context: ssl.SSLContext) -> None:
        """Load certificate and key, if there are any.

        Raises:
            ConfigError: If they cannot be used.
        """
        if "certificate" not in self._files:
            return
        _, certificate = self._files["certificate"]
        _, key = self._files["key"]
        try:
            context.load_cert_chain(certificate, key, password="")  # else OpenSSL would ask for one at the terminal
        except (ssl.SSLError, ValueError) as error:
            raise self._wrong_own(error) from None

    def load_authorities(self, context: ssl.SSLContext, key: str) -> bool:
        """Load the authorities of a key, if it is given; return whether it is.

        Raises:
            ConfigError: If they cannot be used.
        """
        if key not in self._files:
            return False
        _, opened = self._files[key]
        try:
            context.load_verify_locations(opened)
        except ssl.SSLError as error:
            has_some = b"BEGIN CERTIFICATE" in _content(opened)
            problem = (
                "has a certificate that cannot be read: take it out" if has_some else "holds no certificate in PEM"
            )
            raise self._problem(key, f"{problem} ({_reason(error)})") from None
        return True

    def loaded(self, context: ssl.SSLContext) -> LoadedContext:
        """Return the context, with the certificates that it was made of."""
        certificates = {key: opened_file for key, opened_file in self._files.items() if key != "key"}
        return LoadedContext(
            context,
            {(f"{self._section}.{key}", path): _content(opened) for key, (path, opened) in certificates.items()},
        )

    def _wrong_own(self, error: Exception) -> ConfigError:
        certificate, opened = self._files["certificate"]
        _, opened_key = self._files["key"]
        reason = _reason(error)
        if not _holds_certificates(_content(opened)):
            return self._problem("certificate", f"holds no certificate in PEM ({reason})")
        if reason.endswith("mismatch"):
            return self._problem("key", f"is not the key of the certificate in {certificate}; name the two of one pair")
        if not _holds_key(_content(opened_key)):
            return self._problem("key", f"holds no private key in PEM without a password ({reason})")
        return self._problem("certificate", f"cannot be used: {reason}")

    def _problem(self, key: str, problem: str) -> ConfigError:
        path, _ = self._files[key]
        return ConfigError([f"{self._section}.{key}: {path}: {problem}"])


@contextmanager
def _opened(section: str, **paths: Path | None) -> Iterator[_Files]:
    """The files that are given.

    Raises:
        ConfigError: With every one that cannot be read.
    """
    files: dict[str, tuple[Path, str]] = {}
    problems = []
    with ExitStack() as stack:
        for key, path in paths.items():
            try:
                files |= {key: (path, stack.enter_context(reopenable(path)))} if path else {}
            except OSError as error:
                problems.append(f"{section}.{key}: {path}: {unread(error)}")
        if problems:
            raise ConfigError(problems)
        yield _Files(section, files)


def _content(opened: str) -> bytes:
    return Path(opened).read_bytes()


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
    except ValueError:
        return None
    expires_at = first.not_valid_after_utc.timestamp()
    return Expiry(key, file, first.subject.rfc4514_string(), first.serial_number, expires_at)


def _holds_certificates(pem: bytes) -> bool:
    from cryptography import x509  # noqa: PLC0415

    try:
        return bool(x509.load_pem_x509_certificates(pem))
    except ValueError:
        return False


def _holds_key(pem: bytes) -> bool:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        return False
    return True
