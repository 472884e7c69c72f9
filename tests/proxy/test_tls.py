"""The contexts of clients, brokers and callers of the admin: what their files may be, and what is said of others."""

import errno
import os
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import ValidationError
from structlog.testing import capture_logs

from adminrest.client import trusting
from protocol.endpoint import BROKERS
from proxy.admin.auth import Authenticator
from proxy.admin.refusals import RefusalLog
from proxy.config.model import Config, ConfigError
from proxy.config.sections import AdminAccess
from proxy.tls.certificates import Certificates, Expiry, ExpiryLog
from tests.proxy.certificates import Authority
from tests.proxy.odd_files import ODD
from tests.proxy.rereading import read_again

Files = Mapping[str, object]


def of_clients(files: Files) -> Certificates:
    more = {"client_auth": "required"} if "client_ca" in files else {}
    return Certificates(Config.model_validate({"listen": "pulsar+ssl://127.0.0.1:0", "tls": {**files, **more}}))


def of_brokers(files: Files) -> Certificates:
    named = {"ca" if key == "client_ca" else key: file for key, file in files.items()}
    return Certificates(Config.model_validate({"broker": "pulsar+ssl://b:6651", "broker_tls": named}))


def of_admin(files: Files) -> Authenticator:
    return Authenticator(AdminAccess.model_validate({"tls": files}), RefusalLog(Counter(), lambda: 0))


SECTIONS: Mapping[str, tuple[Any, str]] = {
    "tls": (of_clients, "client_ca"),
    "broker_tls": (of_brokers, "ca"),
    "admin_access.tls": (of_admin, "client_ca"),
}
"""What reads each section, and the key of its authorities."""


@pytest.fixture(params=SECTIONS)
def section(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def problems(section: str, files: Files) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        SECTIONS[section][0](files)
    return refused.value.problems


def test_every_file_that_cannot_be_read_is_told_with_its_key(section: str, tmp_path: Path) -> None:
    files = {key: tmp_path / key for key in ("certificate", "key", "client_ca")}
    keys = ("certificate", "key", SECTIONS[section][1])
    assert problems(section, files) == [
        f"{section}.{key}: {path}: cannot be read: No such file or directory; make this file, or name another"
        for key, path in zip(keys, files.values(), strict=True)
    ]


@pytest.mark.parametrize("host", ["b", "b.", "B."])
def test_a_broker_is_asked_for_the_name_of_its_certificate(host: str) -> None:
    """Certificates have no dot at the end of a name."""
    assert of_brokers({}).server_name(BROKERS.parse(f"pulsar+ssl://{host}:6651")) == "b"


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("key", ["certificate", "key", "client_ca"])
def test_what_is_no_regular_file_is_told_and_not_waited_for(
    section: str, authority: Authority, tmp_path: Path, kind: str, key: str
) -> None:
    make, reason = ODD[kind]
    path = make(tmp_path / "file")
    (problem,) = problems(section, {**authority.server(), key: path})
    config_key = SECTIONS[section][1] if key == "client_ca" else key
    assert problem.startswith(f"{section}.{config_key}: {path}: cannot be read: ")
    assert reason in problem


def test_a_key_of_another_certificate_is_told(section: str, authority: Authority) -> None:
    files = authority.server()
    _, key = authority.sign("somebody")
    (problem,) = problems(section, {**files, "key": key})
    assert problem == (
        f"{section}.key: {key}: is not the key of the certificate in {files['certificate']}; name the two of one pair"
    )


def test_a_key_with_a_password_is_told_and_nobody_is_asked_for_it(
    section: str, authority: Authority, tmp_path: Path
) -> None:
    files, locked = authority.server(), tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", files["key"], "-aes256", "-passout", "pass:abcd", "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True)
    (problem,) = problems(section, {**files, "key": locked})
    assert problem.startswith(f"{section}.key: {locked}: holds no private key in PEM without a password")


@pytest.mark.parametrize("key", ["certificate", "key", "client_ca"])
def test_what_is_no_pem_is_told_with_its_key(section: str, authority: Authority, tmp_path: Path, key: str) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing\n")
    (problem,) = problems(section, {**authority.server(), key: nothing})
    config_key = SECTIONS[section][1] if key == "client_ca" else key
    kind = "private key" if key == "key" else "certificate"
    assert problem.startswith(f"{section}.{config_key}: {nothing}: holds no {kind} in PEM")


