"""Recognize a peer that speaks another protocol (TLS, HTTP, PROXY), so that the log can say what to change."""

from protocol.errors import ForeignProtocol

_HTTP_VERBS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_PROXY_V2 = b"\r\n\r\n"


def foreign_protocol(first_bytes: bytes) -> ForeignProtocol | None:
    """Return the error for the protocol that `first_bytes` greet in, or None if they match none that is known.

    Never mistakes a Pulsar client: each of these greetings, read as a frame's length, is over 200 MB.
    """
    if first_bytes[:1] == b"\x16" and first_bytes[1:2] == b"\x03":
        return ForeignProtocol(
            "tls_hello", "a TLS client on a plain port: use pulsar://, not pulsar+ssl://, for this address"
        )
    if first_bytes[:4] in _HTTP_VERBS:
        return ForeignProtocol(
            "http_request", "an HTTP request on the Pulsar port: admin and metrics are on the admin address"
        )
    if first_bytes[:6] == b"PROXY " or first_bytes[:4] == _PROXY_V2:
        return ForeignProtocol(
            "proxy_protocol",
            "a PROXY protocol header: set mode and from of proxy_protocol, or switch it off at the load balancer",
        )
    return None
