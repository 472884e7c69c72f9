"""Asks the admin address of a running proxy, as the options of a command say; errors name the remedy among them.

    link = AdminLink(options)
    link.get_json("/sluice/status")

Every call raises AdminLinkError where a plain client raises AdminError.
"""

import ssl
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

from adminrest.client import AdminClient, AdminCredentials, AdminError, RequestFailure, trusting
from protocol.endpoint import Endpoint, EndpointError, EndpointForm
from proxy.cli.options import AdminLinkError, AdminOptions, CommandLineError, DisconnectedError
from proxy.files import TokenFileError, read_token, reopenable

PATIENCE_S = 10.0
_ADMIN = EndpointForm(("http", "https"), "127.0.0.1:8080 or https://HOST:PORT")
_SERVER = "--admin must be the admin address of a running `sluice serve`"
_NO_SERVER = f"; {_SERVER}, with https:// if that has TLS"
_REMEDIES = {
    RequestFailure.DISCONNECTED: _NO_SERVER,
    RequestFailure.NO_ANSWER: _NO_SERVER,
    RequestFailure.UNTRUSTED: "; --ca FILE names who has signed it, --admin must be a name in it",
    RequestFailure.NO_TLS: "; http://HOST:PORT without --ca and --cert",
    RequestFailure.CLIENT_UNTRUSTED: " (--cert, --key)",
    RequestFailure.OVERHEARD: ": https://HOST:PORT, or --plain-http if nobody listens on the way",
}
_NOT_SLUICE = f"the answer is not Sluice's; {_SERVER}"


class AdminLink(AdminClient):
    """The client of one proxy's admin address.

    Args:
        options: Where it is, and what opens it.
        patience_s: For connecting, and for each part of an answer.
        most_bytes: Bytes of an answer, at most; None: as `AdminClient` has it.
        kept_header: A header of the first answer that is sent with every later request.

    Raises:
        AdminLinkError: If the options contradict each other, or a file cannot be used.
    """

    def __init__(
        self,
        options: AdminOptions,
        patience_s: float = PATIENCE_S,
        most_bytes: int | None = None,
        kept_header: str = "",
    ) -> None:
        self.address = options.admin
        """The admin address as it was given."""
        self._token_file = options.token_file
        endpoint = _endpoint(options)
        tls = _context(options) if endpoint.scheme == "https" else None
        try:
            token = read_token(options.token_file) if options.token_file else ""
        except TokenFileError as error:
            raise AdminLinkError(f"--token-file: {error}") from None
        access = AdminCredentials(token, tls, options.plain_http)
        super().__init__(
            str(endpoint),
            access,
            timeout_s=patience_s,
            most_redirects=0,
            most_bytes=most_bytes,
            kept_header=kept_header,
        )

    def failed(self, error: AdminError) -> AdminLinkError:
        """Return the error in the words of the command line."""
        if error.trouble is RequestFailure.DISCONNECTED:
            return DisconnectedError(self._text_of(error))
        status = None if error.reason is None else error.status  # other servers' 400 says nothing of the command line
        return AdminLinkError(self._text_of(error), status)

    def _text_of(self, error: AdminError) -> str:
        if error.trouble is RequestFailure.NO_JSON:
            return f"{self.address}: {_NOT_SLUICE}"
        if error.trouble is not RequestFailure.REFUSED:
            return f"{self.address}: {error.problem}{_REMEDIES.get(error.trouble, '')}"
        if error.reason is None:
            return f"{self.address}: HTTP {error.status}: {_NOT_SLUICE}"
        if error.status == HTTPStatus.UNAUTHORIZED and self._token_file is not None:
            return f"{self.address}: {error.reason} (--token-file {self._token_file})"
        if error.status == HTTPStatus.UNAUTHORIZED:
            return f"{self.address}: {error.reason}; --token-file FILE gives a token, --cert and --key a certificate"
        return f"{self.address}: {error.reason}" if error.status == HTTPStatus.FORBIDDEN else error.reason


def _endpoint(options: AdminOptions) -> Endpoint:
    """Return the admin address; its scheme is also `https` if files for TLS are given."""
    try:
        endpoint = _ADMIN.parse(options.admin)
    except EndpointError as error:
        problem = f"{error.problem}; a token goes into --token-file"
        raise CommandLineError(f"--admin: {options.admin[:200]!r}: {problem}") from None
    if not (options.ca or options.cert or options.key):
        return endpoint
    if options.admin.startswith("http://"):
        raise CommandLineError(f"--admin: {options.admin}: has no TLS; write https:// to use --ca, --cert, --key")
    return endpoint._replace(scheme="https")


def _context(options: AdminOptions) -> ssl.SSLContext:
    with ExitStack() as opened:
        ca = _opened(opened, "--ca", options.ca)
        cert = _opened(opened, "--cert", options.cert)
        key = _opened(opened, "--key", options.key)
        if key and not cert:
            raise CommandLineError(f"--key: {options.key}: needs its certificate: add --cert FILE")
        try:
            context = trusting(ca)
        except ssl.SSLError:
            raise AdminLinkError(f"--ca: {options.ca}: is not a PEM certificate") from None
        if cert:
            try:  # without a password OpenSSL would ask the terminal
                context.load_cert_chain(cert, key, password="")
            except (ssl.SSLError, ValueError):
                problem = "is not a PEM certificate with its private key (--key FILE) without a password"
                raise AdminLinkError(f"--cert: {options.cert}: {problem}") from None
        return context


def _opened(files: ExitStack, option: str, path: Path | None) -> str | None:
    try:
        return files.enter_context(reopenable(path)) if path else None
    except OSError as error:
        raise AdminLinkError(f"{option}: {path}: cannot be read: {error.strerror}") from None