def test_a_key_that_others_can_read_gets_a_warning(section: str, authority: Authority, tmp_path: Path) -> None:
    files = authority.server()
    key = tmp_path / "open.key"
    key.write_bytes(Path(files["key"]).read_bytes())
    key.chmod(0o644)
    with capture_logs() as logs:
        SECTIONS[section][0]({**files, "key": key})
    assert [(line["key"], line["file"]) for line in logs] == [(f"{section}.key", str(key))]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"broker_tls": {"verify_hostname": False}},
            r"127\.0\.0\.1:6651 is reached without TLS: write broker as pulsar",
        ),
        ({"tls": {"certificate": "c", "key": "k"}}, "no address in listen has TLS, .*: write one as pulsar.ssl://HOST"),
        ({"listen": "pulsar+ssl://127.0.0.1:0"}, "in listen needs a certificate: set tls.certificate and tls.key"),
    ],
)
def test_a_section_without_the_address_that_it_is_for_is_refused_and_the_reverse(
    settings: dict[str, Any], problem: str
) -> None:
    """Whoever writes the section believes that there is TLS."""
    with pytest.raises(ValidationError, match=problem):
        Config.model_validate(settings)


def test_ciphers_that_there_are_not_are_told_with_their_key(authority: Authority) -> None:
    assert problems("tls", {**authority.server(), "ciphers": "NONE-OF-THESE"}) == [
        "tls.ciphers: 'NONE-OF-THESE': names no cipher that this OpenSSL has; `openssl ciphers -tls1_2` lists them"
    ]


