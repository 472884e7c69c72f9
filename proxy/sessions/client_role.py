"""In which role a client connects, read from its CONNECT.

The proxy verifies nothing: it reads what the client claims, and the broker, which gets the same bytes, checks the
signature or password. A role counts because the broker answered CONNECTED; where brokers do not authenticate, it is no
more than a claim. The broker lets no client change its role while connected (AUTH_RESPONSE).
"""

import base64
import binascii

import msgspec

MOST_ROLE = 256
"""Characters of a role; a longer one counts as none."""
_MOST_AUTH_DATA = 64 * 1024


class _Claims(msgspec.Struct):
    """Of a token's claims the one that Pulsar takes by default (tokenAuthClaim)."""

    sub: str = ""


def role_of(auth_method: str, auth_data: bytes) -> str:
    """The subject of a `token` (a JWT), or the user of `basic`; empty for other methods and for what cannot be read.

    Source: org.apache.pulsar.broker.authentication.{AuthenticationProviderToken, AuthenticationProviderBasic}
    """
    if len(auth_data) > _MOST_AUTH_DATA:
        return ""
    role = ""
    if auth_method == "token":
        role = _subject(auth_data)
    elif auth_method == "basic":
        role = auth_data.partition(b":")[0].decode(errors="replace")
    return role if len(role) <= MOST_ROLE and role.isprintable() else ""


def _subject(token: bytes) -> str:
    parts = token.split(b".")
    if len(parts) != 3:
        return ""
    try:
        claims = base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(claims, type=_Claims).sub
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
