"""Certificates of tests, made by trustme, and what clients make of them."""

import ssl
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import trustme

TO_BROKER = "pulsar://127.0.0.1:6651"


@dataclass
class Authorities:
    """An authority for the certificate of Sluice, one for those of clients, and files of both.

    Args:
        folder: Where the files are made.
    """

    folder: Path
    front: trustme.CA = field(default_factory=trustme.CA)
    clients: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.renew()
        self.clients.cert_pem.write_to_path(self.folder / "clients.pem")

    def renew(self, *names: str) -> None:
        """Make a new certificate for Sluice."""
        leaf = self.front.issue_cert(*(names or ("localhost", "127.0.0.1")))
        leaf.private_key_pem.write_to_path(self.folder / "front.key")
        (self.folder / "front.key").chmod(0o600)
        chain = b"".join(part.bytes() for part in leaf.cert_chain_pems)
        (self.folder / "front.pem").write_bytes(chain)

    def tls(self, **more: Any) -> dict[str, Any]:
        """The section `tls` of a configuration."""
        files = {"certificate": str(self.folder / "front.pem"), "key": str(self.folder / "front.key")}
        if more.get("client_auth", "none") != "none":
            files["client_ca"] = str(self.folder / "clients.pem")
        return files | more

    def settings(self, **more: Any) -> dict[str, Any]:
        """A configuration with a plain address and one with TLS."""
        return {"listen": ["pulsar://127.0.0.1:0", "pulsar+ssl://127.0.0.1:0"], "tls": self.tls(**more)}

    def client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        """What a client has that trusts Sluice, and that shows this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.front.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        return context

    def client_certificate(self, name: str, **more: Any) -> trustme.LeafCert:
        """A certificate with this common name."""
        return self.clients.issue_cert("client.example", common_name=name, **more)


@cache
def stranger() -> trustme.CA:
    """An authority that nobody trusts."""
    return trustme.CA()
