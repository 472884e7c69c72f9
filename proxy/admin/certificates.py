"""TLS of the admin address: its own certificate, and the names in those of its callers."""

import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from proxy.admin.tokens import LONGEST_NAME, warn_if_others_read
from proxy.config.admin import AdminTls
from proxy.config.model import ConfigError
from proxy.files import reopenable

_KEY = "admin_access.tls"


def tls_context(tls: AdminTls) -> ssl.SSLContext:
    """What connections are made with, from the files as they are now.

    A caller may come without a certificate as far as TLS goes, so that probes can ask for health; who comes with one
    that `client_ca` has not signed is not let in.

    Raises:
        ConfigError: With every file that cannot be used, each with its key.
    """
    paths = {"certificate": tls.certificate, "key": tls.key, "client_ca": tls.client_ca}
    names: dict[str, str] = {}
    problems = []
    with ExitStack() as opened:
        for key, path in paths.items():
            try:
                names |= {key: opened.enter_context(reopenable(path))} if path else {}
            except OSError as error:
                problems.append(f"{_KEY}.{key}: {path}: cannot be read: {error.strerror}")
        if problems:
            raise ConfigError(problems)
        warn_if_others_read(tls.key, f"{_KEY}.key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_own(context, tls, names["certificate"], names["key"])
        if tls.client_ca is not None:
            _load_client_ca(context, tls.client_ca, names["client_ca"])
    return context


def common_name(certificate: Mapping[str, Any]) -> str | None:
    """The name of a caller by his certificate, as `getpeercert` gives it; None if that has not exactly one."""
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if len(names) != 1 or not 1 <= len(names[0]) <= LONGEST_NAME or not names[0].isprintable():
        return None
    return str(names[0])


def _load_own(context: ssl.SSLContext, tls: AdminTls, certificate: str, key: str) -> None:
    """With a password that is wrong, because without any OpenSSL would ask the terminal."""
    try:
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        what = f"{tls.certificate} and key {tls.key} are not a PEM certificate and its private key without a password"
        raise ConfigError([f"{_KEY}.certificate: {what} ({_reason(error)})"]) from None


def _load_client_ca(context: ssl.SSLContext, path: Path, opened: str) -> None:
    try:
        context.load_verify_locations(opened)
    except ssl.SSLError as error:
        raise ConfigError([f"{_KEY}.client_ca: {path}: is not a PEM certificate ({_reason(error)})"]) from None
    context.verify_mode = ssl.CERT_OPTIONAL


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or "cannot be loaded").lower().replace("_", " ")
