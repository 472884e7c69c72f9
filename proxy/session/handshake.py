"""The handshake: a client's CONNECT (its version, its role, the broker it wants) and a broker's CONNECTED.

Clients of one application send the same CONNECT, byte for byte, and so do brokers of one cluster their CONNECTED. When
thousands come at once, bytes that were just parsed are not parsed again (`ParseCache`).
"""

import base64
import binascii
from collections.abc import Callable
from hmac import compare_digest
from typing import Generic, TypeVar

import msgspec

from protocol.commands import SIZES, body_of, command_in, decode, encode, split, text, whole_body
from protocol.endpoint import BROKERS, Endpoint, EndpointError
from protocol.frames import FrameTooLarge, MalformedFrame, NotConnect, ProtocolError, foreign_protocol, max_frame_size
from protocol.pulsar_pb2 import AuthenticationError, BaseCommand, CommandConnect, CommandConnected
from proxy import typed_json
from proxy.identity.evidence import Credentials, is_role

T = TypeVar("T")

MOST_KNOWN, LONGEST_KNOWN = 64, 2048
"""Most frames that are cached, and most bytes of each: a CONNECT with a token has some 500. So a token stays in memory
until 64 other clients have come; that of a connected client is there anyway."""

_MOST_AUTH_DATA = 64 * 1024
_NO_LETTERS = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
"""Bytes that base64url does not use; decoders pass over them in a token."""


class ParseCache(Generic[T]):
    """A cache of parse results, by the bytes parsed: the most recently used ones.

    Args:
        read: Parses bytes. If it returns None or raises, nothing is remembered.
    """

    def __init__(self, read: Callable[[bytes], T | None]) -> None:
        self._read = read
        self._results: dict[bytes, T] = {}
        """In order of use, the least recently used first."""
        self._last_data = b""
        self._last: T | None = None

    def find(self, data: bytes | bytearray) -> T | None:
        """Return the cached result for these bytes, or None; bytes longer than LONGEST_KNOWN are not looked up."""
        if len(data) > LONGEST_KNOWN:
            return None
        if compare_digest(data, self._last_data):  # its time does not show how much of a token was right
            return self._last
        key = bytes(data)
        result = self._results.pop(key, None)
        if result is not None:
            self._remember(key, result)
        return result

    def read(self, data: bytes) -> T | None:
        """Return the result for these bytes, from the cache or else parsed now."""
        result = self.find(data)
        if result is not None:
            return result
        result = self._read(data)
        if result is not None and len(data) <= LONGEST_KNOWN:
            if len(self._results) >= MOST_KNOWN:
                del self._results[next(iter(self._results))]
            self._remember(data, result)
        return result

    def _remember(self, data: bytes, result: T) -> None:
        self._results[data] = result
        self._last_data, self._last = data, result


class _Claims(msgspec.Struct):
    """The claim of a token that Pulsar takes as the role by default (tokenAuthClaim)."""

    sub: str = ""


def role_of(auth_method: str, auth_data: bytes) -> str:
    """Return the role in which a client connects, read from its CONNECT.

    The proxy verifies nothing: it reads what the client claims, and the broker, which gets the same bytes, checks the
    signature or password. A role counts because the broker answered CONNECTED; where brokers do not authenticate, it is
    no more than a claim. The broker lets no client change its role while connected (AUTH_RESPONSE).

    The subject of a `token` (a JWT), or the user of `basic`; empty for other methods and for what cannot be read.

    Source: org.apache.pulsar.broker.authentication.{AuthenticationProviderToken, AuthenticationProviderBasic}
    """
    if len(auth_data) > _MOST_AUTH_DATA:
        return ""
    role = ""
    if auth_method == "token":
        role = _subject(auth_data)
    elif auth_method == "basic":
        role = auth_data.partition(b":")[0].decode(errors="replace")
    return role if is_role(role) else ""


