"""Certificates made by the openssl command, for tests of TLS."""

import shutil
import subprocess
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
NAMED = "subjectAltName=DNS:localhost,IP:127.0.0.1\n"


class Authority:
    """Signs certificates, each made once; all of its files are in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl command here: install openssl")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl("req", "-x509", *_KEY, "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate)

    def sign(self, name: str, subject: str | None = None, extensions: str = "") -> tuple[Path, Path]:
        """A certificate and its key; the common name is `name`, unless there is another subject."""
        certificate, key, request = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        if certificate.exists():
            return certificate, key
        more = self.folder / f"{name}.ext"
        more.write_text(extensions)
        _openssl("req", *_KEY, "-subj", subject or f"/CN={name}", "-keyout", key, "-out", request)
        signing = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-extfile", more)
        _openssl("x509", "-req", "-in", request, *signing, "-out", certificate)
        return certificate, key

    def server(self) -> dict[str, str]:
        """The keys `certificate` and `key` of `admin_access.tls`."""
        certificate, key = self.sign("server", "/CN=localhost", NAMED)
        return {"certificate": str(certificate), "key": str(key)}


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