def test_context_has_the_configured_versions_and_certificates(
    authority: Authority,
) -> None:
    more = {"min_version": "TLSv1.3", "client_ca": authority.certificate, "client_auth": "optional"}
    ciphers = {"ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"}
    tls = {**authority.server(), **more, **ciphers}
    context = Certificates(Config.model_validate({"listen": "pulsar+ssl://127.0.0.1:0", "tls": tls})).listener()
    assert (context.minimum_version, context.verify_mode) == (ssl.TLSVersion.TLSv1_3, ssl.CERT_OPTIONAL)
    of_1_2 = {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert of_1_2 == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    plain = of_clients(authority.server()).listener()
    assert (plain.minimum_version, plain.verify_mode) == (ssl.TLSVersion.TLSv1_2, ssl.CERT_NONE)
    assert plain.options & ssl.OP_NO_RENEGOTIATION


def test_brokers_are_verified_with_their_name_unless_told_otherwise(authority: Authority) -> None:
    context = of_brokers({"client_ca": authority.certificate}).broker()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [each["serialNumber"] for each in context.get_ca_certs()] != []
    lax = Config.model_validate({"broker": "pulsar+ssl://b:1", "broker_tls": {"verify_hostname": False}})
    context = Certificates(lax).broker()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_the_keys_of_connections_are_never_written_to_a_file(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own default context does so."""
    kept = tmp_path / "keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(kept))
    files = {**authority.server(), "client_ca": authority.certificate}
    admin = of_admin(files).context()
    assert admin is not None
    contexts = [of_clients(files).listener(), of_brokers(files).broker(), of_brokers({}).broker(), admin]
    contexts += [trusting(), trusting(str(authority.certificate))]
    assert [context.keylog_filename for context in contexts] == [None] * 6
    assert not kept.exists()


def swap(files: Mapping[str, str], certificate: Path, key: Path) -> None:
    Path(files["certificate"]).write_bytes(certificate.read_bytes())
    Path(files["key"]).write_bytes(key.read_bytes())


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Mapping[str, str]:
    """Of a certificate and key that a test may change."""
    made = authority.server()
    copies = {key: str(tmp_path / key) for key in made}
    swap(copies, Path(made["certificate"]), Path(made["key"]))
    return copies


@pytest.mark.parametrize("section", ["tls", "broker_tls"])
def test_what_is_read_again_is_in_force_once_it_is_taken(
    section: str, authority: Authority, files: Mapping[str, str]
) -> None:
    read = SECTIONS[section][0](files)
    context = read.listener if section == "tls" else read.broker
    before, (expiry,) = context(), read.expiries()
    swap(files, *authority.sign("renewed"))
    take = read_again(read)
    assert context() is before
    take()
    assert context() is not before
    (now,) = read.expiries()
    assert (now.key, now.subject) == (f"{section}.certificate", "CN=renewed")
    assert now.serial != expiry.serial


@pytest.mark.parametrize("section", ["tls", "broker_tls"])
@pytest.mark.parametrize("broken", ["certificate", "key"])
def test_a_file_that_is_broken_when_it_is_read_again_changes_nothing(
    section: str, files: Mapping[str, str], broken: str
) -> None:
    read = SECTIONS[section][0](files)
    context = read.listener if section == "tls" else read.broker
    before = context()
    Path(files[broken]).write_text("half of it")
    with pytest.raises(ConfigError, match=rf"{section}\.{broken}: .* holds no "):
        read_again(read)
    assert context() is before


TORN = "-----BEGIN CERTIFICATE-----\nMIIB\n"


def broken_bundle(folder: Path, *authorities: Authority) -> bytes:
    """Return a bundle with each authority, and between them a certificate that lost its end."""
    torn = TORN.encode()
    return torn + torn.join(authority.certificate.read_bytes() for authority in authorities)


class Renewed:
    """A section whose files a test changes, and the certificates and authorities that are in force."""

    def __init__(self, section: str, authority: Authority, folder: Path) -> None:
        made = authority.server()
        self.files = {key: folder / f"own.{key}" for key in ("certificate", "key", "client_ca")}
        self.section, self.authority, self.folder = section, authority, folder
        swap({key: str(file) for key, file in self.files.items()}, Path(made["certificate"]), Path(made["key"]))
        self.files["client_ca"].write_bytes(authority.certificate.read_bytes())
        self.owner = SECTIONS[section][0]({key: str(file) for key, file in self.files.items()})
        self.ca_key = f"{section}.{SECTIONS[section][1]}"

    def renew(self) -> None:
        swap({key: str(file) for key, file in self.files.items()}, *self.authority.sign("renewed"))

    def reload(self) -> dict[str, str]:
        """Read all files again as a reload does; return the problems by the reader's key."""
        problems = {}
        for reader in self.owner.readers():
            try:
                take = reader.read()
            except ConfigError as error:
                take, problems[reader.key] = error.take, str(error)
            if take is not None:
                take()
        return problems

    @property
    def authorities(self) -> list[str]:
        """The names of the authorities in force."""
        name = {"tls": "listener", "broker_tls": "broker", "admin_access.tls": "context"}[self.section]
        context = getattr(self.owner, name)()
        assert context.verify_mode != ssl.CERT_NONE
        return sorted(dict(part for (part,) in each["subject"])["commonName"] for each in context.get_ca_certs())

    @property
    def subject(self) -> str:
        (subject,) = [each.subject for each in self.owner.expiries() if each.key == f"{self.section}.certificate"]
        return str(subject)


@pytest.fixture
def renewed(section: str, authority: Authority, tmp_path: Path) -> Renewed:
    return Renewed(section, authority, tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"nothing", TORN.encode(), TORN.replace("CERT", "OTHER ").encode()])
def test_bad_authorities_hold_no_renewed_certificate_back(renewed: Renewed, content: bytes | None) -> None:
    before = renewed.authorities
    bundle = renewed.files["client_ca"]
    renewed.renew()
    if content is None:
        bundle.unlink()
    else:
        bundle.write_bytes(content)
    assert list(renewed.reload()) == [renewed.ca_key]
    assert (renewed.subject, renewed.authorities) == ("CN=renewed", before)


def refused_by(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Make a handshake; return the reason for which a side does not verify the other one, or an empty text."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""


@pytest.mark.parametrize("section", ["tls", "broker_tls"])
def test_peer_of_an_authority_that_is_no_more_is_refused(renewed: Renewed, tmp_path: Path) -> None:
    """It was taken out of a bundle of which the rest can be read in part."""
    pair = renewed.authority.server()
    if renewed.section == "tls":
        peer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        peer.load_verify_locations(renewed.authority.certificate)
    else:
        peer = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    peer.load_cert_chain(pair["certificate"], pair["key"])

    def refused() -> str:
        if renewed.section == "tls":
            return refused_by(peer, renewed.owner.listener())
        return refused_by(renewed.owner.broker(), peer)

    assert refused() == ""
    renewed.files["client_ca"].write_bytes(broken_bundle(tmp_path, Authority(tmp_path / "next", "next")))
    renewed.reload()
    assert refused() != ""


def test_bad_certificate_holds_no_new_authorities_back(renewed: Renewed, tmp_path: Path) -> None:
    other = Authority(tmp_path / "next", "next")
    before = renewed.subject
    renewed.files["certificate"].write_text("half of it")
    renewed.files["client_ca"].write_bytes(other.certificate.read_bytes())
    problems = renewed.reload()
    assert list(problems) == [renewed.section]
    assert (renewed.subject, renewed.authorities) == (before, ["next"])
    renewed.renew()
    assert renewed.reload() == {}
    assert (renewed.subject, renewed.authorities) == ("CN=renewed", ["next"])


def test_of_a_torn_bundle_only_readable_authorities_hold(renewed: Renewed, tmp_path: Path) -> None:
    """The authority that was in force before may be the one that is to be trusted no more."""
    other = Authority(tmp_path / "next", "next")
    renewed.files["client_ca"].write_bytes(broken_bundle(tmp_path, other))
    problems = renewed.reload()
    assert list(problems) == [renewed.ca_key]
    assert "has a certificate that cannot be read: take it out" in problems[renewed.ca_key]
    assert problems[renewed.ca_key].endswith("its others alone are in force")
    assert renewed.authorities == ["next"]


def test_no_start_with_a_torn_bundle(section: str, authority: Authority, tmp_path: Path) -> None:
    """An authority that was asked for would be missing."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(broken_bundle(tmp_path, authority, authority))
    (problem,) = problems(section, {**authority.server(), "client_ca": bundle})
    assert "has 2 certificates that cannot be read: take them out" in problem


@pytest.mark.parametrize("first", [0, 1])
def test_files_that_are_read_at_one_time_are_all_in_force(renewed: Renewed, tmp_path: Path, first: int) -> None:
    other = Authority(tmp_path / "next", "next")
    renewed.renew()
    renewed.files["client_ca"].write_bytes(other.certificate.read_bytes())
    of_tls = [each for each in renewed.owner.readers() if each.key.startswith(renewed.section)]
    takes = [each.read() for each in of_tls]
    for take in (takes[first], takes[1 - first]):
        take()
    assert (renewed.subject, renewed.authorities) == ("CN=renewed", ["next"])


def test_problems_of_both_sections_are_told_at_once(authority: Authority, tmp_path: Path) -> None:
    settings = {
        "listen": "pulsar+ssl://127.0.0.1:0",
        "tls": {**authority.server(), "key": str(tmp_path / "gone.key")},
        "broker": "pulsar+ssl://b:1",
        "broker_tls": {"ca": str(tmp_path / "gone.pem")},
    }
    with pytest.raises(ConfigError) as refused:
        Certificates(Config.model_validate(settings))
    assert [problem.partition(":")[0] for problem in refused.value.problems] == ["tls.key", "broker_tls.ca"]


DAY = 86_400


class Calendar:
    """Days that pass by hand, and certificates by their key and the day on which each expires."""

    def __init__(self, **days: float) -> None:
        self.today = 0.0
        self.days = days
        self.log = ExpiryLog(self._expiries, lambda: self.today * DAY)

    def _expiries(self) -> list[Expiry]:
        return [Expiry(key, Path("f.pem"), "CN=c", 1, day * DAY) for key, day in self.days.items()]

    def told(self) -> list[tuple[str, str]]:
        with capture_logs() as lines:
            self.log.report()
        return [(line["key"], line["log_level"]) for line in lines]


def test_a_certificate_is_told_of_from_thirty_days_before_it_expires_once_a_day() -> None:
    days = Calendar(soon=40, late=400)
    assert days.told() == []
    days.today = 10
    assert days.told() == [("soon", "warning")]
    days.today = 10.5
    assert days.told() == []
    days.today = 11
    assert days.told() == [("soon", "warning")]
    days.today = 40
    assert days.told() == [("soon", "error")]
    assert days.told() == []


def test_new_certificate_that_expires_soon_is_logged_at_once() -> None:
    days = Calendar(own=20)
    assert days.told() == [("own", "warning")]
    days.days["own"] = 25
    assert days.told() == [("own", "warning")]
    days.days["own"] = 500
    assert days.told() == []


async def test_the_timer_of_a_day_is_there_where_there_are_certificates_and_ends() -> None:
    days, without = Calendar(own=500), Calendar()
    days.log.start()
    without.log.start()
    assert days.log._timer is not None
    assert without.log._timer is None
    days.log.stop()
    assert days.log._timer.cancelled()


def test_of_several_certificates_in_a_file_the_first_that_expires_counts(tmp_path: Path) -> None:
    ca, ends = trustme.CA(), [datetime(2031, 5, day, tzinfo=UTC) for day in (3, 1, 2)]
    leaves = [ca.issue_cert(f"n{end.day}.example", not_after=end) for end in ends]
    chain = tmp_path / "chain.pem"
    chain.write_bytes(b"".join(leaf.cert_chain_pems[0].bytes() for leaf in leaves))
    (expiry,) = of_brokers({"client_ca": chain}).expiries()
    assert (expiry.key, expiry.at) == ("broker_tls.ca", datetime(2031, 5, 1, tzinfo=UTC).timestamp())


def test_without_tls_no_library_of_certificates_is_loaded() -> None:
    """It takes 8 MB."""
    program = (
        "import sys; from proxy.config.model import Config; from proxy.tls.certificates import Certificates; "
        "assert not Certificates(Config()).expiries(); sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class _System:
    """Gives files in memory as a Linux of some age and settings does."""

    def __init__(self, known: int, *, executable: bool = True, has_room: bool = True) -> None:
        self.known, self.executable, self.has_room = known, executable, has_room
        self.make = os.memfd_create
        """The machine's own; its flags are those that it knows."""

    def __call__(self, name: str, flags: int = os.MFD_CLOEXEC) -> int:
        if flags & ~self.known:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if not flags & _NOEXEC_SEAL and not self.executable:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        if not self.has_room:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.make(name, flags & os.MFD_CLOEXEC)


_NOEXEC_SEAL = 8
_ALL_FLAGS = os.MFD_CLOEXEC | _NOEXEC_SEAL


@pytest.mark.parametrize("system", [_System(_ALL_FLAGS, executable=False), _System(os.MFD_CLOEXEC)])
def test_keys_are_loaded_where_no_file_may_be_executed(
    section: str, authority: Authority, monkeypatch: pytest.MonkeyPatch, system: _System
) -> None:
    """As sysctl vm.memfd_noexec=2 has it; and on a Linux that is older than that."""
    monkeypatch.setattr("os.memfd_create", system)
    SECTIONS[section][0]({**authority.server(), "client_ca": str(authority.certificate)})


def test_system_without_files_in_memory_is_told_with_the_section(
    section: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.memfd_create", _System(_ALL_FLAGS, has_room=False))
    for problem in problems(section, {**authority.server(), "client_ca": str(authority.certificate)}):
        assert problem.startswith(f"{section}: memfd_create: Too many open files; let this process")


_VERSION_3, _VERSION_4 = bytes([0xA0, 3, 2, 1, 2]), bytes([0xA0, 3, 2, 1, 3])
_IN_UTF8, _IN_LATIN_1 = b"\x0c\x0dCertificacion", b"\x14\x0dCertificaci\xf3n"


@pytest.mark.parametrize(
    ("was", "is_now", "subjects"),
    [(_IN_UTF8, _IN_LATIN_1, ["a subject that cannot be read"]), (_VERSION_3, _VERSION_4, [])],
)
def test_authority_that_only_openssl_reads_is_taken(
    tmp_path: Path, was: bytes, is_now: bytes, subjects: list[str]
) -> None:
    """Old authorities have names in Latin-1, or odd versions: what is said of their end must stop nothing."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Certificacion")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(now).not_valid_after(now + timedelta(days=900))
    signed = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    der = signed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER).replace(was, is_now)
    bundle = tmp_path / "ca.pem"
    bundle.write_text(ssl.DER_cert_to_PEM_cert(der))
    assert [each.subject for each in of_brokers({"client_ca": bundle}).expiries()] == subjects