def _subject(token: bytes) -> str:
    """Return the subject of a token, as a broker that accepts the token reads it; an invalid token may also have one.

    A broker's decoder passes over blanks around a part of the token, over line ends in it, and over its padding. So
    characters outside the alphabet are left out here. A token that this makes another one has a wrong signature.

    Source: io.jsonwebtoken.impl.DefaultJwtParser (Strings.clean) and io.jsonwebtoken.io.Base64.decodeFast (0.11)
    """
    parts = token.split(b".")
    if len(parts) != 3:
        return ""
    letters = parts[1].translate(None, _NO_LETTERS)
    try:
        claims = base64.urlsafe_b64decode(letters + b"=" * (-len(letters) % 4))
        return typed_json.decode(claims, _Claims).sub
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


MOST_SAID = 512
"""Most characters of a client's version and role that are kept: each line of the access log about its streams has
them."""
MOST_GREETING = 256 * 1024
"""Most bytes of a CONNECT: four times the largest ticket of Kerberos. Any client may send one."""


_NONE_SHOWN = Credentials("", b"")


class Greeting:
    """A client's CONNECT, read. Clients that send the same bytes share one.

    Args:
        target: The broker that a data connection wants; None on a lookup connection, or with a refusal.
        refusal: Why the broker that it names cannot be reached; else empty.
        client_version: As the client names itself.
        client_role: The role that the client claims, as far as it can be read; the broker verifies it.
        frame: The CONNECT for the broker: the client's, encoded again without `proxy_to_broker_url`.
        size: Bytes of the client's own.
        shown: The client's credentials: auth method and data.
        is_for_others: Whether it speaks for a client of its own, as a proxy does (`original_principal`).
        can_refresh: Whether it answers AUTH_CHALLENGE while it is connected.
        protocol_version: The newest version of the protocol that it speaks.
    """

    __slots__ = (
        "can_refresh",
        "client_role",
        "client_version",
        "frame",
        "is_for_others",
        "protocol_version",
        "refusal",
        "shown",
        "size",
        "target",
    )

    def __init__(  # noqa: PLR0913 - what its Args say
        self,
        target: Endpoint | None,
        refusal: str,
        client_version: str,
        client_role: str,
        frame: bytes,
        size: int,
        shown: Credentials = _NONE_SHOWN,
        *,
        is_for_others: bool = False,
        can_refresh: bool = False,
        protocol_version: int = 0,
    ) -> None:
        self.target = target
        self.refusal = refusal
        self.client_version = client_version
        self.client_role = client_role
        self.frame = frame
        self.size = size
        self.shown = shown
        self.is_for_others = is_for_others
        self.can_refresh = can_refresh
        self.protocol_version = protocol_version


def read_greeting(data: bytes | bytearray) -> Greeting | None:
    """Read CONNECT from the first bytes of a connection, which may be longer; None while it is not complete.

    Raises:
        ProtocolError: If these bytes are no CONNECT.
    """
    if len(data) < SIZES.size:
        return None
    size, command_size = SIZES.unpack_from(data)
    length = size + 4
    if length > MOST_GREETING:
        raise foreign_protocol(bytes(data[:8])) or FrameTooLarge(length, MOST_GREETING)
    if command_size + SIZES.size > length:
        raise MalformedFrame(f"a command of {command_size} bytes in a frame of {length}")
    if len(data) < length:
        return None
    return GREETINGS.read(bytes(data[:length]))


def read_welcome(chunk: bytes) -> int | None:
    """Return `longest_frame` of a chunk that is one whole CONNECTED; None if it is anything else, less, or more.

    A CONNECTED that offers more than clients may use (`offers_more`) also gives None.
    """
    if len(chunk) < SIZES.size:
        return None
    size, command_size = SIZES.unpack_from(chunk)
    if size + 4 != len(chunk) or command_size + SIZES.size != len(chunk):
        return None
    envelope = decode(chunk[SIZES.size :])
    is_one = envelope.type == BaseCommand.CONNECTED and envelope.HasField("connected")
    if is_one and offers_more(envelope.connected):
        return None
    return longest_frame(envelope.connected) if is_one else None


def longest_frame(welcome: CommandConnected) -> int:
    """Return bytes of the longest frame that the broker takes; 0 if it does not say."""
    return max_frame_size(welcome.max_message_size) if welcome.max_message_size > 0 else 0


def offers_more(welcome: CommandConnected) -> bool:
    """Return whether a broker offers features that lead clients around the proxy (`commands.NOT_OFFERED`)."""
    flags = welcome.feature_flags
    return bool(flags.supports_scalable_topics or flags.supports_tc_metadata_discovery)


def _greeting(own: bytes) -> Greeting:
    envelope = decode(command_in(own))
    if envelope.type != BaseCommand.CONNECT or not envelope.HasField("connect"):
        raise NotConnect(f"the first command is of type {envelope.type}, not CONNECT")
    connect: CommandConnect = whole_body(envelope)
    target, refusal = _target(text(connect.proxy_to_broker_url))
    connect.ClearField("proxy_to_broker_url")
    connect.DiscardUnknownFields()  # brokers might read them otherwise: protocol/walk.py
    frame = encode(connect)
    shown = Credentials(text(connect.auth_method_name), connect.auth_data)
    return Greeting(
        target,
        refusal,
        text(connect.client_version)[:MOST_SAID],
        role_of(shown.method, shown.data),
        frame,
        len(own),
        shown,
        is_for_others=any(map(connect.HasField, _FOR_OTHERS)),
        can_refresh=connect.feature_flags.supports_auth_refresh,
        protocol_version=connect.protocol_version,
    )


_FOR_OTHERS = ("original_principal", "original_auth_data", "original_auth_method", "proxy_version")
"""Fields of a proxy's CONNECT that say for whom it connects."""


def greeting_for(frame: bytes, own: Credentials, role: str, forwarded: Credentials | None) -> bytes:
    """Return the CONNECT with which Sluice, as one of the broker's `proxyRoles`, connects for a client.

    Args:
        frame: The client's own, as `Greeting` has it, or one that this function has made before.
        own: The credentials of Sluice.
        role: The client's, which is proved.
        forwarded: The client's credentials, if the broker also verifies them.

    Source: org.apache.pulsar.proxy.server.DirectProxyHandler (ProxyBackendHandler.channelActive)
    """
    connect: CommandConnect = body_of(split(frame)[0])
    connect.ClearField("auth_method_name")
    connect.ClearField("auth_data")
    if own.method:
        connect.auth_method_name, connect.auth_data = own
    connect.original_principal = role
    if forwarded is not None:
        connect.original_auth_method = forwarded.method
        connect.original_auth_data = forwarded.data.decode(errors="replace")
    connect.feature_flags.supports_auth_refresh = True  # Sluice answers challenges itself
    return encode(connect)


def own_greeting(own: Credentials | None) -> bytes:
    """Return the CONNECT with which Sluice asks a broker whether it is there, with credentials if it has some."""
    connect = CommandConnect(client_version="Sluice readiness", protocol_version=20)
    if own is not None and own.method:
        connect.auth_method_name, connect.auth_data = own
    return encode(connect)


def refuses_credentials(answer: bytes) -> bool:
    """Return whether a broker's answer begins with the error for a CONNECT whose credentials it does not accept.

    The error for a role of its `proxyRoles` that names no client is another one, and comes later.
    """
    try:
        envelope, _ = split(answer)
    except ProtocolError:
        return False
    return envelope.type == BaseCommand.ERROR and envelope.error.error == AuthenticationError


def version_in(answer: bytes) -> str:
    """Return the version in a broker's answer to a CONNECT; empty if the answer does not begin with a CONNECTED."""
    try:
        envelope, _ = split(answer)
    except ProtocolError:
        return ""
    return envelope.connected.server_version if envelope.type == BaseCommand.CONNECTED else ""


def _target(url: str) -> tuple[Endpoint | None, str]:
    if not url:
        return None, ""
    try:
        return BROKERS.parse(url), ""
    except EndpointError as error:
        return None, str(error)


GREETINGS = ParseCache(_greeting)
WELCOMES = ParseCache(read_welcome)
"""Results for the last CONNECTs of clients, and CONNECTEDs of brokers."""
